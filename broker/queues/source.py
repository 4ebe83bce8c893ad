"""What a queue gives out next: which records, in which batches, and which it leaves out."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from qbus.clock import Clock
from qbus.errors import ApiError, CorruptBatch
from qbus.jobs import read_options
from qbus.records import ConsumerRecord
from qbus.records.record import Headers

from ..delay.log_throttle import LogThrottle
from ..log import Log
from ..partition.partition import Partition
from .batches import LogBatches, StoredBatch, Stretch, ttl_of
from .filters import TagFilter, parse_filter
from .settlement import Reason
from .state import QueueState

_log = logging.getLogger(__name__)

_FEW_RANGES: Final = 200  # that are looked at one by one


class Missing(Exception):  # noqa: N818 - no error: it says what to read
    """What is at ``offset`` must be read from the disk first; ``is_fresh``: and what is behind."""

    def __init__(self, offset: int, *, is_fresh: bool) -> None:
        super().__init__(offset)
        self.offset = offset
        self.is_fresh = is_fresh


class Found(NamedTuple):
    """Records of one batch that may be given out next; fresh ones were never given out."""

    first: int
    last: int
    batch: StoredBatch
    is_fresh: bool


class RecordSource:
    """Finds a queue's records in the log of its partition."""

    def __init__(
        self,
        name: str,
        partition: Partition,
        batches: LogBatches,
        loading: asyncio.Lock,
        clock: Clock,
    ) -> None:
        """``name``: the queue's, for the log. ``loading``: held by who reads from the disk."""
        self._name = name
        self._partition = partition
        self._batches = batches
        self._loading = loading
        self._clock = clock
        self._filter: TagFilter | None = None
        self._is_committed = False
        self._complaints = LogThrottle(clock, 60.0)
        self._failures = LogThrottle(clock)
        self._oldest: tuple[int, int] | None = None  # an offset, and its record's timestamp
        self._hidden = _HiddenCount(partition)
        # Records that come one after another mostly have the same headers.
        self._headers: Headers = ()
        self._ttl_ms = -1

    @property
    def log(self) -> Log:
        """The log that the records are read of."""
        return self._batches.log

    def set_filter(self, expression: str) -> None:
        """Leave out what an expression does not take; one that cannot be read takes all."""
        try:
            self._filter = parse_filter(expression)
        except ValueError as error:
            _log.warning("%s: %s: it is not applied", self._name, error)
            self._filter = None

    def set_isolation(self, *, is_committed: bool) -> None:
        """Whether records are given out only once their transactions are committed."""
        self._is_committed = is_committed

    @property
    def _end(self) -> int:
        """The offset before which records may be given out for the first time."""
        partition = self._partition
        return partition.last_stable_offset if self._is_committed else partition.high_watermark

    @property
    def _visible_end(self) -> int:
        partition = self._partition
        return partition.committed_end if self._is_committed else partition.visible_end

    def _is_aborted(self, batch: StoredBatch) -> bool:
        """Whether the batch is of a transaction that was aborted, and nobody gets it for that."""
        header = batch.header
        if not (self._is_committed and header.in_transaction):
            return False
        aborted = self._partition.log.aborted_between(header.base_offset, header.last_offset + 1)
        return any(one.producer_id == header.producer_id for one in aborted)

    # What comes next

    def next(self, state: QueueState, most: int) -> Found | None:
        """Up to ``most`` records of a batch: those that were given out before come first.

        None: there is nothing now. Raises Missing, ApiError, OSError.
        """
        if state.ready.size:
            return self.next_ready(state, most)
        found = self.next_fresh(state)
        if found is None:
            return None
        batch, free = found
        low, high = free[0]
        return Found(low, min(high, low + most - 1), batch, True)

    def next_ready(self, state: QueueState, most: int) -> Found | None:
        """Likewise, of what was given out before."""
        lowest = state.ready.lowest()
        if lowest is None:
            return None
        stretch = self.stretch_at(lowest.first)
        if stretch is None or stretch.batch is None:
            return None
        last = min(lowest.last, stretch.last, lowest.first + most - 1)
        return Found(lowest.first, last, stretch.batch, False)

    def missing(self, state: QueueState) -> tuple[int, int] | None:
        """Records among those that :meth:`next_ready` returns that compaction has removed.

        None: all of them are there. Raises likewise.
        """
        lowest = state.ready.lowest()
        stretch = None if lowest is None else self.stretch_at(lowest.first)
        if lowest is None or stretch is None:
            return None
        first, last = lowest.first, min(lowest.last, stretch.last)
        if stretch.batch is None:
            return first, last
        if not stretch.batch.is_broken:
            for low, high in stretch.batch.gaps():
                if low <= last and high >= first:
                    return max(low, first), min(high, last)
        return None

    def next_fresh(self, state: QueueState) -> tuple[StoredBatch, list[tuple[int, int]]] | None:
        """The next batch with something fresh, and what of it is; None: there is none now.

        Raises Missing, ApiError, OSError.
        """
        if state.is_clogged:
            if self._complaints.allows():
                _log.warning(
                    "%s: %d records were given back and are not done: nothing new is given out",
                    self._name,
                    state.progress.returned.size,
                )
            return None
        end = self._end
        while state.next_fresh < end:
            stretch = self.stretch_at(state.next_fresh, is_fresh=True)
            if stretch is None or stretch.last >= end:
                return None
            if stretch.is_damaged:
                state.pass_to(stretch.last + 1)
                continue
            if stretch.batch is None or self._is_aborted(stretch.batch):
                state.pass_void(state.next_fresh, stretch.last)
                continue
            if not stretch.batch.is_broken:
                for low, high in stretch.batch.gaps():
                    state.add_void(low, high)
            free = state.fresh(state.next_fresh, stretch.last)
            if free:
                return stretch.batch, free
            state.pass_to(stretch.last + 1)
        return None

    def stretch_at(self, offset: int, *, is_fresh: bool = False) -> Stretch | None:
        """What is at ``offset``; None: nothing yet. Raises Missing, ApiError, OSError."""
        batches = self._batches
        stretch = batches.at(offset)
        if stretch is not None:
            return stretch
        try:
            if is_fresh:
                found = batches.load(offset, self._end, wait=False)
            else:
                found = batches.load_batch(offset, wait=False)
        except BlockingIOError:
            raise Missing(offset, is_fresh=is_fresh) from None
        batches.keep(found)
        return batches.at(offset)

    async def load(self, missing: Missing) -> None:
        """Read what is missing. Raises ApiError, OSError."""
        batches, offset = self._batches, missing.offset
        async with self._loading:
            if batches.at(offset) is not None:
                return
            if missing.is_fresh:
                found = await self._load_fresh(offset)
            else:
                found = await asyncio.to_thread(batches.load_batch, offset, wait=True)
            batches.keep(found)

    async def _load_fresh(self, offset: int) -> list[Stretch]:
        """Read what is at ``offset``; damaged batches are passed over if no replica can mend them.

        Raises ApiError, OSError.
        """
        batches = self._batches
        try:
            return await asyncio.to_thread(batches.load, offset, self._end, wait=True)
        except CorruptBatch:
            damaged = batches.damaged_at(offset)
            if self._partition.replica_count > 1 or not damaged:
                raise
        _log.error(
            "%s: records from offset %d to %d are damaged: they are neither given out nor given up",
            self._name,
            offset,
            damaged[0].last,
        )
        return damaged

    def takes_all(self, batch: StoredBatch) -> bool:
        """Whether all of a batch's records are wanted, whatever they are."""
        return self._filter is None and not batch.has_ttl

    def unwanted(self, batch: StoredBatch, record: ConsumerRecord, now_ms: int) -> Reason | None:
        """Why a record is given to nobody, if it is not; ``now_ms`` is of the wall clock."""
        if batch.has_ttl:
            headers = record.headers
            if headers is not self._headers:
                if headers != self._headers:
                    self._ttl_ms = ttl_of(headers)
                self._headers = headers
            if 0 <= self._ttl_ms <= now_ms - record.timestamp:
                return Reason.EXPIRED
        if self._filter is not None and not self._filter.matches(record.headers):
            return Reason.FILTERED
        return None

    def read(
        self, batch: StoredBatch, first: int, last: int
    ) -> tuple[list[ConsumerRecord], list[int]]:
        """The records from ``first`` to ``last``, and the offsets of those that cannot be read.

        These are to be given up: a batch with the right checksum stays as it is, for ever.
        """
        records: list[ConsumerRecord] = []
        broken: list[int] = []
        if not batch.is_broken:
            try:
                return batch.records(first, last), broken
            except CorruptBatch:
                pass
        for offset in range(first, last + 1):
            try:
                found = [] if batch.is_broken else batch.records(offset, offset)
            except CorruptBatch:
                found = []
            records += found
            if not found:
                broken.append(offset)
        if broken:
            self._tell_broken(broken[0])
        return records, broken

    def _tell_broken(self, offset: int) -> None:
        if self._failures.allows():
            _log.error(
                "%s: records from offset %d on cannot be read, and are given up",
                *(self._name, offset),
            )

    def runs(
        self, batch: StoredBatch, first: int, last: int
    ) -> Sequence[tuple[int, int, Reason | None]]:
        """Neighbouring records that are all wanted, or all not wanted for the same reason.

        Jobs that are given out at most once are apart from the others.
        """
        if self._filter is None and not batch.has_ttl and not batch.is_broken:
            return [(first, last, None)]
        if batch.is_broken:  # without a look at each record that it claims to have
            self._tell_broken(first)
            return [(first, last, Reason.BROKEN)]
        records, broken = self.read(batch, first, last)
        reasons: list[tuple[int, Reason | None]] = [(offset, Reason.BROKEN) for offset in broken]
        now_ms = self._clock.time_ms()
        for record in records:
            reason = self.unwanted(batch, record, now_ms)
            if reason is None and read_options(record.headers, 1).retry == 0:
                reason = Reason.ONCE
            reasons.append((record.offset, reason))
        return neighbours(reasons)

    # What it is in numbers

    def fresh_count(self, state: QueueState) -> int:
        """How many records were never given out, without reading them."""
        offset = max(state.next_fresh, state.progress.start, self._partition.log.log_start_offset)
        end = self._visible_end
        if offset >= end:
            return 0
        known, ranges, behind = state.known_from(offset)
        if ranges > _FEW_RANGES:  # of a new leader: hidden batches between them count, too
            behind = min(behind, end)
            return max(end - offset - known - self._hidden.between(behind, end), 0)
        free = state.fresh(offset, end - 1)
        if not free:
            return 0
        low, high = free[-1]
        count = high - low + 1 - self._hidden.between(low, high + 1)
        hidden_between = self._partition.log.hidden_between
        for low, high in free[:-1]:
            count += high - low + 1 - hidden_between(low, high + 1)
        return max(count, 0)

    def oldest_timestamp(self, state: QueueState) -> int | None:
        """The timestamp of the first record that is not done.

        None: there is none, or it is not known yet: what is on disk is read in the background.
        """
        offset = self._oldest_offset(state)
        if offset is None:
            return None
        if self._oldest is None or self._oldest[0] != offset:
            try:
                stretch = self.stretch_at(offset)
            except Missing as missing:
                self._read_soon(missing)
            except (ApiError, OSError):
                return None
            else:
                batch = None if stretch is None else stretch.batch
                records = [] if batch is None else self.read(batch, offset, offset)[0]
                self._oldest = (offset, records[0].timestamp) if records else None
        return None if self._oldest is None else self._oldest[1]

    def _read_soon(self, missing: Missing) -> None:
        if not self._loading.locked():
            task = asyncio.get_running_loop().create_task(self.load(missing))
            task.add_done_callback(retrieve)

    def _oldest_offset(self, state: QueueState) -> int | None:
        log, end = self._partition.log, self._visible_end
        offset, before = max(state.progress.start, log.log_start_offset), -1
        while before < offset < end:
            before = offset
            for places in (state.voids, state.progress.done):
                found = places.find(offset)
                if found is not None:
                    offset = found.last + 1
            offset = log.hidden_end(offset, wait=True)
        return offset if offset < end else None


R = TypeVar("R")


def neighbours(reasons: list[tuple[int, R]]) -> list[tuple[int, int, R]]:
    """The ranges of neighbouring offsets with the same reason, ascending."""
    runs: list[tuple[int, int, R]] = []
    for offset, reason in sorted(reasons, key=_offset_of):
        if runs and runs[-1][2] is reason and runs[-1][1] == offset - 1:
            runs[-1] = (runs[-1][0], offset, reason)
        else:
            runs.append((offset, offset, reason))
    return runs


def _offset_of(one: tuple[int, object]) -> int:
    return one[0]


def retrieve(future: "asyncio.Future[None]") -> None:
    """What this failed with is known otherwise."""
    if not future.cancelled():
        future.exception()


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
