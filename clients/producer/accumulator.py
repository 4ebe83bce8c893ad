"""Where records wait to be sent: chooses their partitions and fills their batches."""

import asyncio
from collections.abc import Iterator, Sequence

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode
from qbus.records.crc import Buffer

from ..partitioner import StickyPartitioner, partition_for_key
from ..types import RecordMetadata, TopicDescription, TopicPartition
from .batch import RECORD_OVERHEAD, Batch, BulkDelivery, item_size
from .options import ProducerOptions
from .queue import PartitionQueue


class Accumulator:
    """The queues of all partitions, and how many bytes are in them."""

    def __init__(self, options: ProducerOptions, clock: Clock) -> None:
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.buffered_bytes = 0
        self._options = options
        self._clock = clock
        self._sticky = StickyPartitioner()

    def add(
        self,
        topic: TopicDescription,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Put one record into a batch; its delivery."""
        size = item_size(key, value, headers)
        if key is not None and partition is None:
            partition = partition_for_key(key, len(topic.partitions))
        batch = self._batch(topic, partition, size)
        self._grow(batch, size)
        return batch.add(key, value, headers, timestamp)

    def add_many(
        self,
        topic: TopicDescription,
        values: Sequence[Buffer],
        keys: Sequence[Buffer | None] | None,
        *,
        partition: int | None,
        timestamp: int | None,
        bulk: BulkDelivery,
    ) -> Iterator[None]:
        """Put many records into batches, as parts of ``bulk``; pauses after each batch."""
        if keys is None or partition is not None:
            yield from self._add_run(topic, values, keys, partition, timestamp, bulk)
            return
        runs: dict[int | None, tuple[list[Buffer], list[Buffer | None]]] = {}
        count = len(topic.partitions)
        for key, value in zip(keys, values, strict=True):
            chosen = None if key is None else partition_for_key(key, count)
            run_values, run_keys = runs.setdefault(chosen, ([], []))
            run_values.append(value)
            run_keys.append(key)
        for chosen, (run_values, run_keys) in runs.items():
            yield from self._add_run(topic, run_values, run_keys, chosen, timestamp, bulk)

    def _add_run(
        self,
        topic: TopicDescription,
        values: Sequence[Buffer],
        keys: Sequence[Buffer | None] | None,
        partition: int | None,
        timestamp: int | None,
        bulk: BulkDelivery,
    ) -> Iterator[None]:
        """Put records for one partition, or for the sticky one, into batches."""
        sizes = [len(value) + RECORD_OVERHEAD for value in values]
        if keys is not None:
            sizes = [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
        start = 0
        while start < len(values):
            batch = self._batch(topic, partition, sizes[start])
            end, size = _fit(sizes, start, self._options.batch_bytes - batch.size)
            batch.add_bulk(values[start:end], keys and keys[start:end], timestamp, bulk)
            self._grow(batch, size)
            start = end
            yield

    def release(self, batch: Batch) -> None:
        """A batch is done with."""
        self.buffered_bytes -= batch.size

    def flush(self) -> list[Batch]:
        """Let no batch stay open; all that are not answered for yet."""
        return [batch for queue in self.queues.values() for batch in queue.flush()]

    def _grow(self, batch: Batch, size: int) -> None:
        batch.size += size
        self.buffered_bytes += size

    def _batch(self, topic: TopicDescription, partition: int | None, size: int) -> Batch:
        """An open batch with room for ``size`` bytes, in ``partition`` or the sticky one."""
        if partition is not None and not 0 <= partition < len(topic.partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {partition}"
            )
        queue = self._queue(topic, self._sticky.current(topic) if partition is None else partition)
        batch = queue.room_in_open(size)
        if batch is None and partition is None:
            queue = self._queue(topic, self._sticky.move_on(topic))
            batch = queue.room_in_open(size)
        if batch is None:
            batch = Batch(queue.partition, self._clock.time_ms(), self._clock.monotonic())
            queue.open(batch)
        return batch

    def _queue(self, topic: TopicDescription, partition: int) -> PartitionQueue:
        key = TopicPartition(topic.name, partition)
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = PartitionQueue(
                key,
                batch_bytes=self._options.batch_bytes,
                max_in_flight=self._options.max_in_flight,
            )
        return queue


def _fit(sizes: Sequence[int], start: int, room: int) -> tuple[int, int]:
    """The end of the records from ``start`` that fit, at least one, and their size together."""
    total = sizes[start]
    for end in range(start + 1, len(sizes)):
        if total + sizes[end] > room:
            return end, total
        total += sizes[end]
    return len(sizes), total
