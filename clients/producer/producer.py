"""The producer's face."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Self

from qbus.clock import Clock, SystemClock
from qbus.errors import ConfigError, QbusError
from qbus.records.crc import Buffer

from ..cluster import Cluster, retrying
from ..types import BatchMetadata, RecordMetadata, TopicDescription
from .accumulator import Accumulator
from .batch import BulkDelivery
from .checks import check_item, check_many
from .options import Acks, ProducerOptions, parse_acks, parse_compression
from .sender import Sender


class Producer:
    """Sends records, in batches.

    An async context manager; leaving it waits for all that was sent. With ``acks="all"`` each
    record is stored once and in the order of the sends to its partition, whatever is sent again.
    """

    def __init__(  # noqa: PLR0913 - options are keywords
        self,
        bootstrap: str,
        *,
        acks: Acks = "all",
        compression: str = "none",
        linger_ms: float = 5,
        batch_bytes: int = 256 * 1024,
        buffer_bytes: int = 64 * 1024 * 1024,
        idempotent: bool | None = None,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        client_id: str = "qbus-producer",
        clock: Clock | None = None,
    ) -> None:
        """Connects at the first send.

        bootstrap: ``host:port,...``
        acks: who must have a record before it counts as sent: "all" in-sync replicas, 1 (the
            leader) or 0 (nobody: its offset stays unknown).
        compression: "none", "gzip", "snappy", "lz4" or "zstd".
        linger_ms: how long a batch waits for more records, in milliseconds.
        batch_bytes: records gathered for one batch, before compression.
        buffer_bytes: records that may wait to be delivered; a send over it waits too.
        idempotent: let the broker recognize repeated batches; by default with ``acks="all"``,
            which it needs.
        request_timeout_ms: how long one request may take.
        delivery_timeout_ms: how long a record may take, retries included.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        number = parse_acks(acks)
        options = ProducerOptions(
            acks=number,
            compression=parse_compression(compression),
            is_idempotent=number == -1 if idempotent is None else idempotent,
            linger=linger_ms / 1000,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            delivery_timeout=delivery_timeout_ms / 1000,
            topic_timeout=min(request_timeout_ms, delivery_timeout_ms) / 1000,
        )
        if options.is_idempotent and number != -1:
            raise ConfigError('an idempotent producer needs acks="all"')
        clock = clock or SystemClock()
        self._options = options
        self._cluster = Cluster(bootstrap, client_id, request_timeout_ms / 1000)
        self._accumulator = Accumulator(options, clock)
        self._sender = Sender(self._cluster, self._accumulator, options, clock)
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Put one record on its way; waits only while the buffer is full.

        ``partition``: by default the key's, or without a key one that changes from batch to batch.
        ``timestamp``: milliseconds since the Unix epoch, by default the time its batch began.
        Buffers must not be changed before the record is delivered.

        The future tells where the record went, or raises :class:`~qbus.errors.ApiError`. This
        method raises it too, for a topic or partition that does not exist, and TypeError or
        ValueError for what cannot be a record.
        """
        check_item(key, value, headers, timestamp)
        description = await self._ready(topic)
        delivery = self._accumulator.add(
            description, key, value, headers, partition=partition, timestamp=timestamp
        )
        self._sender.wake()
        return delivery

    async def send_many(
        self,
        topic: str,
        values: Sequence[Buffer],
        *,
        keys: Sequence[Buffer | None] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> asyncio.Future[list[BatchMetadata]]:
        """Put many values on their way, with or without ``keys``: much quicker than one by one.

        Otherwise as :meth:`send`. The future tells where each run of records went, and raises when
        one of them could not be delivered.
        """
        check_many(values, keys, timestamp)
        description = await self._ready(topic)
        bulk = BulkDelivery()
        steps = self._accumulator.add_many(
            description, values, keys, partition=partition, timestamp=timestamp, bulk=bulk
        )
        for _ in steps:
            self._sender.wake()
            await self._room()
        bulk.complete()
        return bulk.future

    async def flush(self) -> None:
        """Wait until everything sent so far is delivered, or has failed."""
        batches = self._accumulator.flush()
        self._sender.wake()
        if batches:
            await asyncio.wait([batch.done for batch in batches])

    async def close(self) -> None:
        """Flush, then close the connections."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self.flush()
        finally:
            if self._sending is not None:
                self._sending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._sending
            await self._sender.stop()
            await self._cluster.close()

    async def partitions(self, topic: str) -> int:
        """How many partitions ``topic`` has, which the broker may create."""
        return len((await self._topic(topic)).partitions)

    async def _ready(self, topic: str) -> TopicDescription:
        if self._is_closed:
            raise QbusError("the producer is closed")
        if self._sending is None:
            self._sending = asyncio.create_task(self._sender.run())
        await self._room()
        return self._cluster.metadata.topics.get(topic) or await self._topic(topic)

    async def _room(self) -> None:
        while self._accumulator.buffered_bytes >= self._options.buffer_bytes:
            self._sender.progress.clear()
            await self._sender.progress.wait()

    async def _topic(self, name: str) -> TopicDescription:
        async def attempt() -> TopicDescription:
            await self._cluster.need([name], create=True)
            return self._cluster.metadata.topic(name)

        return await retrying(attempt, self._options.topic_timeout)
