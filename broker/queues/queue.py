"""The records of one partition that is led here, as one share group takes them."""

import asyncio
import math
from collections.abc import Sequence
from typing import Final

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode
from qbus.records.control import SharedResult

from ..delay.fold import DelayFold
from ..partition.acknowledgement import Acknowledgement
from ..partition.partition import Partition
from .alarm import Alarm
from .batches import StoredBatch
from .dead_lettering import DeadLettering
from .fold import GroupProgress
from .gate import Gate
from .giving import Giver
from .journal import Told
from .led import LedPartition
from .outcomes import Settled, SettledListeners, read_result
from .settings import READ_COMMITTED, GroupSettings
from .settlement import Finishing, Given, Settlement, sum_of
from .source import Missing, RecordSource, retrieve
from .state import QueueState
from .taking import BatchesTaken, Offer, RecordsTaken
from .types import (
    AckRange,
    QueueCounts,
    QueueDescription,
    Ranges,
    RecordState,
    RecordStatus,
    TakenBatches,
    Waiter,
)
from .waiters import WaitingLine
from .writer import QueueWriter

_OVERHEAD: Final = 512  # bytes that a result takes besides its own


class ShareQueue:
    """The records of one partition, as one share group takes them.

    For the event loop. It ends with the broker's leadership of the partition; what others wait for
    then fails with ApiError.
    """

    def __init__(self, led: LedPartition, group: str, settings: GroupSettings) -> None:
        self.partition = led.partition
        self.group = group
        self._led = led
        self._clock = led.clock
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._source = RecordSource(str(self), self.partition, led.batches, led.loading, led.clock)
        self._source.set_filter(settings.filter)
        self._source.set_isolation(is_committed=settings.isolation == READ_COMMITTED)
        self._settled = SettledListeners()
        self._writer = QueueWriter(self, group, led.journal, self._settled)
        self._giver = Giver(self._source, led.clock, self._writer.store, self._writer.write)
        self._state: QueueState | None = None
        self._progress: GroupProgress | None = None
        self._starting = asyncio.Lock()
        self._closed: ErrorCode | None = None
        self._line = WaitingLine()
        self._alarm = Alarm(led.clock, self.look)
        self._trimmed_to = -1  # the log's start before which all is done, or about to be
        self._gate = Gate(
            str(self), led.partition, led.clock, self._alarm, self._length, self._try_out
        )
        self.used_at = -math.inf
        """When a member last took records, waited for any or acknowledged some; in seconds.

        Monotonic; -inf: none has since this broker leads the partition.
        """
        self._counts_before = QueueCounts()
        self._messages_before = self.partition.messages_in
        self.dead_lettering = DeadLettering(self, led.dead_letters)
        self.begin()

    def __str__(self) -> str:
        return f"{self.partition}, group {self.group}"

    # What it is

    @property
    def clock(self) -> Clock:
        """The broker's clock."""
        return self._clock

    @property
    def settings(self) -> GroupSettings:
        """How the group takes records."""
        return self._settings

    def configure(self, settings: GroupSettings) -> None:
        """Go by other settings from now on."""
        if settings is self._settings or settings == self._settings:
            return
        if settings.filter != self._settings.filter:
            self._source.set_filter(settings.filter)
        self._source.set_isolation(is_committed=settings.isolation == READ_COMMITTED)
        self._settings = settings
        if self._state is not None:
            self._state.settings = settings

    def begin(self) -> None:
        """Begin, or begin anew, with what the log says of the group, if it says anything."""
        progress = self._led.progress(self.group)
        if progress is None or progress is self._progress:
            return
        if self._state is not None:
            self._counts_before = self.counts
        self._progress = progress
        log_start = self.partition.log.log_start_offset
        self._state = QueueState(progress, self._settings, log_start, self._clock.time_ms())
        self._move()
        self._schedule()
        self._notify()

    @property
    def state(self) -> QueueState | None:
        """Who has what; None: the group has not begun here."""
        return self._state

    @property
    def start_offset(self) -> int:
        """Everything before it is done; 0 as long as the group has not begun here."""
        return 0 if self._progress is None else self._progress.start

    @property
    def length(self) -> int:
        """How many records could be given out at once."""
        state = self._state
        return 0 if state is None else state.ready.size + self._source.fresh_count(state)

    @property
    def in_flight(self) -> int:
        """How many records members have."""
        return 0 if self._state is None else self._state.in_flight

    @property
    def delayed(self) -> int:
        """How many records wait for a time: those that came back, and those that are not due."""
        returned = 0 if self._state is None else self._state.waiting.size
        return returned + not_due(self.partition)

    @property
    def given_up(self) -> int:
        """How many records wait for the dead letter topic."""
        return 0 if self._state is None else self._state.given_up

    @property
    def counts(self) -> QueueCounts:
        """What was done since this broker leads the partition."""
        if self._state is None:
            return self._counts_before
        return sum_of(self._counts_before, self._state.counts)

    @property
    def records_in(self) -> int:
        """How many records came into the partition since the queue is used here."""
        return self.partition.messages_in - self._messages_before

    @property
    def oldest_ms(self) -> int:
        """How long the oldest record that is not done has been there, by its timestamp.

        -1: there is none, or it is not known yet: what is on disk is read in the background.
        """
        state = self._state
        timestamp = None if state is None else self._source.oldest_timestamp(state)
        return -1 if timestamp is None else max(self._clock.time_ms() - timestamp, 0)

    def describe(self) -> QueueDescription:
        """What it is in numbers."""
        return QueueDescription(
            self.start_offset,
            self.length,
            self.in_flight,
            self.delayed,
            self.oldest_ms,
            self.counts,
            self.given_up,
        )

    # Beginning

    def _check(self) -> QueueState:
        """The state. Raises ApiError where the partition is not led here, or the group unknown."""
        self._check_open()
        state = self._state
        if state is None or self._progress is not self._led.progress(self.group):
            self.begin()
            state = self._state
            if state is None:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{self}: it has not begun")
        return state

    def _check_open(self) -> None:
        """Raise ApiError where the partition is not led here."""
        if self._closed is not None:
            raise ApiError(self._closed)
        if self.partition.error:
            raise ApiError(self.partition.error)

    @property
    def is_started(self) -> bool:
        """Whether the group has begun in the partition, which is led here, for good."""
        progress = self._progress
        return (
            progress is not None
            and self._closed is None
            and not self.partition.error
            and progress is self._led.progress(self.group)
            and progress.begun_at < self.partition.high_watermark
        )

    @property
    def is_current(self) -> bool:
        """Whether it is so, in the log that the partition has now, which takes control records."""
        log = self.partition.log
        is_of_log = self._source.log is log
        return is_of_log and not log.config.qbus_mirror_source and self.is_started

    async def started(self) -> None:
        """Wait until the group has begun in the partition, for good. Raises ApiError."""
        self._check_open()
        if self._progress is None or self._led.progress(self.group) is None:
            async with self._starting:
                if self._closed is None and self._led.progress(self.group) is None:
                    await self._led.find_start(self.group, self._settings)
                self.begin()
        progress = self._progress
        if progress is not None and progress.begun_at >= self.partition.high_watermark:
            waiter = Acknowledgement()
            self.partition.when_acknowledged(progress.begun_at + 1, waiter, None)
            if await waiter.wait():
                self._check_open()
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # Taking

    async def take(self, offer: Offer) -> RecordsTaken:
        """Give out what ``offer`` asks for; no records: there are none now.

        Raises ApiError, OSError.
        """
        await self.started()
        taken = RecordsTaken(offer)
        while True:
            try:
                if self._has_taken(self._check(), taken):
                    await taken.stored()
                    return taken
            except Missing as missing:
                await self._source.load(missing)
            else:
                await asyncio.sleep(0)

    def take_now(self, offer: Offer) -> RecordsTaken | None:
        """Give out records that are at hand as :meth:`take` does; it may find none.

        None: something has to be waited for, which :meth:`take` does. What is given out once may
        be used only once it is :meth:`RecordsTaken.stored`. Raises ApiError, OSError.
        """
        state = self._state
        if state is None or not self.is_started:
            return None
        taken = RecordsTaken(offer)
        try:
            return taken if self._has_taken(state, taken) else None
        except Missing:
            return None

    def _has_taken(self, state: QueueState, taken: RecordsTaken) -> bool:
        """Take what is there; false: others should have a turn before there is more to look at.

        Raises Missing, ApiError, OSError where nothing was taken.
        """
        self._trim(state)
        if not self._gate.is_open:
            self._took()
            return True
        try:
            if self._giver.take_records(state, taken):
                return False
        except (Missing, ApiError, OSError):
            if not taken.records:
                raise
        self._took()
        return True

    async def take_batches(
        self,
        member: str,
        *,
        max_records: int,
        max_bytes: int,
        min_one: bool = True,
        exact: bool = True,
    ) -> TakenBatches:
        """Give out records to ``member`` as they lie in the log; none: there is nothing now.

        At most ``max_bytes`` of batches, but with ``min_one`` at least one batch. At most
        ``max_records`` are given out; unless ``exact``, the last batch is given out whole even so.
        Raises ApiError, OSError.
        """
        await self.started()
        taking = BatchesTaken(member, max_records, max_bytes, min_one, exact)
        while True:
            state = self._check()
            self._trim(state)
            if not taking.acquired and not self._gate.is_open:
                break
            try:
                self._giver.take_batches(state, taking)
            except Missing as missing:
                if not taking.acquired:
                    await self._source.load(missing)
                    continue
            except (ApiError, OSError):
                if not taking.acquired:
                    raise
            break
        self._took()
        if taking.once:
            await self._done_once(taking)
        return taking.result()

    async def _done_once(self, taking: BatchesTaken) -> None:
        """Wait until what is given out once is done for good. Raises ApiError if nothing is."""
        outcomes = await asyncio.gather(
            *(one.acknowledged for one in taking.once), return_exceptions=True
        )
        state = self._check()
        for one, outcome in zip(taking.once, outcomes, strict=True):
            if outcome is None:
                state.may_acknowledge(one.at, taking.member, self._now_ms)
            else:
                taking.leave_out(one.at)

    def _length(self) -> int:
        return self.length

    def _try_out(self) -> None:
        """Find out whether anything can be stored."""
        self._writer.try_out(self._on_tried)

    def _on_tried(self, error: ApiError | None) -> None:
        if error is None:
            self._gate.stored()
            self._notify()
        else:
            self._gate.failed(error)
        self._schedule()

    def _trim(self, state: QueueState) -> None:
        """Finish what retention has taken."""
        log_start = self.partition.log.log_start_offset
        if log_start > state.progress.start and log_start != self._trimmed_to:
            settlement = state.trim(log_start)
            if settlement is not None:
                self._trimmed_to = log_start
                self._writer.store(state, settlement)

    def give_up_before(self, offset: int) -> None:
        """Finish what lies before ``offset``, whoever has it."""
        settlement = None if self._state is None else self._state.trim(offset)
        if self._state is not None and settlement is not None:
            self._writer.store(self._state, settlement)

    def _took(self) -> None:
        """Go on after somebody took records, or found none."""
        self.used_at = self._clock.monotonic()
        self._line.came()
        if self._state is not None:
            left_over = self._state.left_over()
            if left_over is not None:
                self._writer.store(self._state, left_over)
        if len(self._line):
            self._notify()
        self._schedule()

    # What becomes of them

    async def acknowledge(self, member: str, ranges: Sequence[AckRange]) -> None:
        """Take in what ``member`` says of records that it has: all of it or nothing.

        Stored for good on return. Raises ApiError: INVALID_RECORD_STATE where it does not have one
        of them, INVALID_REQUEST where ranges overlap, and as :meth:`Partition.append_own` does.
        """
        state = self._check()
        self.used_at = self._clock.monotonic()
        settlement = state.acknowledge(member, list(ranges), self._now_ms, self._clock.time_ms())
        self._schedule()
        if settlement.changes:
            await self._writer.write(state, settlement)

    async def settle(self, offset: int, result: bytes | None = None) -> bool:
        """Finish a record, whoever has it; False: it is done already, or there is none.

        ``result``: what came of it. Stored for good on return. Raises ApiError: MESSAGE_TOO_LARGE
        where a record as large as ``result`` would be refused.
        """
        state = self._check()
        most = self.partition.log.config.max_message_bytes - _OVERHEAD
        if result is not None and len(result) > most:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE, f"a result of {len(result)} bytes, at most {most}"
            )
        if not self._exists(offset):
            return False
        settlement = state.settle(offset)
        if settlement is None:
            return False
        body = None if result is None else SharedResult(self.group, offset, result)
        await self._writer.write(state, settlement, body)
        return True

    def begin_to_settle(self, ranges: Ranges, waiter: Told, token: object) -> Ranges:
        """Finish records as :meth:`settle` does; those that are not done already, and are there.

        ``waiter`` is told once, later, when these are done for good, or will not be; never, if
        there are none. What is finished in one turn of the event loop is stored as one. Raises
        ApiError.
        """
        state = self._check()
        finished = self._writer.finished(state)
        begun: list[tuple[int, int]] = []
        try:
            for first, last in ranges:
                self._finish(state, first, last, finished.finishing, begun)
        finally:  # where a disk fails at one range, those before it are stored all the same
            if begun:
                self._writer.finish(finished)
        if begun:
            finished.told.append((waiter, token))
        return begun

    def _finish(
        self,
        state: QueueState,
        first: int,
        last: int,
        finishing: Finishing,
        begun: list[tuple[int, int]],
    ) -> None:
        """Begin to finish the records of a range; ``begun`` gets those that it was begun with."""
        partition = self.partition
        if (
            partition.log.log_start_offset <= first
            and last < partition.high_watermark
            and state.finish_taken(first, last, finishing)
        ):
            begun.append((first, last))
            return
        there = [offset for offset in range(first, last + 1) if self._exists(offset)]
        begun += [(offset, offset) for offset in there if state.finish(offset, finishing)]

    async def put_back(self, offset: int, *, nack: bool, delay_ms: int = 0) -> bool:
        """Have a record given out again that somebody has, or that waits for a time.

        After ``delay_ms``; -1: as the group's back-off says. ``nack``: as the work failed; else
        that counts as a time-out. False: it is not so. Stored for good on return. Raises ApiError.
        """
        state = self._check()
        wall_ms = self._clock.time_ms()
        settlement = state.put_back(offset, nack=nack, delay_ms=delay_ms, wall_ms=wall_ms)
        if settlement is None:
            return False
        await self._writer.write(state, settlement)
        return True

    async def hold(self, offset: int, lock_ms: int = 0) -> bool:
        """Give a record that nobody has to nobody until its retry, or :meth:`put_back`.

        False: somebody has it, it is done, or there is none. Not stored. Raises ApiError.
        """
        state = self._check()
        until_ms = self._now_ms + (lock_ms or self._settings.lock_ms)
        is_held = self._exists(offset) and state.hold(offset, until_ms)
        self._schedule()
        return is_held

    def extend(self, offset: int, lock_ms: int) -> bool:
        """Have nobody else get a record for ``lock_ms`` from now on.

        False: it is done, or there is none. Raises ApiError.
        """
        state = self._check()
        is_extended = self._exists(offset) and state.extend(offset, self._now_ms + lock_ms)
        self._schedule()
        return is_extended

    async def release_member(self, member: str) -> None:
        """Have what ``member`` has given out again: its session is over.

        That the records were given out counts. Stored for good on return. Raises ApiError.
        """
        if self._state is not None and self._closed is None:
            settlement = self._state.release_member(member, self._clock.time_ms())
            if settlement.changes:
                await self._writer.write(self._state, settlement)

    def state_of(self, offset: int) -> RecordState:
        """Where a record stands."""
        state = self._state
        if state is None or not self._exists(offset):
            return RecordState(RecordStatus.UNKNOWN)
        return state.state_of(offset, self._now_ms, self._clock.time_ms())

    def _exists(self, offset: int) -> bool:
        """Whether there is a record at ``offset``, as far as that is known without reading it."""
        log = self.partition.log
        if not log.log_start_offset <= offset < self.partition.high_watermark:
            return False
        if self._state is not None and self._state.knows(offset):
            return True
        return log.hidden_end(offset, wait=True) == offset

    @property
    def _now_ms(self) -> int:
        """The time of a clock that never goes back, in milliseconds."""
        return int(self._clock.monotonic() * 1000)

    # Results

    async def result(self, offset: int) -> bytes | None:
        """What came of a record that is done, if that was said and is still in the log.

        Raises ApiError, OSError.
        """
        place = None if self._progress is None else self._progress.results.get(offset)
        if place is None:
            return None
        return await asyncio.to_thread(read_result, self.partition.log, place)

    def when_settled(self, offset: int, callback: Settled) -> None:
        """Have ``callback`` called once the record is done, for good; at once if it is.

        It is called with false when the partition is not led here any more, or the group deleted.
        """
        if self._closed is not None:
            callback(False)
        elif self._progress is not None and self._progress.is_done(offset):
            callback(True)
        else:
            self._settled.add(offset, callback)

    def forget_settled(self, offset: int, callback: Settled) -> None:
        """Do not call ``callback``."""
        self._settled.forget(offset, callback)

    # Storing

    def was_stored(self, state: QueueState, settlement: Settlement) -> bool:
        """See :class:`~.writer.Owner`."""
        state.stored(settlement, self._clock.time_ms())
        self._gate.stored()
        return state is self._state

    def went_on(self) -> None:
        """See :class:`~.writer.Owner`."""
        self._move()
        self._notify()
        self._schedule()

    def was_not_stored(self, state: QueueState, settlement: Settlement, error: ApiError) -> None:
        """See :class:`~.writer.Owner`."""
        state.failed(settlement)
        self._trimmed_to = -1
        self._gate.failed(error)
        self._schedule()

    def archive_moved(
        self, given: Sequence[Given], *, is_stored: bool
    ) -> "asyncio.Future[None] | None":
        """Finish records that were moved, or dropped; None: there is nothing left of them."""
        state = self._state
        if state is None or self._closed is not None:
            return None
        acknowledged = None
        for first, last, _ in given:
            for span in state.leases.spans(first, last):
                if state.is_moving(span.first):
                    settlement = state.archive_moved(span.first, span.last, is_stored=is_stored)
                    acknowledged = self._writer.write(state, settlement)
                    acknowledged.add_done_callback(retrieve)
        return acknowledged

    def _move(self) -> None:
        """Have moved what is given up."""
        state = self._state
        if state is not None and state.moving:
            moving, state.moving = state.moving, []
            self.dead_lettering.add(moving)

    def is_moving(self, offset: int) -> bool:
        """Whether a record is given up, and still to be moved."""
        return self._state is not None and self._state.is_moving(offset)

    async def batch_of(self, offset: int) -> StoredBatch | None:
        """The batch that has the record at ``offset``; None: it is gone.

        Raises ApiError, OSError.
        """
        while True:
            try:
                stretch = self._source.stretch_at(offset)
            except Missing as missing:
                await self._source.load(missing)
                continue
            return None if stretch is None else stretch.batch

    # Waiting

    def wait(self, waiter: Waiter, *, again: bool = False) -> None:
        """Have ``waiter`` called when there is something for it, after those who wait already.

        ``again``: it was called, and found nothing: it is the first of those who wait.
        """
        self.used_at = self._clock.monotonic()
        self._line.add(waiter, again=again)
        self._led.watch(self)
        if not again:
            self._loop.call_soon(self._notify)

    def forget(self, waiter: Waiter) -> None:
        """Never call ``waiter``."""
        self._line.forget(waiter)
        self._notify()

    @property
    def waiting(self) -> int:
        """How many wait for records."""
        return len(self._line)

    @property
    def _available(self) -> int:
        state = self._state
        if state is None or not state.has_room:
            return 0
        count = state.ready.size if state.is_clogged else self.length
        return count if count and self._gate.is_open else 0

    def _notify(self) -> None:
        """Call as many of those who wait as there are records for."""
        if not len(self._line):
            return
        if self._closed is not None:
            self._line.call_all(self)
            return
        self._line.call(self, self._available, self._loop.time())
        if self._line.promised and len(self._line):
            self._schedule()

    def advanced(self) -> bool:
        """Records may have become visible; whether anybody still waits for more."""
        self._notify()
        return len(self._line) > 0

    # Time

    def _schedule(self) -> None:
        """Look again when the next lock runs out, or the next record's time has come."""
        state = self._state
        if state is not None and self._closed is None:
            self._alarm.set(
                state.next_expiry(),
                state.next_wakeup(),
                has_promised=self._line.promised > 0 and len(self._line) > 0,
            )

    def look(self) -> None:
        """Do what the time asks for, and wait again. The timer calls it."""
        self._alarm.stop()
        state = self._state
        if state is None or self._closed is not None:
            return
        wall_ms = self._clock.time_ms()
        settlement = state.expire(self._now_ms, wall_ms)
        if settlement.changes:
            self._writer.store(state, settlement)
        state.wake(wall_ms)
        self._line.lose_patience(self._loop.time())
        self._notify()
        self._schedule()

    # The end

    def close(self, code: ErrorCode) -> None:
        """Give out nothing any more: what waits, and what comes, gets ``code``."""
        if self._closed is not None:
            return
        self._closed = code
        self.dead_lettering.stop()
        self._alarm.stop()
        self._notify()
        self._settled.close()

    @property
    def is_closed(self) -> bool:
        """Whether it gives out nothing any more."""
        return self._closed is not None


def not_due(partition: Partition) -> int:
    """How many delayed records a partition holds back, for every group."""
    fold = partition.log.fold.part(DelayFold)
    return 0 if fold is None else fold.pending
