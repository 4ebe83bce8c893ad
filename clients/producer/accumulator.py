"""The records that wait to be sent, in batches by partition.

Any thread adds records; the event loop's thread takes batches. One lock guards both, held only for
a moment. Most records take its fast path (``qbus.records.pure.append_lock``).
"""

import asyncio
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, SupportsIndex, cast

from qbus.clock import Clock
from qbus.records import Buffer
from qbus.records.codec import AppendLock, OpenBatches, fit

from ..types import TopicDescription, TopicPartition
from .batch import Batch, call
from .delivery import AsyncDelivery, Delivery
from .lists import RECORD_OVERHEAD, Columns, Headers, ListBatch, item_size
from .options import OnDelivery, ProducerOptions
from .partitioner import Router
from .queue import PartitionQueue

MakeBatch = Callable[[TopicPartition, int, float], Batch]
"""Makes a batch for a partition, with its time in milliseconds and on the monotonic clock."""


class Accumulator:
    """The queues of all partitions, and the bytes in them.

    Calls ``on_work``, in the adding thread, when there is something to send before ``turn_at``.
    """

    def __init__(
        self,
        options: ProducerOptions,
        clock: Clock,
        on_work: Callable[[], None] = lambda: None,
        delivery: type[Delivery] = AsyncDelivery,
    ) -> None:
        """``delivery``: the class of what is returned for a record."""
        self._delivery = delivery
        self.lock: AppendLock[Any] = AppendLock(
            threading.Lock(), options.batch_bytes, options.buffer_bytes, RECORD_OVERHEAD, delivery
        )
        self.room = threading.Condition(cast("threading.Lock", self.lock))
        self.add_quickly = self.lock.add
        self.turn_at = math.inf
        """When the next batches are taken in any case, in seconds of the monotonic clock."""
        self.announced = 0
        """Number of calls of ``on_work`` so far."""
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.active: dict[TopicPartition, PartitionQueue] = {}
        self.incomplete: set[Batch] = set()
        self.router = Router(options.partitioner)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.failure: Exception | None = None
        self.refusal: Callable[[], Exception] | None = None
        """Why no records are accepted for now."""
        self.on_work = on_work
        self.orders: Any = None
        """What deliveries give orders about their records to."""
        self._options = options
        self._batch_bytes = options.batch_bytes
        self._buffer_bytes = options.buffer_bytes
        self._clock = clock

    @property
    def buffered_bytes(self) -> int:
        """The bytes of all incomplete batches."""
        return self.lock.buffered

    @property
    def is_full(self) -> bool:
        """Whether senders have to wait."""
        return self.lock.buffered >= self._buffer_bytes

    @property
    def is_refusing(self) -> bool:
        """Whether no records are accepted, for now or ever."""
        return self.failure is not None or self.refusal is not None

    @property
    def is_drained(self) -> bool:
        """Whether nothing is to be sent, and nothing under way. In the loop's thread."""
        with self.lock:
            return all(queue.is_empty for queue in self.active.values())

    def add(  # noqa: PLR0913 - as many as a record has parts
        self,
        topic: TopicDescription,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Headers | None = None,
        *,
        partition: SupportsIndex | None = None,
        timestamp: int | None = None,
        broker: SupportsIndex | None = None,
        on_delivery: OnDelivery | None = None,
        is_hurried: bool = False,
    ) -> Any:
        """Add one record to a batch; return its delivery.

        is_hurried: the caller calls :meth:`hurry` next, which announces the record.

        Raises :class:`~qbus.errors.ApiError` for a partition that does not exist, and the failure
        after which no records are accepted.
        """
        size = item_size(key, value, headers)
        with self.lock:
            fixed = self.router.fixed(topic, key, value, partition, broker)
            batch, is_due = self._room(topic, fixed, size)
            delivery = self._delivery(batch, batch.add(value, key, headers, timestamp, on_delivery))
            self._grow(batch, size)
        if is_due and not is_hurried:
            self._announce()
        return delivery

    def hurry(self, batch: Batch) -> None:
        """Have ``batch`` sent as soon as nothing of its partition is in flight: somebody waits."""
        if not batch.is_hurried:
            batch.is_hurried = True
            try:
                self._announce()
            except BaseException:  # an interrupt: whoever comes next announces it
                batch.is_hurried = False
                raise

    def add_many(
        self,
        topic: TopicDescription,
        columns: Columns,
        partition: int | None,
    ) -> Iterator[tuple[Batch, int, int]]:
        """Add records for one partition (None: any); yield each batch and the rows it received."""
        values, keys, headers, timestamps = columns
        start = 0
        while start < len(values):
            least = item_size(
                keys[start] if keys else None, values[start], headers[start] if headers else None
            )
            with self.lock:
                batch, _ = self._room(topic, partition, least)
                room = max(self._batch_bytes - batch.size, least)
                stop, size = fit(values, keys, headers, start, room, RECORD_OVERHEAD)
                rows = slice(start, stop)
                index = batch.add_many(
                    values[rows],
                    keys and keys[rows],
                    headers and headers[rows],
                    timestamps and timestamps[rows],
                )
                self._grow(batch, size)
            start = stop
            self._announce()
            yield batch, index, batch.count

    def push(
        self, topic: TopicDescription, partition: int | None, make: MakeBatch, size: int
    ) -> Batch:
        """Add a complete batch of ``size`` bytes for one partition (None: any)."""
        with self.lock:
            self._check()
            chosen = self.router.move_on(topic) if partition is None else partition
            queue = self.queue(TopicPartition(topic.name, chosen))
            batch = make(queue.partition, self._clock.time_ms(), self._clock.monotonic())
            batch.is_movable = partition is None
            queue.push(batch)
            self._begin(queue, batch)
            self._grow(batch, size)
        self._announce()
        return batch

    def release(self, batch: Batch) -> None:
        """Release the memory of a complete batch."""
        with self.lock:
            if batch in self.incomplete:
                self.incomplete.remove(batch)
                self.lock.buffered -= batch.size
                self.room.notify_all()

    def replace(self, batch: Batch, halves: Sequence[Batch]) -> None:
        """Let ``halves`` take the place of a batch."""
        callbacks, batch.callbacks = batch.callbacks, []
        for index, callback in enumerate(callbacks):
            if callback is not None:
                self._delivery(batch, index).add_done_callback(callback)
        with self.lock:
            self.incomplete.discard(batch)
            self.incomplete.update(halves)

    def seal(self) -> list[Batch]:
        """Close all open batches; return all incomplete batches."""
        with self.lock:
            for queue in self.active.values():
                queue.seal()
            return list(self.incomplete)

    def fail(self, failure: Exception) -> list[Batch]:
        """Accept no more records, for that reason; return all incomplete batches."""
        with self.lock:
            self.failure = self.failure or failure
            self.lock.topics.clear()
            self.room.notify_all()
            return list(self.incomplete)

    def refuse(self, refusal: Callable[[], Exception] | None) -> None:
        """Accept no records for now, for that reason; None: accept them again."""
        with self.lock:
            self.refusal = refusal
            self.lock.topics.clear()
            self.room.notify_all()

    def use_next(self) -> None:
        """Have each queue, of which nothing is in flight, begin with the next identity."""
        with self.lock:
            for queue in self.queues.values():
                queue.identity = None

    def disown(self) -> None:
        """Replace the locks after a fork: their holder does not exist in the child process."""
        self.lock.renew(threading.Lock())
        self.room = threading.Condition(cast("threading.Lock", self.lock))

    def queue(self, key: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition. The caller holds the lock."""
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = PartitionQueue(
                key,
                batch_bytes=self._batch_bytes,
                max_in_flight=self._options.max_in_flight,
                idempotent=self._options.is_idempotent,
                transactional=self._options.transactional_id is not None,
            )
        return queue

    def _room(
        self, topic: TopicDescription, partition: int | None, size: int
    ) -> tuple[ListBatch, bool]:
        """Return an open batch with room, and whether there is something to send before the next
        turn. The caller holds the lock.
        """
        self._check()
        is_due = False
        chosen = self.router.current(topic) if partition is None else partition
        queue = self.queue(TopicPartition(topic.name, chosen))
        if partition is None and queue.open_batch is not None and not queue.has_room(size):
            queue.seal()
            is_due = True
            queue = self.queue(TopicPartition(topic.name, self.router.move_on(topic)))
        if not queue.has_room(size):
            batch = ListBatch(
                queue.partition, self._clock.time_ms(), self._clock.monotonic(), self.loop
            )
            batch.is_movable = True
            is_due |= queue.open_batch is not None
            is_due |= batch.created_at + self._options.linger < self.turn_at
            queue.open(batch)
            self._begin(queue, batch)
        opened = queue.open_batch
        assert isinstance(opened, ListBatch)
        batches = self._open_batches(topic)
        batches.by_partition[queue.partition.partition] = opened
        if partition is None:
            batches.sticky = opened
        else:
            opened.is_movable = False
        return opened, is_due

    def _open_batches(self, topic: TopicDescription) -> OpenBatches:
        """Return the batches that the fast path appends to, for as many partitions as there are."""
        batches = self.lock.topics.get(topic.name)
        if batches is None or len(batches.by_partition) != len(topic.partitions):
            # A partitioner function decides for each record, so those without a partition go by it.
            batches = OpenBatches(len(topic.partitions), self.router.is_by_key)
            self.lock.topics[topic.name] = batches
        return batches

    def _begin(self, queue: PartitionQueue, batch: Batch) -> None:
        batch.on_complete = self._report
        batch.orders = self.orders
        self.active[queue.partition] = queue
        self.incomplete.add(batch)

    def _announce(self) -> None:
        self.announced += 1
        self.on_work()

    def _report(self, batch: Batch) -> None:
        callbacks, batch.callbacks = batch.callbacks, []
        self._call(batch, callbacks)
        if self._options.on_delivery is not None:
            self._call(batch, repeat(self._options.on_delivery, batch.count))

    def _call(self, batch: Batch, callbacks: Iterable[Callable[[Any], object] | None]) -> None:
        """Call the callback of each record of a complete batch; log their errors."""
        for index, callback in enumerate(callbacks):
            if callback is not None:
                call(callback, self._delivery(batch, index))

    def _grow(self, batch: Batch, size: int) -> None:
        batch.size += size
        self.lock.buffered += size

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.refusal is not None:
            raise self.refusal()
