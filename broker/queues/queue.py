"""The records of one partition that is led here, as one share group takes them."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol

from qbus.clock import Clock
from qbus.errors import ApiError, CorruptBatch, ErrorCode
from qbus.records import ConsumerRecord
from qbus.records.control import ChangeKind, ControlType, SharedResult, decode_result, iter_control

from ..delay.log_throttle import LogThrottle
from ..partition.partition import Partition
from .batches import LogBatches, StoredBatch, Stretch, expires_at
from .dead_lettering import DeadLettering, DeadLetterTopics
from .filters import TagFilter, parse_filter
from .fold import GroupProgress
from .journal import Entry, Journal
from .settings import GroupSettings
from .state import Given, QueueState, Reason, Settlement
from .types import (
    AckRange,
    AcquiredRange,
    QueueCounts,
    QueueDescription,
    RecordState,
    RecordStatus,
    TakenBatches,
    TakenRecord,
    Waiter,
)

_log = logging.getLogger(__name__)

_TICK_S: Final = 0.005
_LONGEST_S: Final = 0.5  # between two looks at the clock, which may be set
_RETRY_S: Final = 1.0
_PROMISE_S: Final = 1.0  # how long a waiter that was called may take to come
_FEW_GAPS: Final = 200
_AT_ONCE: Final = 256  # records decoded at a time
_RECORD_BYTES: Final = 64  # that a record takes besides its key and value

Settled = Callable[[bool], None]
"""Called when a record is done (true), or when that will not be known here (false)."""


class LedPartition(Protocol):
    """What a queue needs of its partition, which is led here."""

    @property
    def partition(self) -> Partition:
        """The partition."""

    @property
    def clock(self) -> Clock:
        """The broker's clock."""

    @property
    def journal(self) -> Journal:
        """Where its queues store what they do."""

    @property
    def batches(self) -> LogBatches:
        """Its batches."""

    @property
    def loading(self) -> asyncio.Lock:
        """Held by who reads batches from the disk."""

    @property
    def dead_letters(self) -> DeadLetterTopics:
        """Stores what is given up."""

    def progress(self, group: str) -> GroupProgress | None:
        """What a group has done, if the partition knows it."""

    async def find_start(self, group: str, settings: GroupSettings) -> None:
        """Have a group that is new begin where its settings say. Raises ApiError."""


class _Offer(NamedTuple):
    """Whom records are given to, and how many."""

    member: str
    most: int
    max_bytes: int
    lock_ms: Callable[[ConsumerRecord], int] | None
    at_most_once: bool | Callable[[ConsumerRecord], bool]


class _Missing(Exception):  # noqa: N818 - no error: it says what to read
    """What is at ``offset`` must be read from the disk first; ``is_fresh``: and what is behind."""

    def __init__(self, offset: int, *, is_fresh: bool) -> None:
        super().__init__(offset)
        self.offset = offset
        self.is_fresh = is_fresh


class _Once(NamedTuple):
    """A record that may be given out when it is done, at number ``at`` of what is returned."""

    at: int
    acknowledged: "asyncio.Future[None]"


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
        self._filter: TagFilter | None = None
        self._parse_filter()
        self._state: QueueState | None = None
        self._progress: GroupProgress | None = None
        self._starting = asyncio.Lock()
        self._closed: ErrorCode | None = None
        self._waiters: OrderedDict[Waiter, None] = OrderedDict()
        self._promised = 0  # waiters that were called, and are to come
        self._promised_at = 0.0
        self._settled: dict[int, list[Settled]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._planned_for: tuple[int | None, int | None, bool] | None = None  # what it waits for
        self._retry_at = float("-inf")
        self._failures = LogThrottle(self._clock)
        self._complaints = LogThrottle(self._clock, 60.0)
        self._hidden = _HiddenCount(self.partition)
        self._oldest: tuple[int, int] | None = None  # an offset, and its record's timestamp
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
        self._settings = settings
        self._parse_filter()
        if self._state is not None:
            self._state.settings = settings

    def _parse_filter(self) -> None:
        try:
            self._filter = parse_filter(self._settings.filter)
        except ValueError as error:
            _log.warning("%s-%s: %s: it is not applied", self.partition, self.group, error)
            self._filter = None

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
        return 0 if self._state is None else self._state.ready.size + self._fresh_count(self._state)

    @property
    def in_flight(self) -> int:
        """How many records members have."""
        return 0 if self._state is None else self._state.in_flight

    @property
    def delayed(self) -> int:
        """How many records wait for a time."""
        return 0 if self._state is None else self._state.waiting.size

    @property
    def counts(self) -> QueueCounts:
        """What was done since this broker leads the partition."""
        if self._state is None:
            return self._counts_before
        pairs = zip(self._counts_before, self._state.counts, strict=True)
        return QueueCounts(*[a + b for a, b in pairs])

    @property
    def records_in(self) -> int:
        """How many records came into the partition since the queue is used here."""
        return self.partition.messages_in - self._messages_before

    @property
    def oldest_ms(self) -> int:
        """How long the oldest record that is not done has been there, by its timestamp.

        -1: there is none, or it is not known yet: what is on disk is read in the background.
        """
        offset = self._oldest_offset()
        if offset is None:
            return -1
        if self._oldest is None or self._oldest[0] != offset:
            try:
                stretch = self._stretch_at(offset)
            except _Missing as missing:
                with suppress(ApiError):
                    self._read_soon(missing)
            except (ApiError, OSError):
                return -1
            else:
                records = stretch and stretch.batch and stretch.batch.records(offset, offset)
                self._oldest = (offset, records[0].timestamp) if records else None
        if self._oldest is None:
            return -1
        return max(self._clock.time_ms() - self._oldest[1], 0)

    def _read_soon(self, missing: _Missing) -> None:
        if not self._led.loading.locked():
            task = self._loop.create_task(self._load(missing))
            task.add_done_callback(_retrieve)

    def _oldest_offset(self) -> int | None:
        state = self._state
        if state is None:
            return None
        offset = max(state.progress.start, self.partition.log.log_start_offset)
        end, before = self.partition.visible_end, -1
        while before < offset < end:
            before = offset
            for places in (state.voids, state.progress.done):
                found = places.find(offset)
                if found is not None:
                    offset = found.last + 1
            offset = self.partition.log.hidden_end(offset, wait=True)
        return offset if offset < end else None

    def describe(self) -> QueueDescription:
        """What it is in numbers."""
        return QueueDescription(
            self.start_offset,
            self.length,
            self.in_flight,
            self.delayed,
            self.oldest_ms,
            self.counts,
        )

    def _fresh_count(self, state: QueueState) -> int:
        offset, end = state.next_fresh, self.partition.visible_end
        if offset >= end:
            return 0
        free = state.fresh(offset, end - 1)
        if not free:
            return 0
        low, high = free[-1]
        count = high - low + 1 - self._hidden.between(low, high + 1)
        if len(free) > _FEW_GAPS:
            return max(count, 0) + sum(high - low + 1 for low, high in free[:-1])
        hidden_between = self.partition.log.hidden_between
        for low, high in free[:-1]:
            count += high - low + 1 - hidden_between(low, high + 1)
        return max(count, 0)

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
            waiter = _Acknowledgement(self._loop)
            self.partition.when_acknowledged(progress.begun_at + 1, waiter, None)
            if await waiter.future:
                self._check_open()
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # Taking

    async def take_records(
        self,
        member: str,
        most: int,
        *,
        max_bytes: int = 1 << 20,
        lock_ms: Callable[[ConsumerRecord], int] | None = None,
        at_most_once: bool | Callable[[ConsumerRecord], bool] = False,
    ) -> list[TakenRecord]:
        """Give out up to ``most`` records to ``member``; none: there is nothing now.

        Ends beyond ``max_bytes``. ``lock_ms``: for how long a record is given out; 0: as the
        settings say. What is given out ``at_most_once`` is done before that, for good. Raises
        ApiError, OSError.
        """
        await self.started()
        offer = _Offer(member, most, max_bytes, lock_ms, at_most_once)
        taken: list[TakenRecord] = []
        once: list[_Once] = []
        while True:
            state = self._check()
            self._trim(state)
            try:
                self._take_records(state, offer, taken, once)
            except _Missing as missing:
                if not taken:
                    await self._load(missing)
                    continue
            except (CorruptBatch, OSError):
                if not taken:
                    raise
            break
        self._took()
        return await _when_done(taken, once) if once else taken

    def _take_records(
        self, state: QueueState, offer: _Offer, taken: list[TakenRecord], once: list[_Once]
    ) -> None:
        size = 0
        while len(taken) < offer.most and size < offer.max_bytes and state.has_room:
            count = min(offer.most - len(taken), state.room, _AT_ONCE)
            found = self._next(state, count)
            if found is None:
                return
            first, last, batch, is_fresh = found
            for record in batch.records(first, last):
                reason = self._unwanted(batch, record)
                if reason is not None:
                    self._drop(state, record.offset, record.offset, reason)
                    continue
                taken.append(self._give(state, offer, record, len(taken), once))
                size += _size_of(record)
                if size >= offer.max_bytes:
                    last = record.offset
                    break
            if is_fresh:
                state.pass_to(last + 1)

    def _next(self, state: QueueState, most: int) -> tuple[int, int, StoredBatch, bool] | None:
        """What is to be given out next: up to ``most`` records of a batch; whether it is fresh."""
        lowest = state.ready.lowest()
        if lowest is not None:
            stretch = self._stretch_at(lowest.first)
            if stretch is None or stretch.batch is None:
                return None
            last = min(lowest.last, stretch.last, lowest.first + most - 1)
            return lowest.first, last, stretch.batch, False
        found = self._next_fresh(state)
        if found is None:
            return None
        batch, free = found
        low, high = free[0]
        return low, min(high, low + most - 1), batch, True

    def _next_fresh(self, state: QueueState) -> tuple[StoredBatch, list[tuple[int, int]]] | None:
        """The next batch with something fresh, and what of it is; None: there is none now."""
        if state.is_clogged:
            if self._complaints.allows():
                _log.warning(
                    "%s: %d records were given back and are not done: nothing new is given out",
                    self,
                    state.progress.returned.size,
                )
            return None
        while state.next_fresh < self.partition.high_watermark:
            stretch = self._stretch_at(state.next_fresh, is_fresh=True)
            if stretch is None:
                return None
            if stretch.batch is None:
                state.pass_void(state.next_fresh, stretch.last)
                continue
            for low, high in stretch.batch.gaps():
                state.add_void(low, high)
            free = state.fresh(state.next_fresh, stretch.last)
            if free:
                return stretch.batch, free
            state.pass_to(stretch.last + 1)
        return None

    def _stretch_at(self, offset: int, *, is_fresh: bool = False) -> Stretch | None:
        """What is at ``offset``; None: nothing yet. Raises _Missing, ApiError, OSError."""
        batches = self._led.batches
        stretch = batches.at(offset)
        if stretch is not None:
            return stretch
        try:
            if is_fresh:
                found = batches.load(offset, self.partition.high_watermark, wait=False)
            else:
                found = batches.load_batch(offset, wait=False)
        except BlockingIOError:
            raise _Missing(offset, is_fresh=is_fresh) from None
        batches.keep(found)
        return batches.at(offset)

    async def _load(self, missing: _Missing) -> None:
        """Read what is missing. Raises ApiError, OSError."""
        batches, offset = self._led.batches, missing.offset
        async with self._led.loading:
            if batches.at(offset) is not None:
                return
            if missing.is_fresh:
                limit = self.partition.high_watermark
                found = await asyncio.to_thread(batches.load, offset, limit, wait=True)
            else:
                found = await asyncio.to_thread(batches.load_batch, offset, wait=True)
            batches.keep(found)

    def _unwanted(self, batch: StoredBatch, record: ConsumerRecord) -> Reason | None:
        """Why a record is given to nobody, if it is not."""
        if batch.has_ttl:
            end_ms = expires_at(record.headers, record.timestamp)
            if end_ms is not None and end_ms <= self._clock.time_ms():
                return Reason.EXPIRED
        if self._filter is not None and not self._filter.matches(record.headers):
            return Reason.FILTERED
        return None

    def _drop(self, state: QueueState, first: int, last: int, reason: Reason) -> None:
        self._store(state, state.drop(first, last, reason))

    def _give(
        self,
        state: QueueState,
        offer: _Offer,
        record: ConsumerRecord,
        number: int,
        once: list[_Once],
    ) -> TakenRecord:
        offset, at_most_once = record.offset, offer.at_most_once
        if at_most_once is True or (at_most_once is not False and at_most_once(record)):
            settlement, history = state.give_at_most_once(offset)
            once.append(_Once(number, self._write(state, settlement)))
        else:
            lock_ms = offer.lock_ms(record) if offer.lock_ms is not None else 0
            until_ms = self._now_ms + (lock_ms or self._settings.lock_ms)
            history = state.give(offset, offset, offer.member, until_ms)[0].history
        return TakenRecord(
            offset,
            record.timestamp,
            record.key,
            record.value,
            record.headers,
            history.deliveries + 1,
            history.nacks,
            history.timeouts,
        )

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
        taking = _Taking(member, max_records, max_bytes, min_one, exact)
        while True:
            state = self._check()
            self._trim(state)
            try:
                self._take_batches(state, taking)
            except _Missing as missing:
                if not taking.acquired:
                    await self._load(missing)
                    continue
            except (CorruptBatch, OSError):
                if not taking.acquired:
                    raise
            break
        self._took()
        return taking.result()

    def _take_batches(self, state: QueueState, taking: "_Taking") -> None:
        while state.has_room and taking.left > 0:
            lowest = state.ready.lowest()
            if lowest is None:
                break
            stretch = self._stretch_at(lowest.first)
            if stretch is None or stretch.batch is None or not taking.has_room_for(stretch.batch):
                return
            last = min(lowest.last, stretch.last)
            self._give_range(state, taking, stretch.batch, lowest.first, last)
        while state.has_room and taking.left > 0:
            found = self._next_fresh(state)
            if found is None:
                return
            batch, free = found
            if not taking.has_room_for(batch):
                return
            for low, high in free:
                if taking.is_exact and (taking.left <= 0 or not state.has_room):
                    return
                state.pass_to(self._give_range(state, taking, batch, low, high) + 1)

    def _give_range(
        self, state: QueueState, taking: "_Taking", batch: StoredBatch, first: int, last: int
    ) -> int:
        """Give out what is wanted of records, as many as may be; the last one looked at."""
        if taking.is_exact:
            last = min(last, first + min(taking.left, state.room) - 1)
        until_ms = self._now_ms + self._settings.lock_ms
        for low, high, reason in self._runs(batch, first, last):
            if reason is None:
                taking.add(batch, state.give(low, high, taking.member, until_ms))
            else:
                self._drop(state, low, high, reason)
        return last

    def _runs(
        self, batch: StoredBatch, first: int, last: int
    ) -> Iterable[tuple[int, int, Reason | None]]:
        """Neighbouring records that are all wanted, or all not wanted for the same reason."""
        if self._filter is None and not batch.has_ttl:
            return [(first, last, None)]
        runs: list[tuple[int, int, Reason | None]] = []
        for record in batch.records(first, last):
            reason = self._unwanted(batch, record)
            if runs and runs[-1][2] is reason and runs[-1][1] == record.offset - 1:
                runs[-1] = (runs[-1][0], record.offset, reason)
            else:
                runs.append((record.offset, record.offset, reason))
        return runs

    def _trim(self, state: QueueState) -> None:
        """Finish what retention has taken."""
        log_start = self.partition.log.log_start_offset
        if log_start > state.progress.start:
            settlement = state.trim(log_start)
            if settlement is not None:
                self._store(state, settlement)

    def _took(self) -> None:
        """Go on after somebody took records, or found none."""
        self._promised = max(self._promised - 1, 0)
        if self._waiters:
            self._notify()
        self._schedule()

    # What becomes of them

    async def acknowledge(self, member: str, ranges: Sequence[AckRange]) -> None:
        """Take in what ``member`` says of records that it has: all of it or nothing.

        Stored for good on return. Raises ApiError: INVALID_RECORD_STATE where it does not have one
        of them, INVALID_REQUEST where ranges overlap, and as :meth:`Partition.append_own` does.
        """
        state = self._check()
        settlement = state.acknowledge(member, list(ranges), self._now_ms, self._clock.time_ms())
        self._schedule()
        if settlement.changes:
            await self._write(state, settlement)

    async def settle(self, offset: int, result: bytes | None = None) -> bool:
        """Finish a record, whoever has it; False: it is done already, or there is none.

        ``result``: what came of it. Stored for good on return. Raises ApiError.
        """
        state = self._check()
        if not self._exists(offset):
            return False
        settlement = state.settle(offset)
        if settlement is None:
            return False
        body = None if result is None else SharedResult(self.group, offset, result)
        await self._write(state, settlement, body)
        return True

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
        await self._write(state, settlement)
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
                await self._write(self._state, settlement)

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
        return await asyncio.to_thread(self._read_result, place)

    def _read_result(self, place: int) -> bytes | None:
        records = self.partition.log.read_batch(place, wait=True)
        if records is None:
            return None
        with records:
            records.warm()
            batch = records.read()
        for control in iter_control(batch):
            if control.offset == place and control.type is ControlType.RESULT:
                return decode_result(control.value).body
        return None

    def when_settled(self, offset: int, callback: Settled) -> None:
        """Have ``callback`` called once the record is done, for good; at once if it is.

        It is called with false when the partition is not led here any more, or the group deleted.
        """
        if self._closed is not None:
            callback(False)
        elif self._progress is not None and self._progress.is_done(offset):
            callback(True)
        else:
            self._settled.setdefault(offset, []).append(callback)

    def forget_settled(self, offset: int, callback: Settled) -> None:
        """Do not call ``callback``."""
        waiting = self._settled.get(offset)
        if waiting is not None and callback in waiting:
            waiting.remove(callback)
            if not waiting:
                del self._settled[offset]

    def _tell(self, offsets: list[int], acknowledged: "asyncio.Future[None]") -> None:
        is_done = not acknowledged.cancelled() and acknowledged.exception() is None
        for offset in offsets:
            for callback in self._settled.pop(offset, ()):
                callback(is_done)

    # Storing

    def _entry(
        self, state: QueueState, settlement: Settlement, result: SharedResult | None = None
    ) -> Entry:
        entry = Entry(self.group, settlement.changes, result)
        entry.stored = partial(self._stored, state, settlement, entry)
        entry.failed = partial(self._failed, state, settlement)
        return entry

    def _store(self, state: QueueState, settlement: Settlement) -> None:
        """Store what was begun; nobody waits for it."""
        self._led.journal.add(self._entry(state, settlement))

    def _write(
        self, state: QueueState, settlement: Settlement, result: SharedResult | None = None
    ) -> "asyncio.Future[None]":
        """Store what was begun, and return what gets its result when it is for good."""
        return self._led.journal.write(self._entry(state, settlement, result))

    def _stored(self, state: QueueState, settlement: Settlement, entry: Entry) -> None:
        state.stored(settlement, self._clock.time_ms())
        if state is not self._state:
            return
        if self._settled:
            self._tell_when_acknowledged(settlement, entry)
        self._move()
        self._notify()
        self._schedule()

    def _tell_when_acknowledged(self, settlement: Settlement, entry: Entry) -> None:
        offsets = [
            offset
            for offset in self._settled
            if any(
                change.first <= offset <= change.last and change.kind is not ChangeKind.RETURNED
                for change in settlement.changes
            )
        ]
        if offsets:
            if entry.acknowledged is None:
                entry.acknowledged = self._loop.create_future()
            entry.acknowledged.add_done_callback(partial(self._tell, offsets))

    def _failed(self, state: QueueState, settlement: Settlement, error: ApiError) -> None:
        state.failed(settlement)
        if self._failures.allows():
            _log.warning("%s: what was done cannot be stored: %s", self, error)
        self._retry_at = self._loop.time() + _RETRY_S
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
                    acknowledged = self._write(state, settlement)
                    acknowledged.add_done_callback(_retrieve)
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
                stretch = self._stretch_at(offset)
            except _Missing as missing:
                await self._load(missing)
                continue
            return None if stretch is None else stretch.batch

    # Waiting

    def wait(self, waiter: Waiter, *, again: bool = False) -> None:
        """Have ``waiter`` called when there is something for it, after those who wait already.

        ``again``: it was called, and found nothing: it is the first of those who wait.
        """
        self._promised = max(self._promised - 1, 0)
        self._waiters[waiter] = None
        if again:
            self._waiters.move_to_end(waiter, last=False)
        elif self._closed is not None or self._available > self._promised:
            self._loop.call_soon(self._notify)

    def forget(self, waiter: Waiter) -> None:
        """Never call ``waiter``."""
        if waiter in self._waiters:
            del self._waiters[waiter]
        elif self._promised:
            self._promised -= 1
            self._notify()

    @property
    def waiting(self) -> int:
        """How many wait for records."""
        return len(self._waiters)

    @property
    def _available(self) -> int:
        state = self._state
        if state is None or not state.has_room or self._loop.time() < self._retry_at:
            return 0
        return state.ready.size if state.is_clogged else self.length

    def _notify(self) -> None:
        """Call as many of those who wait as there are records for."""
        waiters = self._waiters
        if not waiters:
            return
        is_open = self._closed is None
        count = self._available - self._promised if is_open else len(waiters)
        while count > 0 and waiters:
            waiter, _ = waiters.popitem(last=False)
            self._promised += 1
            self._promised_at = self._loop.time()
            if waiter.ready(self):
                count -= 1
            else:
                self._promised = max(self._promised - 1, 0)
        if self._promised and self._waiters:
            self._schedule()

    def advanced(self) -> None:
        """Records may have become visible."""
        if self._waiters:
            self._notify()

    # Time

    def _schedule(self) -> None:
        """Look again when the next lock runs out, or the next record's time has come."""
        state = self._state
        if state is None or self._closed is not None:
            return
        expiry, wakeup = state.next_expiry(), state.next_wakeup()
        has_promised = self._promised > 0 and len(self._waiters) > 0
        plan = (expiry, wakeup, has_promised)
        if plan == self._planned_for and self._timer is not None:
            return
        self._planned_for = plan
        wait_s = float("inf")
        if expiry is not None:
            wait_s = (expiry - self._now_ms) / 1000
        if wakeup is not None:
            wait_s = min(wait_s, (wakeup - self._clock.time_ms()) / 1000)
        if has_promised:
            wait_s = min(wait_s, _PROMISE_S)
        if wait_s == float("inf"):
            return
        at = max(self._loop.time() + min(max(wait_s, _TICK_S), _LONGEST_S), self._retry_at)
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self.look)

    def look(self) -> None:
        """Do what the time asks for, and wait again. The timer calls it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        state = self._state
        if state is None or self._closed is not None:
            return
        wall_ms = self._clock.time_ms()
        settlement = state.expire(self._now_ms, wall_ms)
        if settlement.changes:
            self._store(state, settlement)
        state.wake(wall_ms)
        if self._promised and self._loop.time() - self._promised_at >= _PROMISE_S:
            self._promised = 0
        self._notify()
        self._schedule()

    # The end

    def close(self, code: ErrorCode) -> None:
        """Give out nothing any more: what waits, and what comes, gets ``code``."""
        if self._closed is not None:
            return
        self._closed = code
        self.dead_lettering.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._notify()
        settled, self._settled = self._settled, {}
        for callbacks in settled.values():
            for callback in callbacks:
                callback(False)

    @property
    def is_closed(self) -> bool:
        """Whether it gives out nothing any more."""
        return self._closed is not None


class _Taking:
    """Batches that are being taken for one member."""

    __slots__ = (
        "_batches",
        "_max_bytes",
        "_min_one",
        "_size",
        "acquired",
        "is_exact",
        "left",
        "member",
    )

    def __init__(
        self, member: str, max_records: int, max_bytes: int, min_one: bool, is_exact: bool
    ) -> None:
        self.member = member
        self.left = max_records
        self.is_exact = is_exact
        self.acquired: list[AcquiredRange] = []
        self._batches: dict[int, bytes] = {}
        self._max_bytes = max_bytes
        self._min_one = min_one
        self._size = 0

    def has_room_for(self, batch: StoredBatch) -> bool:
        """Whether this batch may be taken, too."""
        if batch.header.base_offset in self._batches:
            return True
        if not self._batches and self._min_one:
            return True
        return self._size + len(batch.raw) <= self._max_bytes

    def add(self, batch: StoredBatch, parts: list[Given]) -> None:
        """Count in records of a batch that were given out."""
        base = batch.header.base_offset
        if base not in self._batches:
            self._batches[base] = batch.raw
            self._size += len(batch.raw)
        for first, last, history in parts:
            self.acquired.append(AcquiredRange(first, last, history.deliveries + 1))
            self.left -= last - first + 1

    def result(self) -> TakenBatches:
        """All that was taken, ascending."""
        merged: list[AcquiredRange] = []
        for part in sorted(self.acquired):
            if merged and merged[-1].last_offset + 1 == part.first_offset:
                before = merged[-1]
                if before.delivery_count == part.delivery_count:
                    merged[-1] = before._replace(last_offset=part.last_offset)
                    continue
            merged.append(part)
        records = b"".join(self._batches[base] for base in sorted(self._batches))
        return TakenBatches(records, merged)


class _HiddenCount:
    """Counts the offsets of hidden batches in a range that moves on, looking at each run once."""

    __slots__ = ("_count", "_end", "_partition", "_start")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._start = 0
        self._end = 0
        self._count = 0

    def between(self, start: int, end: int) -> int:
        """How many there are from ``start`` to before ``end``."""
        log = self._partition.log
        if not log.has_hidden:
            return 0
        if self._start <= start <= self._end <= end:
            if start > self._start:
                self._count -= log.hidden_between(self._start, start)
        else:
            self._end, self._count = start, 0
        self._start = start
        if end > self._end:
            self._count += log.hidden_between(self._end, end)
            self._end = end
        return self._count


class _Acknowledgement:
    """Waits for the high watermark."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[ErrorCode] = loop.create_future()

    def done(self) -> bool:
        """Whether nobody waits any longer."""
        return self.future.done()

    def acknowledged(self, token: object, code: ErrorCode) -> None:  # noqa: ARG002
        """It is acknowledged (NONE), or never will be."""
        if not self.future.done():
            self.future.set_result(code)


async def _when_done(taken: list[TakenRecord], once: list[_Once]) -> list[TakenRecord]:
    """What may be given out of ``taken``: not those that are not known to be done.

    Raises ApiError where nothing is left.
    """
    outcomes = await asyncio.gather(*[one.acknowledged for one in once], return_exceptions=True)
    failed = {one.at for one, outcome in zip(once, outcomes, strict=True) if outcome is not None}
    left = [record for number, record in enumerate(taken) if number not in failed]
    if not left:
        for outcome in outcomes:
            if outcome is not None:
                raise outcome
    return left


def _retrieve(future: "asyncio.Future[None]") -> None:
    """What this failed with is known otherwise."""
    if not future.cancelled():
        future.exception()


def _size_of(record: ConsumerRecord) -> int:
    size = _RECORD_BYTES
    if record.key is not None:
        size += len(record.key)
    if record.value is not None:
        size += len(record.value)
    return size
