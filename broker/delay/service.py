"""Delayed records of the partitions that this broker leads: what is due is delivered."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from qbus.clock import Clock
from qbus.errors import ApiError, CorruptBatch, ErrorCode
from qbus.records import Buffer, Compression, read_header

from ..log import Verification
from ..partition.background_tasks import BackgroundTasks
from ..partition.events import PartitionListener
from ..partition.partition import Partition
from .contents import Contents, LoopBudget, look, may_order, read, surely_orders_nothing
from .dead_lettering import DeadLetterTopics
from .delayed_partition import DelayedPartition, Lateness
from .fold import DelayFold
from .held import HeldCache, HeldRecord, HeldRecords
from .incoming import NewBatch, PartitionIntake, StoredBatch
from .intake import take_in
from .schedule import Held

_log = logging.getLogger(__name__)

_JUMP_S: Final = 1.0


class DelayService(PartitionListener[Partition]):
    """Delivers the delayed records of all partitions that this broker leads."""

    def __init__(
        self, clock: Clock, dead_letters: DeadLetterTopics, cache: HeldCache | None = None
    ) -> None:
        """``cache``: bounds what is kept of the records of all partitions."""
        self._dead_letters = dead_letters
        self.lateness = Lateness()
        self._clock = clock
        self._cache = cache or HeldCache()
        self._reading_turn = asyncio.Lock()
        self._led: dict[Partition, DelayedPartition] = {}
        self._offset_s = clock.time_ms() / 1000 - clock.monotonic()

    def register(self, tasks: BackgroundTasks, retention_interval_s: float) -> None:
        """Add the tasks of the service."""
        tasks.add("watch the clock", 1.0, self.watch_clock)
        tasks.add("carry delayed records", retention_interval_s, self.carry)

    def __iter__(self) -> Iterator[DelayedPartition]:
        return iter(list(self._led.values()))

    async def describe(
        self, partition: Partition, after: tuple[int, int], most: int
    ) -> tuple[int, int | None, list[HeldRecord]]:
        """How many records a partition holds back, when the next is due, and some in that order.

        At most ``most``, behind the one with the due time and the place of ``after``. None are held
        back where the partition is not led. Raises ApiError when they cannot be read.
        """
        delayed = self._led.get(partition)
        if delayed is None:
            return 0, None, []
        schedule, held = delayed.fold.schedule, delayed.held
        entries = schedule.after(*after, most) if most > 0 else []
        records = await asyncio.to_thread(_read_all, held, entries) if entries else []
        return schedule.count, schedule.next_due(), records

    async def find(self, partition: Partition, offsets: Sequence[int]) -> list[HeldRecord]:
        """Those records held back whose producers were told ``offsets``. Raises ApiError."""
        delayed = self._led.get(partition)
        if delayed is None or not offsets:
            return []
        fold, held = delayed.fold, delayed.held
        places = [fold.lies_at(offset) for offset in offsets if offset >= 0]
        read = await asyncio.to_thread(lambda: [held.read(offset, wait=True) for offset in places])
        records = []
        for record in read:
            found = record and fold.find(record.original_offset, record.due, record.offset)
            if record is not None and found:
                records.append(record._replace(due=found[0], offset=found[1]))
        return records

    def of(self, partition: Partition) -> DelayedPartition | None:
        """What is delayed of a partition, if it is led here."""
        return self._led.get(partition)

    def look(self, partition: Partition, batch: memoryview, budget: LoopBudget) -> Contents | None:
        """The contents of a producer's batch; None: it is to be appended as it is.

        Raises BlockingIOError where a thread has to :func:`read` them, CorruptBatch, and ApiError
        as :meth:`Partition.append` does.
        """
        if partition not in self._led or partition.error:
            return None
        log = partition.log
        return look(batch, log.check(batch), log.config, self._clock.time_ms(), budget)

    def reader(self, partition: Partition, batch: Buffer) -> Callable[[int], Contents | None]:
        """What reads in a thread the contents that :meth:`look` did not; takes their most bytes."""
        header, config, now_ms = read_header(batch), partition.log.config, self._clock.time_ms()
        return lambda ceiling: read(batch, header, config, now_ms, ceiling)

    def intake(
        self,
        partition: Partition,
        batch: memoryview,
        acks: int,
        verification: Verification | None = None,
        contents: Contents | None = None,
    ) -> PartitionIntake | None:
        """What is to become of a producer's batch; None: it is to be appended as it is.

        ``verification``: that of a transaction's first batch. ``contents``: of the batch, if they
        were read before; those of the broker's own batches are read here.

        Where delays were switched off, it is, unless it comes again and is stored at least in part.
        Raises RecordsRefusedError, and ApiError as :meth:`Partition.append` does.
        """
        delayed = self._led.get(partition)
        if delayed is None or partition.error:
            return None
        log = partition.log
        if contents is None:
            contents = read(batch, log.check(batch), log.config, self._clock.time_ms())
            if contents is None:
                return None
        header = contents.header
        stored = log.stored_part(header)
        if stored is None:
            if not log.config.qbus_delay_enable:
                return None
        elif stored.records_count == header.records_count:
            return StoredBatch(delayed, header, stored)
        count = 0 if stored is None else stored.records_count
        taken = take_in(batch, contents, log.config, delayed.fold, count)
        return None if taken is None else NewBatch(delayed, taken, acks, stored, verification)

    def may_hold(self, batch: memoryview) -> bool:
        """Whether a batch has to be looked at closely: malformed, or with a header, or large.

        The checksum is for the append, which refuses what is damaged.
        """
        if surely_orders_nothing(batch):
            return False
        try:
            header = read_header(batch)
            return not 0 <= header.attributes <= Compression.ZSTD or may_order(batch, header)
        except CorruptBatch:
            return True

    def leading(self, partition: Partition, leader_epoch: int) -> None:  # noqa: ARG002
        """See :class:`PartitionListener`."""
        if partition.log.fold.part(DelayFold) is not None:
            known = self._led.get(partition)
            if known is None:
                known = DelayedPartition(
                    partition,
                    self._clock,
                    self.lateness,
                    self._cache,
                    self._reading_turn,
                    self._dead_letters,
                )
                self._led[partition] = known
            known.wake()

    def stepping_down(self, partition: Partition, code: ErrorCode) -> None:  # noqa: ARG002
        """See :class:`PartitionListener`."""
        known = self._led.pop(partition, None)
        if known is not None:
            known.stop()

    def transaction_ended(
        self,
        partition: Partition,
        producer_id: int,  # noqa: ARG002
        epoch: int,  # noqa: ARG002
        committed: bool,
    ) -> None:
        """See :class:`PartitionListener`."""
        known = self._led.get(partition) if committed else None
        if known is not None:
            known.wake()

    def closed(self, partition: Partition) -> None:
        """See :class:`PartitionListener`."""
        self.stepping_down(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def watch_clock(self) -> None:
        """Say when somebody set the clock, and go by the new time."""
        offset_s = self._clock.time_ms() / 1000 - self._clock.monotonic()
        jump_s = offset_s - self._offset_s
        if abs(jump_s) >= _JUMP_S:
            self._offset_s = offset_s
            pending = sum(one.fold.pending for one in self if not one.is_inert)
            if pending:
                _log.warning(
                    "the clock was set %s by %.1f s: %d delayed records are due that much %s",
                    "forward" if jump_s > 0 else "back",
                    abs(jump_s),
                    pending,
                    "earlier" if jump_s > 0 else "later",
                )
        for one in self:
            one.wake()

    async def carry(self) -> None:
        """Carry what retention waits for."""
        for one in self:
            if one.fold.pending and not one.is_inert:
                try:
                    one.carrying.start(await _to_be_cleared(one))
                except ApiError as error:
                    _log.warning("%s: %s", one.partition, error)

    async def clear_before(self, partition: Partition, offset: int) -> int:
        """Carry what lies before ``offset``, where the log is to start; where it may start then.

        The copy of another cluster's partition starts with what it holds back at the latest: that
        is carried at its source. Raises ApiError.
        """
        delayed = self._led.get(partition)
        if delayed is not None:
            needed_from = delayed.fold.needed_from
            if needed_from is not None and needed_from < offset:
                if delayed.is_inert:
                    return needed_from
                try:
                    await delayed.carrying.carry_all_before(offset)
                except OSError as error:
                    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return offset

    def stop(self) -> None:
        """Deliver nothing any more."""
        for one in self:
            one.stop()
        self._led.clear()


def _read_all(held: HeldRecords, entries: list[Held]) -> list[HeldRecord]:
    found = ((entry, held.read(entry.offset, wait=True)) for entry in entries)
    return [record._replace(due=entry.due) for entry, record in found if record is not None]


async def _to_be_cleared(one: DelayedPartition) -> int:
    """The offset before which nothing is to be held back, so that retention goes on.

    What is too old goes in any case. What is too much goes if most of it is not held back: else it
    would be written anew again and again, and take as much space as before.
    """
    log, limit = one.partition.log, one.partition.high_watermark
    too_old = await asyncio.to_thread(log.expired_before, limit, by_size=False)
    too_much = await asyncio.to_thread(log.expired_before, limit)
    if (
        too_much > too_old
        and 2 * await one.carrying.count_before(too_much) <= too_much - one.fold.bound
    ):
        return too_much
    return too_old
