"""One partition that is led here: delivering what is due, carrying what retention would take.

The copy of another cluster's partition is *inert*: its source delivers, carries and gives up, and
the copy gets what it wrote. When the copy becomes a topic of its own, what the source had not
delivered by then is delivered here.
"""

import asyncio
import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final, Protocol

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode, QbusError

from ..partition.partition import Partition
from .carrying import all_carried, lying_before, read_lying, to_carry
from .delivery import MOST_BYTES, MOST_RECORDS, Due, read_due, still_held, to_bury, to_deliver
from .fold import DelayFold
from .held import HeldCache, HeldRecord, HeldRecords, NearRecords
from .schedule import NEAR_MS, Held

_log = logging.getLogger(__name__)

TICK_S: Final = 0.005
_LONGEST_S: Final = 0.5  # between two looks at the clock, which may be set
_RETRY_S: Final = 1.0
_WARN_S: Final = 10.0
_PASSES: Final = 20
_AT_ONCE: Final = 100_000  # entries that are looked through without a pause
_SPREAD: Final = 5_000  # records brought near at a time
_HORIZON_MS: Final = 10_000  # how far ahead records are read at most
_LEAST_AHEAD_MS: Final = 2_000  # and at least
_MOST_WAITING: Final = 5_000  # that others, which are due behind them, do not wait for
_LATE_MS: Final = (5, 10, 20, 50, 100, 500, 1_000, 10_000, 60_000)


class DeadLetterTopics(Protocol):
    """Stores batches in topics, wherever their partitions are led."""

    async def write(self, topic: str, batch: bytearray) -> None:
        """Store a batch on all in-sync replicas, at least once. Raises QbusError."""


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
        self,
        partition: Partition,
        clock: Clock,
        lateness: Lateness,
        cache: HeldCache,
        reading_turn: asyncio.Lock,
        dead_letters: DeadLetterTopics,
    ) -> None:
        """``reading_turn``: held by the one of all partitions that reads ahead.

        ``dead_letters``: takes what comes too late.
        """
        self._dead_letters = dead_letters
        self._burying: asyncio.Task[None] | None = None
        self._dead: dict[int, HeldRecord] = {}  # by where they lie
        self._reading_turn = reading_turn
        self.partition = partition
        self._cache = cache
        self._clock = clock
        self._lateness = lateness
        self._held = HeldRecords(partition.log, cache)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None
        self._carrying: asyncio.Task[None] | None = None
        self._reading_ahead: asyncio.Task[None] | None = None
        self._read_up_to = 0  # the small slot of the schedule before which records were read ahead
        self._is_stopped = False
        self._was_inert = False
        self._warned_at = float("-inf")
        self._said_dead_at = float("-inf")
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

    @property
    def is_inert(self) -> bool:
        """Whether it is a copy of another cluster's partition, where all this is done."""
        return bool(self.partition.log.config.qbus_mirror_source)

    def wake(self) -> None:
        """Look again when the next record is due: what is held back, or the topic, has changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_stopped or self._reading is not None:
            return
        if self.is_inert:
            self._was_inert = True
            return
        if self._was_inert:
            self._was_inert = False
            self._say_what_is_taken_over()
        next_due = self.fold.schedule.next_due()
        if next_due is not None:
            wait_s = (next_due - self._clock.time_ms()) / 1000
            self._wait(min(max(wait_s, TICK_S), _LONGEST_S))

    def _say_what_is_taken_over(self) -> None:
        count = self.fold.pending
        if count:
            source = self.partition.log.config.qbus_mirror_former_source
            _log.info(
                "%s: no copy of a topic of %s any more: takes over %d delayed records that were not"
                " delivered there",
                self.partition,
                source,
                count,
            )

    def _wait(self, seconds: float) -> None:
        if not self._is_stopped:
            self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        schedule, now_ms = self.fold.schedule, self._clock.time_ms()
        if schedule.advance(now_ms, _SPREAD, ahead=1):
            self._wait(TICK_S / 5)
            return
        is_spreading = schedule.advance(now_ms, _SPREAD)
        next_due = schedule.next_due()
        self.held.pass_by(next_due)
        if next_due is not None and next_due < now_ms + _HORIZON_MS:
            self._read_ahead(now_ms)
        if is_spreading and next_due is not None and next_due > now_ms:
            self._wait(TICK_S)
            return
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
            if self._dead or self._unreadable:  # which are due, and wait
                self._wait(_RETRY_S / 10)
            else:
                self.wake()

    def deliver(self) -> int:
        """Deliver what is due; how many records. Does not wait for a disk.

        Raises BlockingIOError where it would, ApiError as :meth:`Partition.append_own` does.
        """
        now_ms = self._clock.time_ms()
        return self._append(read_due(self.held, self._entries(now_ms), now_ms, wait=False))

    def _read_ahead(self, now_ms: int) -> None:
        """Have the records read that are due soon, if that is not done or under way."""
        if self._reading_ahead is None and self._read_up_to * NEAR_MS < now_ms + _LEAST_AHEAD_MS:
            self._reading_ahead = self._loop.create_task(self._gather(now_ms))

    async def _gather(self, now_ms: int) -> None:
        try:
            async with self._reading_turn:
                held = self.held
                if not held.has_room:
                    return
                schedule, end = self.fold.schedule, (now_ms + _HORIZON_MS) // NEAR_MS
                offsets: list[int] = []
                for key in schedule.near_keys(self._read_up_to, end):
                    offsets += schedule.offsets_at(key)
                    if len(offsets) >= held.window:
                        end = key + 1
                        break
                near = NearRecords(end * NEAR_MS)
                await self._gather_into(near, sorted(offsets))
                self._read_up_to = end
        except OSError as error:
            _log.warning("%s: delayed records are not read ahead: %s", self.partition, error)
        finally:
            self._reading_ahead = None

    async def _gather_into(self, near: NearRecords, offsets: list[int]) -> None:
        """Read the records at ``offsets`` bit by bit, so that what is due meanwhile is not late."""
        at, held = 0, self.held
        while at < len(offsets) and not self._is_stopped:
            at = await asyncio.to_thread(held.gather, offsets, at, near)
            await asyncio.sleep(TICK_S / 5)
        self._keep(near, held)

    def _keep(self, near: NearRecords, held: HeldRecords) -> None:
        """Keep what was read of a log, unless that is another one by now."""
        if near.records and not self._is_stopped and held is self._held:
            held.keep(near)

    async def _deliver_from_disk(self) -> None:
        try:
            first = self.fold.schedule.next_due()
            if self._reading_ahead and first is not None and first >= self._read_up_to * NEAR_MS:
                await self._reading_ahead  # which reads just that
            now_ms = self._clock.time_ms()
            entries, held = self._entries(now_ms), self.held
            near = NearRecords(entries[-1].due + 1 if entries else 0)
            offsets = sorted(entry.offset for entry in entries)
            await asyncio.to_thread(held.bring, offsets, near)
            self._keep(near, held)
            due = await asyncio.to_thread(read_due, held, entries, now_ms, wait=True)
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
        """What is due, but for what could not be read a moment ago, and what is being buried."""
        skipped, dead = self._unreadable, self._dead
        if skipped and self._clock.monotonic() - self._unreadable_since >= _WARN_S:
            skipped.clear()
        waiting = len(skipped) + len(dead)
        entries = self.fold.schedule.due(now_ms, MOST_RECORDS + min(waiting, _MOST_WAITING))
        if not waiting:
            return entries
        return [one for one in entries if one.offset not in skipped and one.offset not in dead]

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
        topic = self.partition.log.config.qbus_delay_dead_letter_topic
        if due.expired and topic:
            self._bury(topic, due.expired)
            due = due._replace(expired=[])
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

    # What comes too late, where there is a topic for it

    def _bury(self, topic: str, records: list[HeldRecord]) -> None:
        self._dead.update((record.offset, record) for record in records)
        if self._burying is None and not self._is_stopped:
            self._burying = self._loop.create_task(self._bury_all(topic))

    async def _bury_all(self, topic: str) -> None:
        """Store what comes too late in ``topic``, and then give it up here: at least once each."""
        try:
            while self._dead and not self._is_stopped:
                taken = list(islice(self._dead.values(), MOST_RECORDS))
                records = still_held(Due([], taken, []), self.fold).expired
                if await self._try_to_bury(topic, records):
                    for record in taken:
                        del self._dead[record.offset]
        finally:
            self._burying = None
            self.wake()

    async def _try_to_bury(self, topic: str, records: list[HeldRecord]) -> bool:
        partition = self.partition
        try:
            for part in _parts(records):
                batch = to_bury(part, partition.topic, partition.index)
                await self._dead_letters.write(topic, batch)
                due = still_held(Due([], part, []), self.fold)
                if due and not self._is_stopped:
                    now_ms = self._clock.time_ms()
                    partition.append_own(to_deliver(due, partition.log.config, now_ms), 0)
        except (QbusError, OSError) as error:
            now = self._clock.monotonic()
            if now - self._said_dead_at >= _WARN_S:
                self._said_dead_at = now
                _log.warning(
                    "%s: %d delayed records were due too long ago, and wait for their dead letter"
                    " topic %s: %s",
                    partition,
                    len(self._dead),
                    topic,
                    error,
                )
            await asyncio.sleep(_RETRY_S)
            return False
        if records:
            count = len(records)
            _log.warning(
                "%s: %d delayed records were due too long ago: now in %s", partition, count, topic
            )
        return True

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


def _parts(records: list[HeldRecord]) -> Iterator[list[HeldRecord]]:
    """``records`` in batches of about ``MOST_BYTES``."""
    part: list[HeldRecord] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if size >= MOST_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
