"""Delayed records of the partitions that this broker leads: what is due is delivered."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final

from qbus.clock import Clock
from qbus.delay import BY_KEY
from qbus.errors import ApiError, ErrorCode
from qbus.records import read_header
from qbus.records.plain import plain_header

from ..log import AppendInfo
from ..partition.background_tasks import BackgroundTasks
from ..partition.partition import Partition, PartitionListener
from .carrying import all_carried, lying_before, read_lying, to_carry
from .delivery import MOST_RECORDS, Due, read_due, still_held, to_deliver
from .fold import DelayFold
from .held import HeldCache, HeldRecord, HeldRecords, find
from .intake import Taken, find_targets, may_order, notes_of, take_in, to_append
from .schedule import Held

_log = logging.getLogger(__name__)

TICK_S: Final = 0.005
_LONGEST_S: Final = 0.5  # between two looks at the clock, which may be set
_JUMP_S: Final = 1.0
_RETRY_S: Final = 1.0
_WARN_S: Final = 10.0
_FEW: Final = 16  # orders that are looked up at once
_PASSES: Final = 20
_AT_ONCE: Final = 100_000  # entries that are looked through without a pause
_SPREAD: Final = 5_000  # records brought near at a time
_LATE_MS: Final = (5, 10, 20, 50, 100, 500, 1_000, 10_000, 60_000)


class Lateness:
    """How late records were delivered: a histogram, and the worst."""

    __slots__ = ("counts", "sum_ms")

    BOUNDS_MS: Final = _LATE_MS

    def __init__(self) -> None:
        self.counts = [0] * (len(_LATE_MS) + 1)
        self.sum_ms = 0

    def observe(self, late_ms: int) -> None:
        """Count in a record that was delivered ``late_ms`` after it was due."""
        self.sum_ms += late_ms
        for number, bound in enumerate(_LATE_MS):
            if late_ms <= bound:
                self.counts[number] += 1
                return
        self.counts[-1] += 1


class DelayedPartition:
    """One partition that is led here: its timer, and what is under way."""

    def __init__(
        self, partition: Partition, clock: Clock, lateness: Lateness, cache: HeldCache
    ) -> None:
        self.partition = partition
        self._cache = cache
        self._clock = clock
        self._lateness = lateness
        self._held = HeldRecords(partition.log, cache)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None
        self._carrying: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._warned_at = float("-inf")
        self._unreadable: set[int] = set()
        self._unreadable_since = 0.0

    @property
    def fold(self) -> DelayFold:
        """The partition's delayed records."""
        fold = self.partition.log.fold
        assert isinstance(fold, DelayFold)
        return fold

    @property
    def held(self) -> HeldRecords:
        """Its records that are held back."""
        if self._held.log is not self.partition.log:  # it was moved to another directory
            self._held.close()
            self._held = HeldRecords(self.partition.log, self._cache)
        return self._held

    def wake(self) -> None:
        """Look again when the next record is due: what is held back has changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_stopped or self._reading is not None:
            return
        next_due = self.fold.schedule.next_due()
        if next_due is not None:
            wait_s = (next_due - self._clock.time_ms()) / 1000
            self._wait(min(max(wait_s, TICK_S), _LONGEST_S))

    def _wait(self, seconds: float) -> None:
        if not self._is_stopped:
            self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        schedule, now_ms = self.fold.schedule, self._clock.time_ms()
        schedule.advance(now_ms, _SPREAD)
        next_due = schedule.next_due()
        if next_due is None or next_due > now_ms:
            self.wake()
            return
        try:
            self.deliver()
        except BlockingIOError:
            self._reading = self._loop.create_task(self._deliver_from_disk())
        except (ApiError, OSError) as error:
            self._failed(error)
        else:
            self.wake()

    def deliver(self) -> int:
        """Deliver what is due; how many records. Does not wait for a disk.

        Raises BlockingIOError where it would, ApiError as :meth:`Partition.append_own` does.
        """
        now_ms = self._clock.time_ms()
        return self._append(read_due(self.held, self._entries(now_ms), now_ms, wait=False))

    async def _deliver_from_disk(self) -> None:
        now_ms = self._clock.time_ms()
        entries = self._entries(now_ms)
        try:
            due = await asyncio.to_thread(read_due, self.held, entries, now_ms, wait=True)
            if not self._is_stopped:
                self._append(still_held(due, self.fold))
        except (ApiError, OSError) as error:
            self._reading = None
            self._failed(error)
        finally:
            self._reading = None
            if self._timer is None:
                self.wake()

    def _entries(self, now_ms: int) -> list[Held]:
        """What is due, but for what could not be read a moment ago."""
        skipped = self._unreadable
        if skipped and self._clock.monotonic() - self._unreadable_since >= _WARN_S:
            skipped.clear()
        entries = self.fold.schedule.due(now_ms, MOST_RECORDS + len(skipped))
        return [entry for entry in entries if entry.offset not in skipped] if skipped else entries

    def _append(self, due: Due) -> int:
        if due.unreadable:
            if not self._unreadable:
                self._unreadable_since = self._clock.monotonic()
                _log.error(
                    "%s: %d delayed records are due and cannot be read, the first of them at offset"
                    " %d: they wait",
                    self.partition,
                    len(due.unreadable),
                    due.unreadable[0].offset,
                )
            self._unreadable.update(entry.offset for entry in due.unreadable)
        if not due:
            return 0
        now_ms = self._clock.time_ms()
        batches = to_deliver(due, self.partition.log.config, now_ms)
        self.partition.append_own(batches, len(due.records))
        for record in due.records:
            self._lateness.observe(now_ms - record.due)
        if due.expired:
            _log.warning(
                "%s: %d delayed records were due too long ago, and are dropped: qbus-ttl",
                self.partition,
                len(due.expired),
            )
        return len(due.records)

    def _failed(self, error: ApiError | OSError) -> None:
        now = self._clock.monotonic()
        if now - self._warned_at >= _WARN_S:
            self._warned_at = now
            count = len(self.fold.schedule.due(self._clock.time_ms(), MOST_RECORDS))
            _log.warning(
                "%s: %s%d delayed records are due, and wait: %s",
                self.partition,
                "at least " if count == MOST_RECORDS else "",
                count,
                error,
            )
        self._wait(_RETRY_S)

    # What retention would take

    def carry_before(self, offset: int) -> None:
        """Begin to carry what lies before ``offset`` to the end of the log."""
        if self._carrying is None and not self._is_stopped and self.fold.bound < offset:
            self._carrying = self._loop.create_task(self._try_to_carry(offset))

    async def _try_to_carry(self, offset: int) -> None:
        try:
            await self.carry_all_before(offset)
        except (ApiError, OSError) as error:
            _log.warning("%s: delayed records are carried later: %s", self.partition, error)
        finally:
            self._carrying = None

    async def count_before(self, offset: int) -> int:
        """How many of the delayed records lie before ``offset``."""
        count = 0
        for entries in lying_before(self.fold, offset):
            count += len(entries)
            await asyncio.sleep(0)
        return count

    async def carry_all_before(self, offset: int) -> None:
        """Carry what lies before ``offset`` to the end of the log, and wait until that is done.

        Raises ApiError, OSError.
        """
        before = self.fold.carried_count
        try:
            for _ in range(_PASSES):
                for entries in lying_before(self.fold, offset):
                    await self._carry(entries)
                if self._is_stopped:
                    return
                if await self._none_lies_before(offset):
                    now_ms = self._clock.time_ms()
                    self.partition.append_own(all_carried(offset, now_ms), 0)
                    count = self.fold.carried_count - before
                    _log.info("%s: %d delayed records carried to its end", self.partition, count)
                    return
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, "delayed records change faster than they are carried"
            )
        finally:
            self.wake()

    async def _none_lies_before(self, offset: int) -> bool:
        """Whether no delayed record lies before ``offset``; also false where that is not sure."""
        schedule = self.fold.schedule
        moves = schedule.moves
        for entries in lying_before(self.fold, offset):
            if entries:
                return False
            if schedule.count > _AT_ONCE:
                await asyncio.sleep(0)
        return schedule is self.fold.schedule and schedule.moves == moves

    async def _carry(self, entries: list[Held]) -> None:
        while entries and not self._is_stopped:
            records, count = await asyncio.to_thread(read_lying, self.held, entries, wait=True)
            batch = to_carry(records, self.fold, self._clock.time_ms())
            if batch and not self._is_stopped:
                self.partition.append_own(batch, 0)
            entries = entries[count:]
        await asyncio.sleep(0)

    def stop(self) -> None:
        """Deliver nothing any more: the partition is led elsewhere."""
        self._is_stopped = True
        self._held.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class PartitionIntake:
    """A producer's batch with delayed records, or orders about them, on its way into a partition.

    ``needs_thread``: :meth:`read` has to be called first, in a thread.
    """

    def __init__(
        self, delayed: DelayedPartition, taken: Taken | None, acks: int, known: AppendInfo | None
    ) -> None:
        self._delayed = delayed
        self._taken = taken
        self._acks = acks
        self._known = known
        self._targets: dict[int, list[HeldRecord]] = {}
        self._notes: list[tuple[int, str]] = []
        self.needs_thread = known is not None
        if taken is not None and taken.orders:
            self._taken = taken._replace(batch=bytes(taken.batch))
            self.needs_thread = self._needs_thread(taken)

    def _needs_thread(self, taken: Taken) -> bool:
        if len(taken.orders) > _FEW or any(order.target == BY_KEY for _, order, _ in taken.orders):
            return True
        try:
            self._find(wait=False)
        except BlockingIOError:
            return True
        return False

    def _find(self, *, wait: bool) -> None:
        delayed = self._delayed
        assert self._taken is not None
        self._targets = find_targets(self._taken, delayed.fold, delayed.held, wait=wait)

    def read(self) -> None:
        """Find what the batch's orders are about, or what was said about them; for a thread.

        Raises ApiError.
        """
        if self._known is None:
            self._find(wait=True)
            return
        try:
            self._notes = notes_of(self._delayed.partition.log, self._known)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def append(self) -> tuple[AppendInfo, list[tuple[int, str]]]:
        """Append the batch; what became of it, and what is to be said about single records.

        Raises ApiError as :meth:`Partition.append` does.
        """
        delayed, taken = self._delayed, self._taken
        if self._known is not None or taken is None:
            assert self._known is not None
            return self._known, self._notes
        partition = delayed.partition
        log = partition.log
        batches, notes = to_append(
            taken, self._targets, delayed.fold, log.config, log.log_end_offset
        )
        fold = delayed.fold
        if taken.held:
            fold.expected = read_header(batches).crc, taken.held
        try:
            info = partition.append_own(batches, taken.header.records_count, self._acks)
        finally:
            fold.expected = None
        delayed.wake()
        return info, notes


class DelayService(PartitionListener):
    """Delivers the delayed records of all partitions that this broker leads."""

    def __init__(self, clock: Clock) -> None:
        self.lateness = Lateness()
        self._clock = clock
        self._cache = HeldCache()
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
        found = await asyncio.to_thread(
            lambda: [find(fold, held, offset, wait=True) for offset in offsets if offset >= 0]
        )
        return [record for record in found if record is not None]

    def of(self, partition: Partition) -> DelayedPartition | None:
        """What is delayed of a partition, if it is led here."""
        return self._led.get(partition)

    def intake(
        self, partition: Partition, batch: memoryview, acks: int
    ) -> "PartitionIntake | None":
        """What is to become of a producer's batch; None: it is to be appended as it is.

        Raises RecordsRefusedError, and ApiError as :meth:`Partition.append` does.
        """
        delayed = self._led.get(partition)
        if delayed is None or partition.error:
            return None
        now_ms = self._clock.time_ms()
        header = partition.log.check(batch)
        if not may_order(batch, header):
            return None
        known = partition.log.repeated(header)
        if known is not None:
            return PartitionIntake(delayed, None, acks, known)
        taken = take_in(batch, header, partition.log.config, delayed.fold, now_ms)
        return None if taken is None else PartitionIntake(delayed, taken, acks, None)

    def may_hold(self, batch: memoryview) -> bool:
        """Whether a batch has to be looked at closely: compressed, damaged, or with a header."""
        header = plain_header(batch)
        return header is None or header.attributes != 0 or may_order(batch, header)

    def leading(self, partition: Partition, leader_epoch: int) -> None:  # noqa: ARG002
        """See :class:`PartitionListener`."""
        if isinstance(partition.log.fold, DelayFold):
            known = self._led.get(partition)
            if known is None:
                known = DelayedPartition(partition, self._clock, self.lateness, self._cache)
                self._led[partition] = known
            known.wake()

    def stepping_down(self, partition: Partition, code: ErrorCode) -> None:  # noqa: ARG002
        """See :class:`PartitionListener`."""
        known = self._led.pop(partition, None)
        if known is not None:
            known.stop()

    def closed(self, partition: Partition) -> None:
        """See :class:`PartitionListener`."""
        self.stepping_down(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def watch_clock(self) -> None:
        """Say when somebody set the clock, and go by the new time."""
        offset_s = self._clock.time_ms() / 1000 - self._clock.monotonic()
        jump_s = offset_s - self._offset_s
        if abs(jump_s) >= _JUMP_S:
            self._offset_s = offset_s
            pending = sum(one.fold.pending for one in self)
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
            if one.fold.pending:
                try:
                    one.carry_before(await _to_be_cleared(one))
                except ApiError as error:
                    _log.warning("%s: %s", one.partition, error)

    async def clear_before(self, partition: Partition, offset: int) -> None:
        """Carry what lies before ``offset``, where the log is to start. Raises ApiError."""
        delayed = self._led.get(partition)
        if delayed is not None:
            needed_from = delayed.fold.needed_from
            if needed_from is not None and needed_from < offset:
                try:
                    await delayed.carry_all_before(offset)
                except OSError as error:
                    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

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
    if too_much > too_old and 2 * await one.count_before(too_much) <= too_much - one.fold.bound:
        return too_much
    return too_old
