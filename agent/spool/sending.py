"""One batch from a spool to the broker, stored once wherever anybody can tell.

A producer that gave a batch up may not know whether it was stored. If it is for a certain partition
and has a producer's id and sequence, it is sent first exactly as it is: then the broker recognizes
it if it has it already, as long as it remembers that producer and its last five batches. Only what
the broker cannot place (a later epoch, a gap, a codec it does not take, too large) is sent again,
record by record, by an idempotent producer of our own. A batch that is stored, and that the broker
does not remember any more, is stored twice.
"""

from types import TracebackType
from typing import Self

from qbus.clients import Producer, TopicPartition
from qbus.clients.batches import as_produced, store_batches
from qbus.clients.net.cluster import Cluster
from qbus.clients.spool import QueueName
from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, decode_records

from ..config import Delivery

_CLIENT_ID = "qbus-agent-spool"
_FOREVER_MS = 1 << 40
_PLACELESS = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""A producer may have the topic created."""

REFUSED = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Codes of what no later attempt will change."""


class SpoolSender:
    """Sends batches of spools. Its own connections; one for all spools of an agent."""

    def __init__(self, bootstrap: str, delivery: Delivery) -> None:
        """Raises :class:`~qbus.errors.ConfigError`."""
        self._cluster = Cluster(bootstrap, _CLIENT_ID, delivery.request_timeout_ms / 1000)
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
        """Give up what is under way."""
        await self._producer.close(0)
        await self._cluster.close()

    async def send(self, queue: QueueName, header: BatchHeader, batch: bytes) -> None:
        """Return when the batch is stored by all in-sync replicas.

        Raises QbusError: whether it is stored is then unknown; :class:`~qbus.records.CorruptBatch`
        for records that cannot be read.
        """
        if queue.partition is not None and header.has_producer_id:
            partition = TopicPartition(queue.topic, queue.partition)
            try:
                await store_batches(self._cluster, {partition: as_produced(batch)})
            except ApiError as error:
                if error.retriable and error.code not in _PLACELESS:
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
