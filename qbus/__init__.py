"""Qbus: a partitioned commit log that Kafka clients can use.

Blocking programs use ``from qbus import Producer, Consumer, Admin``, asyncio programs use
``from qbus.aio import ...``.
"""

from typing import TYPE_CHECKING

from qbus import compiled  # noqa: F401 - first: it decides which form of the others is found
from qbus._version import __version__
from qbus.lazy import lazily

if TYPE_CHECKING:
    from qbus.clients.admin.types import (
        CreatedTopic,
        DelayedRecord,
        DelayedRecords,
        HangingTransaction,
        NewTopic,
        ProducerState,
        QueueState,
        Reassignment,
        ScramCredentialInfo,
        ScramUpsert,
        TransactionDescription,
        TransactionListing,
    )
    from qbus.clients.blocking.admin import Admin
    from qbus.clients.blocking.consumer import Consumer
    from qbus.clients.blocking.producer import Producer
    from qbus.clients.blocking.queue import Queue
    from qbus.clients.blocking.share import ShareConsumer
    from qbus.clients.errors import (
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
    from qbus.clients.idcs import Everywhere, everywhere
    from qbus.clients.producer import BufferFull, BulkDelivery, Delivery, Spooled
    from qbus.clients.queue import Job, JobGivenUp
    from qbus.clients.share import AcknowledgementLost, ShareRecord
    from qbus.clients.types import (
        EARLIEST,
        LATEST,
        MAX_TIMESTAMP,
        BatchMetadata,
        ConfigEntry,
        ConfigKind,
        ConfigSource,
        ConsumerRecord,
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionRecords,
        RecordMetadata,
        TopicPartition,
    )
    from qbus.errors import ApiError, ConfigError, CorruptBatch, ErrorCode, QbusError, WireError
    from qbus.security.client import ClientSecurity, read_properties

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AcknowledgementLost",
    "Admin",
    "ApiError",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "BatchMetadata",
    "BufferFull",
    "BulkDelivery",
    "ClientClosed",
    "ClientSecurity",
    "ClusterAuthorizationFailed",
    "ConfigEntry",
    "ConfigError",
    "ConfigKind",
    "ConfigSource",
    "ConnectionFailed",
    "Consumer",
    "ConsumerRecord",
    "CorruptBatch",
    "CreatedTopic",
    "DelayedRecord",
    "DelayedRecords",
    "Delivery",
    "ErrorCode",
    "Everywhere",
    "GroupAuthorizationFailed",
    "GroupMetadata",
    "HangingTransaction",
    "Job",
    "JobGivenUp",
    "LogTruncated",
    "NewTopic",
    "NoOffset",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartialFailure",
    "PartitionRecords",
    "Producer",
    "ProducerFenced",
    "ProducerState",
    "QbusError",
    "Queue",
    "QueueState",
    "Reassignment",
    "RecordMetadata",
    "RequestTimedOut",
    "ScramCredentialInfo",
    "ScramUpsert",
    "ShareConsumer",
    "ShareRecord",
    "Spooled",
    "TlsFailed",
    "TopicAuthorizationFailed",
    "TopicPartition",
    "TransactionAborted",
    "TransactionDescription",
    "TransactionFailed",
    "TransactionListing",
    "TransactionalIdAuthorizationFailed",
    "WireError",
    "__version__",
    "everywhere",
    "read_properties",
]

if not TYPE_CHECKING:  # which knows the names from above, and no others
    __getattr__, __dir__ = lazily(
        __name__,
        __all__,
        {
            "Admin": ".clients.blocking.admin",
            "Consumer": ".clients.blocking.consumer",
            "Producer": ".clients.blocking.producer",
            "Queue": ".clients.blocking.queue",
            "ShareConsumer": ".clients.blocking.share",
        },
        (".errors", ".records", ".clients"),
    )
