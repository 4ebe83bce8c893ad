"""The producer for programs without asyncio."""

import asyncio
import os
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Self

from qbus.records.crc import Buffer

from .. import producer as asyncio_producer
from ..errors import BufferFull, ClientClosed
from ..producer.bulk import ArrowTable, Part, add_lists
from ..producer.checks import check_item, checked_columns
from ..producer.delivery import BulkDelivery, Delivery
from ..producer.lists import Headers
from ..producer.options import Acks, OnDelivery, OnFull, Partitioner, Spool
from ..types import TopicDescription
from .loop import LoopThread

_Producer = asyncio_producer.Producer


class Producer:
    """Sends records, in batches, from a thread of its own.

    A context manager; leaving it waits for all that was sent. Any number of threads may use it.
    With ``acks="all"`` each record is stored once and in the order of the sends to its partition,
    whatever is sent again.
    """

    def __init__(  # noqa: PLR0913 - options are keywords
        self,
        bootstrap: str,
        *,
        acks: Acks = "all",
        idempotent: bool | None = None,
        compression: str = "none",
        compression_level: int | None = None,
        linger_ms: float = 5,
        batch_bytes: int = 1_000_000,
        buffer_bytes: int = 64 * 1024 * 1024,
        on_full: OnFull = "block",
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        max_in_flight: int = 5,
        partitioner: str | Partitioner = "murmur2",
        on_delivery: OnDelivery | None = None,
        spool_dir: Spool | None = None,
        client_id: str = "qbus-producer",
    ) -> None:
        """Connects at the first send.

        bootstrap: ``host:port,...`` or ``zk://host:port,.../chroot``.
        acks: who must have a record before it counts as sent: "all" in-sync replicas, 1 (the
            leader) or 0 (nobody: its offset stays unknown).
        idempotent: let the broker recognize repeated batches; by default with ``acks="all"``,
            which it needs.
        compression: "none", "gzip", "snappy", "lz4" or "zstd".
        compression_level: the codec's own; None: its default.
        linger_ms: how long a batch waits for more records at most, in milliseconds.
        batch_bytes: records gathered for one batch, before compression.
        buffer_bytes: records that may wait to be delivered.
        on_full: what a send does when so many wait: "block" until there is room, or "raise"
            BufferFull.
        delivery_timeout_ms: how long a record may take, retries included; then it fails.
        request_timeout_ms: how long one request may take.
        retry_backoff_ms: how long the first pause before a retry is; each is twice the last, and
            spread by a fifth.
        retry_backoff_max_ms: how long the longest pause is.
        max_in_flight: requests to one broker that may be unanswered; up to 5 if idempotent.
        partitioner: "murmur2", as Kafka's Java client; or a function that takes the topic's
            description, key and value and returns a partition, or None for any. It must be quick.
        on_delivery: is called with the delivery of each record when it is done, in the
            producer's thread, where it must neither block nor wait.
        spool_dir: a directory in which to keep what is not delivered in time.
        client_id: what brokers call this client in their logs and quotas.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        self._client = _Producer(
            bootstrap,
            acks=acks,
            idempotent=idempotent,
            compression=compression,
            compression_level=compression_level,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            on_full=on_full,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            max_in_flight=max_in_flight,
            partitioner=partitioner,
            on_delivery=on_delivery,
            spool_dir=spool_dir,
            client_id=client_id,
        )
        self._options = self._client._options
        self._accumulator = self._client._accumulator
        self._add_value = self._accumulator.add_value
        self._topics = self._client._cluster.metadata
        self._thread = LoopThread("qbus-producer")
        self._thread.call(self._client._start)
        self._accumulator.on_work = _waker(self._thread.loop, self._client._sender.wake)
        _alive.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        *,
        broker: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Put one record on its way; waits only for room in the buffer and to be told of the topic.

        partition: by default the key's, or without a key one that changes from batch to batch.
        timestamp: milliseconds since the Unix epoch, by default the time its batch began.
        broker: the id of a broker; a partition that it leads is chosen, or has to be given.
        on_delivery: called with the delivery when it is done, in the producer's thread.

        Buffers must not be changed before the record is delivered. The delivery tells where the
        record went, or raises what kept it from that. This method raises
        :class:`~qbus.errors.ApiError` for a topic, partition or broker that is not there,
        :class:`~qbus.BufferFull`, and TypeError or ValueError for what cannot be a record.
        """
        if (
            key is None
            and headers is None
            and partition is None
            and timestamp is None
            and broker is None
        ):
            delivery = self._add_value(topic, value, on_delivery)
            if delivery is not None:
                return delivery
        check_item(key, value, headers, timestamp)
        return self._accumulator.add(
            self._ready(topic),
            value,
            key,
            headers,
            partition=partition,
            timestamp=timestamp,
            broker=broker,
            on_delivery=on_delivery,
        )

    def send_many(
        self,
        topic: str,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        partition: int | None = None,
        timestamps: Sequence[int | None] | None = None,
    ) -> BulkDelivery:
        """Put many records on their way: much quicker than one by one.

        The sequences are of one length, None where no record has such a part. Otherwise as
        :meth:`send`; with ``on_full="raise"`` all or none are taken.
        """
        columns = checked_columns(values, keys, headers, timestamps)
        return self._add(add_lists(self._accumulator, self._ready(topic), columns, partition))

    def send_arrow(
        self,
        topic: str,
        table: Any,
        *,
        value: str = "value",
        key: str | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        partition: int | None = None,
    ) -> BulkDelivery:
        """Put the rows of a pyarrow Table or RecordBatch on their way, a record each.

        value, key, headers, timestamp: names of columns; binary or string, headers
            ``list<struct<key, value>>``, timestamps int64 (ms) or a timestamp.

        Otherwise as :meth:`send_many`. Raises KeyError for a column that is not there, and
        TypeError for one of another type.
        """
        rows = ArrowTable(table, value=value, key=key, headers=headers, timestamp=timestamp)
        description = self._ready(topic)
        return self._add(rows.add(self._accumulator, description, partition, self._options))

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is delivered, or has failed.

        Raises :class:`~qbus.clients.RequestTimedOut` when that takes over ``timeout`` seconds.
        """
        self._thread.run(self._client.flush(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Flush, then close the connections; does nothing the second time.

        What is not delivered in ``timeout`` seconds (None: ``delivery_timeout_ms``) fails, or is
        kept in ``spool_dir``.
        """
        if not self._thread.is_closed:
            try:
                self._thread.run(self._client.close(timeout))
            finally:
                self._thread.close()

    def partitions(self, topic: str) -> int:
        """How many partitions ``topic`` has, which the broker may create."""
        return self._thread.run(self._client.partitions(topic))

    def _ready(self, topic: str) -> TopicDescription:
        if self._thread.is_closed:
            self._thread.check_usable()
        if self._client._is_closed:
            raise ClientClosed
        if self._accumulator.is_full:
            self._room()
        known = self._topics.topics.get(topic)
        return known or self._thread.run(self._client._topic(topic))

    def _room(self) -> None:
        """Wait for room; in the producer's own thread, which makes it, there is none to come."""
        options = self._options
        if options.on_full == "block" and not self._thread.is_current:
            with self._accumulator.room:
                self._accumulator.room.wait_for(
                    lambda: not self._accumulator.is_full or self._accumulator.failure is not None,
                    options.delivery_timeout,
                )
        if self._accumulator.is_full:
            raise BufferFull(options.buffer_bytes)

    def _add(self, parts: Iterable[Part]) -> BulkDelivery:
        added = []
        for part in parts:
            added.append(part)
            if self._accumulator.is_full and self._options.on_full == "block":
                self._room()
        return BulkDelivery(added)

    def _forget(self) -> None:
        self._accumulator.disown()


_alive: "weakref.WeakSet[Producer]" = weakref.WeakSet()


def _disown_all() -> None:
    """In a forked process, where no thread is left to send: let each send say so."""
    for producer in list(_alive):
        producer._forget()


os.register_at_fork(after_in_child=_disown_all)


def _waker(loop: asyncio.AbstractEventLoop, wake: Any) -> Any:
    def post() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    return post
