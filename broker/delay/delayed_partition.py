"""One partition that is led here: its delayed records become visible when they are due.

The copy of another cluster's partition is *inert*: its source delivers, carries and gives up, and
the copy gets what it wrote. When the copy becomes a topic of its own, what the source had not
delivered by then is delivered here.
"""

import asyncio
import logging
from typing import Final

from qbus.clock import Clock
from qbus.errors import ApiError

from ..partition.partition import Partition
from .carrying import Carrying
from .dead_lettering import DeadLettering, DeadLetterTopics
from .delivery import MOST_LOOKED_AT, MOST_RECORDS, Due, read_due, still_held, to_deliver
from .fold import SPREAD, DelayFold
from .held import HeldCache, HeldRecords, NearRecords
from .log_throttle import LogThrottle
from .reading_ahead import ReadAhead
from .schedule import Held

_log = logging.getLogger(__name__)

TICK_S: Final = 0.005
_LONGEST_S: Final = 0.5  # between two looks at the clock, which may be set
_RETRY_S: Final = 1.0
_LOADED: Final = 20_000  # records that are read at once, when so many are due
_UNREADABLE_S: Final = 10.0  # until an unreadable record is tried again
_SPREADING_S: Final = 0.001  # between two parts of what is spread
_STEP_MS: Final = 100  # how far ahead is looked for what is due, where some records wait
_LOOKED_AT_S: Final = 1e-5  # pause for each record that waits: each look goes over all of them
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
    """Delivers the delayed records of one partition that is led here.

    Records that are due too late, and those that cannot be read, *wait*: others are delivered
    meanwhile, as far as they are among the first ``MOST_LOOKED_AT`` that are due.
    """

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

        ``dead_letters``: stores what is due too late.
        """
        self.partition = partition
        self._cache = cache
        self._clock = clock
        self._lateness = lateness
        self._held = HeldRecords(partition.log, cache)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None
        self.read_ahead = ReadAhead(
            partition, clock, reading_turn, lambda: self.held, lambda: self.fold.schedule
        )
        self.dead_lettering = DeadLettering(
            partition, clock, dead_letters, lambda: self.held, self.wake
        )
        self.carrying = Carrying(partition, clock, lambda: self.held, self.wake)
        self._is_stopped = False
        self._is_acting = False  # it was seen not to be inert
        self._was_inert = False
        self._retry_at = float("-inf")  # the loop's time before which nothing is tried again
        self._failures = LogThrottle(clock)
        self._unreadable: set[Held] = set()
        self._unreadable_since = 0.0

    @property
    def fold(self) -> DelayFold:
        """The partition's delayed records."""
        fold = self.partition.log.fold.part(DelayFold)
        assert fold is not None
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

    # When to look

    @property
    def _waiting(self) -> int:
        """How many records are due and wait."""
        return len(self._unreadable) + len(self.dead_lettering)

    def wake(self) -> None:
        """Look again when the next record is due: what is held back, or the topic, has changed."""
        if self._is_stopped or self._reading is not None:
            return
        if self.is_inert:
            self._was_inert, self._is_acting = True, False
            self._cancel_timer()
            return
        if not self._is_acting:
            self._is_acting = True
            self._say_what_is_taken_over()
        if self._waiting:
            self._wait(self._pause_s)
            return
        next_due = self.fold.schedule.next_due()
        if next_due is not None:
            self._wait_until(next_due)

    def _say_what_is_taken_over(self) -> None:
        fold, source = self.fold, self.partition.log.config.qbus_mirror_former_source
        if self._was_inert and fold.pending:
            _log.info(
                "%s: mirror of %s ended: delivers %d records that it had not delivered",
                self.partition,
                source,
                fold.pending,
            )
        self._was_inert = False
        if fold.maybe_missing:
            _log.warning(
                "%s: mirror of %s ended before it had copied all behind a gap that retention had"
                " made: up to %d delayed records may be missing, and are not delivered",
                self.partition,
                source,
                fold.maybe_missing,
            )

    @property
    def _pause_s(self) -> float:
        return TICK_S + self._waiting * _LOOKED_AT_S

    def _wait_until(self, due: int) -> None:
        wait_s = (due - self._clock.time_ms()) / 1000
        self._wait(min(max(wait_s, self._pause_s), _LONGEST_S))

    def _wait(self, seconds: float) -> None:
        """Look after ``seconds``, or before, if that is planned already.

        So those who wake the partition again and again do not put off what is due.
        """
        if self._is_stopped:
            return
        at = max(self._loop.time() + seconds, self._retry_at)
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self.look)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Deliver what is due, and have read what soon will be; then wait. The timer calls it."""
        self._cancel_timer()
        if self._is_stopped or self._reading is not None:
            return
        if self.is_inert:
            self._was_inert, self._is_acting = True, False
            return
        schedule, now_ms = self.fold.schedule, self._clock.time_ms()
        if schedule.advance(now_ms, SPREAD, ahead=1):
            self._wait(_SPREADING_S)
            return
        is_spreading = schedule.advance(now_ms, SPREAD)
        next_due = self._next_due(now_ms)
        self.held.evict_before(next_due)
        if next_due is None:
            return
        self.read_ahead.start(next_due, now_ms)
        if next_due <= now_ms:
            self._try_to_deliver()
        elif is_spreading:
            self._wait(TICK_S)
        else:
            self._wait_until(next_due)

    def _next_due(self, now_ms: int) -> int | None:
        """When the next record is due, but for those that wait. It may also be later than this."""
        if not self._waiting:
            return self.fold.schedule.next_due()
        entries = self._due(now_ms + _STEP_MS)
        return entries[0].due if entries else now_ms + _STEP_MS

    def _due(self, until_ms: int, most: int = MOST_RECORDS) -> list[Held]:
        """The first ``most`` records that are due at ``until_ms``, but for those that wait."""
        skipped, late = self._unreadable, self.dead_lettering
        if skipped and self._clock.monotonic() - self._unreadable_since >= _UNREADABLE_S:
            skipped.clear()
        waiting = self._waiting
        looked_at = min(most + waiting, max(most, MOST_LOOKED_AT))
        entries = self.fold.schedule.due(until_ms, looked_at)
        if not waiting:
            return entries
        return [entry for entry in entries if entry not in skipped and entry not in late]

    # What is due

    def _try_to_deliver(self) -> None:
        try:
            self.deliver()
        except BlockingIOError:
            self._reading = self._loop.create_task(self._read_and_deliver())
        except (ApiError, OSError) as error:
            self._failed(error)
        else:
            self.wake()

    def deliver(self) -> int:
        """Deliver what is due; how many records. Does not wait for a disk.

        Raises BlockingIOError where it would, ApiError as :meth:`Partition.append_own` does.
        """
        now_ms = self._clock.time_ms()
        return self._append(read_due(self.held, self._due(now_ms), now_ms, wait=False))

    async def _read_and_deliver(self) -> None:
        try:
            await self.deliver_from_disk()
        except (ApiError, OSError) as error:
            self._reading = None
            self._failed(error)
        finally:
            self._reading = None
            self.wake()

    async def deliver_from_disk(self) -> None:
        """Deliver what is due, and wait for the disk. Raises ApiError, OSError."""
        next_due = self._next_due(self._clock.time_ms())
        if next_due is not None:
            await self.read_ahead.wait_for(next_due)
        now_ms, held = self._clock.time_ms(), self.held
        await self._load(self._due(now_ms, _LOADED), held)
        entries = self._due(now_ms)
        due = await asyncio.to_thread(read_due, held, entries, now_ms, wait=True)
        if not self._is_stopped:
            self._append(still_held(due, self.fold))

    async def _load(self, entries: list[Held], held: HeldRecords) -> None:
        """Read these records, which are due, into memory: each batch once for many of them."""
        evicted_from = held.make_room()
        if evicted_from is not None:
            self.read_ahead.forget_from(evicted_from)
        near = NearRecords(entries[-1].due + 1 if entries else 0)
        await asyncio.to_thread(held.load, sorted(entry.offset for entry in entries), near)
        if not self._is_stopped and held is self._held:
            held.keep(near)

    def _append(self, due: Due) -> int:
        if due.unreadable:
            self._skip(due.unreadable)
        if due.expired and self.partition.log.config.qbus_delay_dead_letter_topic:
            self.dead_lettering.add(due.expired)
            due = due._replace(expired=[])
        if not due:
            return 0
        now_ms = self._clock.time_ms()
        batches = to_deliver(due, self.partition.log.config, now_ms)
        self.partition.append_own(batches, len(due.records))
        for record in due.records:
            self._lateness.observe(now_ms - record.due)
        if due.lost:
            _log.warning(
                "%s: %d delayed records were damaged and set aside, and are given up, the first of"
                " them at offset %d",
                self.partition,
                len(due.lost),
                due.lost[0].offset,
            )
        if due.expired:
            _log.warning(
                "%s: %d delayed records were due too long ago, and are dropped: qbus-ttl",
                self.partition,
                len(due.expired),
            )
        return len(due.records)

    def _skip(self, unreadable: list[Held]) -> None:
        """Let these records wait, and say so."""
        if not self._unreadable:
            self._unreadable_since = self._clock.monotonic()
            _log.error(
                "%s: %d delayed records are due and cannot be read, the first of them at offset"
                " %d: they wait",
                self.partition,
                len(unreadable),
                unreadable[0].offset,
            )
        self._unreadable.update(unreadable)

    def _failed(self, error: ApiError | OSError) -> None:
        if self._failures.allows():
            count = len(self.fold.schedule.due(self._clock.time_ms(), MOST_RECORDS))
            _log.warning(
                "%s: %s%d delayed records are due, and wait: %s",
                self.partition,
                "at least " if count == MOST_RECORDS else "",
                count,
                error,
            )
        self._retry_at = self._loop.time() + _RETRY_S
        self._wait(_RETRY_S)

    def stop(self) -> None:
        """Deliver nothing any more: the partition is led elsewhere."""
        self._is_stopped = True
        for part in (self.read_ahead, self.dead_lettering, self.carrying):
            part.stop()
        self._held.close()
        self._cancel_timer()
