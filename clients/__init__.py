"""The SDK: clients of a Qbus or Kafka cluster, for asyncio.

async with Producer("127.0.0.1:9092") as producer:
    delivery = await producer.send("topic", b"value", key=b"key")
    print((await delivery).offset)

async with Consumer("127.0.0.1:9092", group="readers", offset_reset="earliest") as consumer:
    consumer.subscribe(["topic"])
    async for record in consumer:
        print(record.value)

async with ShareConsumer("127.0.0.1:9092", "workers", ["topic"]) as consumer:
    async for record in consumer:
        print(record.value)

async with Admin("127.0.0.1:9092") as admin:
    await admin.create_topic("topic", partitions=4)
"""

from typing import TYPE_CHECKING

from qbus.lazy import lazily

if TYPE_CHECKING:
    from qbus.security.client import ClientSecurity, read_properties

    from .admin import Admin
    from .admin.types import (
        CreatedTopic,
        DelayedRecord,
        DelayedRecords,
        Entry,
        Filter,
        HangingTransaction,
        NewTopic,
        Operation,
        Pattern,
        PatternType,
        Permission,
        ProducerState,
        QueueState,
        QuotaEntity,
        Reassignment,
        ResourceType,
        Rule,
        ScramCredentialInfo,
        ScramUpsert,
        TopicRef,
        TransactionDescription,
        TransactionListing,
    )
    from .consumer import Consumer
    from .consumer.options import OffsetReset
    from .errors import (
        AuthenticationFailed,
        AuthorizationFailed,
        ClientClosed,
        ClusterAuthorizationFailed,
        ConnectionFailed,
        GroupAuthorizationFailed,
        LogTruncated,
        NoOffset,
        PartialFailure,
        ProducerFenced,
        RequestTimedOut,
        TlsFailed,
        TopicAuthorizationFailed,
        TransactionAborted,
        TransactionalIdAuthorizationFailed,
        TransactionFailed,
    )
    from .idcs import Everywhere, everywhere
    from .producer import BufferFull, BulkDelivery, Delivery, Producer, Spooled
    from .producer.options import Acks
    from .queue import Job, JobGivenUp, Queue
    from .security import SecurityOptions
    from .share import AcknowledgementLost, ShareConsumer, ShareRecord
    from .types import (
        EARLIEST,
        LATEST,
        MAX_TIMESTAMP,
        BatchMetadata,
        ClusterDescription,
        ConfigEntry,
        ConfigKind,
        ConfigSource,
        ConsumerRecord,
        DamagedBatches,
        GroupDescription,
        GroupListing,
        GroupMetadata,
        GroupOffset,
        LogDir,
        MemberDescription,
        Node,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionDescription,
        PartitionRecords,
        RecordMetadata,
        ReplicaSize,
        TopicDescription,
        TopicPartition,
    )

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AcknowledgementLost",
    "Acks",
    "Admin",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "BatchMetadata",
    "BufferFull",
    "BulkDelivery",
    "ClientClosed",
    "ClientSecurity",
    "ClusterAuthorizationFailed",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigKind",
    "ConfigSource",
    "ConnectionFailed",
    "Consumer",
    "ConsumerRecord",
    "CreatedTopic",
    "DamagedBatches",
    "DelayedRecord",
    "DelayedRecords",
    "Delivery",
    "Entry",
    "Everywhere",
    "Filter",
    "GroupAuthorizationFailed",
    "GroupDescription",
    "GroupListing",
    "GroupMetadata",
    "GroupOffset",
    "HangingTransaction",
    "Job",
    "JobGivenUp",
    "LogDir",
    "LogTruncated",
    "MemberDescription",
    "NewTopic",
    "NoOffset",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetReset",
    "Operation",
    "PartialFailure",
    "PartitionDescription",
    "PartitionRecords",
    "Pattern",
    "PatternType",
    "Permission",
    "Producer",
    "ProducerFenced",
    "ProducerState",
    "Queue",
    "QueueState",
    "QuotaEntity",
    "Reassignment",
    "RecordMetadata",
    "ReplicaSize",
    "RequestTimedOut",
    "ResourceType",
    "Rule",
    "ScramCredentialInfo",
    "ScramUpsert",
    "SecurityOptions",
    "ShareConsumer",
    "ShareRecord",
    "Spooled",
    "TlsFailed",
    "TopicAuthorizationFailed",
    "TopicDescription",
    "TopicPartition",
    "TopicRef",
    "TransactionAborted",
    "TransactionDescription",
    "TransactionFailed",
    "TransactionListing",
    "TransactionalIdAuthorizationFailed",
    "everywhere",
    "read_properties",
]

if not TYPE_CHECKING:  # which knows the names from above, and no others
    __getattr__, __dir__ = lazily(
        __name__,
        __all__,
        {
            "Admin": ".admin",
            "Consumer": ".consumer",
            "Producer": ".producer",
            "Queue": ".queue",
            "ShareConsumer": ".share",
        },
        (
            ".errors",
            ".types",
            "qbus.security.client",
            ".security",
            ".idcs",
            ".admin.types",
            ".consumer.options",
            ".producer.options",
            ".producer",
            ".share",
            ".queue",
        ),
    )

assert __name__ == "qbus.clients", "import qbus.clients: this folder is a part of the qbus package"
