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

from .admin import Admin
from .admin.types import (
    CreatedTopic,
    DelayedRecord,
    DelayedRecords,
    HangingTransaction,
    NewTopic,
    ProducerState,
    QueueState,
    Reassignment,
    TopicRef,
    TransactionDescription,
    TransactionListing,
)
from .consumer import Consumer
from .consumer.options import OffsetReset
from .errors import (
    ClientClosed,
    ConnectionFailed,
    LogTruncated,
    NoOffset,
    PartialFailure,
    ProducerFenced,
    RequestTimedOut,
    TransactionAborted,
    TransactionFailed,
)
from .idcs import Everywhere, everywhere
from .producer import BufferFull, BulkDelivery, Delivery, Producer, Spooled
from .producer.options import Acks
from .queue import Job, JobGivenUp, Queue
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
    "BatchMetadata",
    "BufferFull",
    "BulkDelivery",
    "ClientClosed",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigKind",
    "ConfigSource",
    "ConnectionFailed",
    "Consumer",
    "ConsumerRecord",
    "CreatedTopic",
    "DelayedRecord",
    "DelayedRecords",
    "Delivery",
    "Everywhere",
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
    "PartialFailure",
    "PartitionDescription",
    "PartitionRecords",
    "Producer",
    "ProducerFenced",
    "ProducerState",
    "Queue",
    "QueueState",
    "Reassignment",
    "RecordMetadata",
    "ReplicaSize",
    "RequestTimedOut",
    "ShareConsumer",
    "ShareRecord",
    "Spooled",
    "TopicDescription",
    "TopicPartition",
    "TopicRef",
    "TransactionAborted",
    "TransactionDescription",
    "TransactionFailed",
    "TransactionListing",
    "everywhere",
]

assert __name__ == "qbus.clients", "import qbus.clients: this folder is a part of the qbus package"
