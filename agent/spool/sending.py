"""Sends a batch from a spool to the broker, which stores it once if it can recognize it.

A producer that gave a batch up may not know whether it was stored. A batch with a partition, a
producer id and a sequence is first sent unchanged: the broker recognizes it if it has it, as long
as it remembers that producer and its last five batches. A batch that the broker cannot accept (a
later epoch, a gap, an unsupported codec, too large) is sent again, record by record, by an
idempotent producer of the agent. A stored batch that the broker no longer remembers is stored
twice.
"""

from types import TracebackType
from typing import Self

from qbus.clients import Producer, TopicPartition
from qbus.clients.batches import as_produced, store_batches
from qbus.clients.net.cluster import Cluster
from qbus.clients.spool import QueueName
from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, decode_records
from qbus.security.client import ClientSecurity

from ..config import Delivery

_CLIENT_ID = "qbus-agent-spool"
_FOREVER_MS = 1 << 40
_CREATABLE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""The producer may create the topic."""

REFUSED = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Codes of errors that no retry solves."""


class SpoolSender:
    """Sends batches of spools, over its own connections; one for all spools of an agent."""

    def __init__(
        self, bootstrap: str, delivery: Delivery, security: ClientSecurity | None = None
    ) -> None:
        """Raises :class:`~qbus.errors.ConfigError`."""
        self._cluster = Cluster(
            bootstrap, _CLIENT_ID, delivery.request_timeout_ms / 1000, security=security
        )
        self._producer = Producer(
            bootstrap,
            compression=delivery.compression,
            compression_level=delivery.compression_level,
            batch_bytes=delivery.batch_bytes,
            buffer_bytes=delivery.memory_bytes,
            linger_ms=0,
            delivery_timeout_ms=_FOREVER_MS,
            request_timeout_ms=delivery.request_timeout_ms,
            client_id=_CLIENT_ID,
            security=security,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Abandon what is in flight, and close."""
        await self._producer.close(0)
        await self._cluster.close()

    async def send(self, queue: QueueName, header: BatchHeader, batch: bytes) -> None:
        """Return when all in-sync replicas have stored the batch.

        Raises:
            CorruptBatch: the records cannot be read.
            QbusError: any other failure; it is unknown whether the batch is stored.
        """
        if queue.partition is not None and header.has_producer_id:
            partition = TopicPartition(queue.topic, queue.partition)
            try:
                await store_batches(self._cluster, {partition: as_produced(batch)})
            except ApiError as error:
                if error.retriable and error.code not in _CREATABLE:
                    raise
            else:
                return
        await self._resend_records(queue, header, batch)

    async def _resend_records(self, queue: QueueName, header: BatchHeader, batch: bytes) -> None:
        records = decode_records(batch, header, queue.topic, queue.partition or 0)
        delivery = await self._producer.send_many(
            queue.topic,
            [record.value for record in records],
            [record.key for record in records],
            [record.headers or None for record in records],
            partition=queue.partition,
            timestamps=[record.timestamp for record in records],
        )
        await delivery
