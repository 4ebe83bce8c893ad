"""What retention would take, and is not due yet, is appended again at the end of the log."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from qbus.clock import Clock
from qbus.errors import ApiError, CorruptBatch, ErrorCode
from qbus.records.control import (
    Carried,
    ControlType,
    control_batch,
    encode_carried,
    encode_int64,
)

from ..partition.partition import Partition
from .fold import DelayFold
from .held import HeldRecord, HeldRecords, read_entry
from .log_throttle import LogThrottle
from .schedule import Held

_log = logging.getLogger(__name__)

MOST_BYTES: Final = 256 * 1024
_PASSES: Final = 20
_AT_ONCE: Final = 100_000  # entries that are looked through without a pause
_SAY_AGAIN_S: Final = 600.0


def lying_before(fold: DelayFold, offset: int) -> Iterator[list[Held]]:
    """The records that lie before ``offset``, some entries looked at for each list that is yielded.

    The schedule may change between two lists: what goes to another slot meanwhile may be missing.
    """
    for slot in fold.schedule.slots():
        # From the end, for what is carried is taken out, and put in again at the end.
        for some in slot.pieces():
            yield sorted((one for one in some if one.offset < offset), key=_offset_of)


def _offset_of(held: Held) -> int:
    return held.offset


class Lying(NamedTuple):
    """The records of the first ``entries``, up to the one that is ``unreadable``, if one is."""

    records: list[HeldRecord]
    entries: int
    unreadable: Held | None


def read_lying(held: HeldRecords, entries: Sequence[Held]) -> Lying:
    """The records of the first ``entries``, about ``MOST_BYTES``, for a thread: it reads the log.

    Raises ApiError, OSError.
    """
    records: list[HeldRecord] = []
    size = 0
    for number, entry in enumerate(entries):
        record = read_entry(held, entry, wait=True)
        if record is None:
            return Lying(records, number, entry)
        records.append(record)
        size += len(record.key or b"") + len(record.value or b"") + 200
        if size >= MOST_BYTES:
            return Lying(records, number + 1, None)
    return Lying(records, len(entries), None)


def to_carry(records: Sequence[HeldRecord], fold: DelayFold, now_ms: int) -> bytearray:
    """The batch that carries those of ``records`` that are still held back; empty for none."""
    from qbus.records.encode import build_batch  # noqa: PLC0415 - loads the codec

    carried = [
        Carried(
            record.due,
            record.offset,
            record.original_offset,
            record.taken_ms,
            record.timestamp,
            bytes(build_batch([(record.key, record.value, record.headers, record.timestamp)])),
        )
        for record in records
        if fold.schedule.contains(record.due, record.offset)
    ]
    if not carried:
        return bytearray()
    return control_batch([(ControlType.CARRIED, encode_carried(one)) for one in carried], now_ms)


def all_carried(offset: int, now_ms: int) -> bytearray:
    """The batch that says that no delayed record lies before ``offset`` any more."""
    return control_batch([(ControlType.BOUND, encode_int64(offset))], now_ms)


class Carrying:
    """Carries the delayed records of one partition.

    A record that cannot be read is not carried, and neither is what lies behind it: retention keeps
    all from it on, until it is repaired from another replica, or held back no longer.
    """

    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        held: Callable[[], HeldRecords],
        when_done: Callable[[], None],
    ) -> None:
        """``held``: the partition's records. ``when_done``: called when what is held changed."""
        self._partition = partition
        self._clock = clock
        self._held = held
        self._when_done = when_done
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._unreadable: Held | None = None
        self._damages = LogThrottle(clock, _SAY_AGAIN_S)

    @property
    def is_under_way(self) -> bool:
        """Whether records are being carried that retention waits for."""
        return self._task is not None

    @property
    def _fold(self) -> DelayFold:
        fold = self._partition.log.fold.part(DelayFold)
        assert fold is not None
        return fold

    def start(self, offset: int) -> None:
        """Begin to carry what lies before ``offset`` to the end of the log."""
        if self._task is None and not self._is_stopped and self._fold.bound < offset:
            self._task = asyncio.get_running_loop().create_task(self._run(offset))

    def stop(self) -> None:
        """Carry nothing any more: the partition is led elsewhere."""
        self._is_stopped = True

    async def _run(self, offset: int) -> None:
        try:
            await self.carry_all_before(offset)
        except CorruptBatch as error:
            if self._damages.allows():
                _log.error("%s: %s", self._partition, error)
        except (ApiError, OSError) as error:
            _log.warning("%s: delayed records are carried later: %s", self._partition, error)
        finally:
            self._task = None

    async def count_before(self, offset: int) -> int:
        """How many of the delayed records lie before ``offset``."""
        count = 0
        for entries in lying_before(self._fold, offset):
            count += len(entries)
            await asyncio.sleep(0)
        return count

    async def carry_all_before(self, offset: int) -> None:
        """Carry what lies before ``offset`` to the end of the log, and wait until that is done.

        Raises CorruptBatch if one of them cannot be read: what lies before it is carried. Raises
        ApiError, OSError.
        """
        before = self._fold.carried_count
        offset = min(offset, self._fold.first_undecided)  # those may come to nothing
        try:
            limit = await self._carry_readable(offset)
            if self._is_stopped:
                return
            count = self._fold.carried_count - before
            if count:
                _log.info("%s: %d delayed records carried to its end", self._partition, count)
            if limit < offset:
                raise CorruptBatch(
                    f"the delayed record at offset {limit} cannot be read: retention keeps it and"
                    " all that lies behind it"
                )
        finally:
            self._when_done()

    async def _carry_readable(self, offset: int) -> int:
        """Carry what lies before ``offset``, and before the first unreadable one: that place."""
        limit = await self._first_unreadable(offset)
        for _ in range(_PASSES):
            if self._is_stopped or limit <= self._fold.bound:
                return limit
            for entries in lying_before(self._fold, limit):
                unreadable = await self._carry([one for one in entries if one.offset < limit])
                if unreadable is not None:
                    self._unreadable = unreadable
                    limit = unreadable.offset
            if await self._none_lies_before(limit):
                if limit > self._fold.bound and not self._is_stopped:
                    batch = all_carried(limit, self._clock.time_ms())
                    self._partition.append_own(batch, 0)
                return limit
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT, "delayed records change faster than they are carried"
        )

    async def _first_unreadable(self, offset: int) -> int:
        """Where the record lies that could not be read, if it still cannot; else ``offset``."""
        known = self._unreadable
        if known is not None and known.offset < offset:
            if self._fold.schedule.contains(known.due, known.offset):
                lying = await asyncio.to_thread(read_lying, self._held(), [known])
                if lying.unreadable is not None:
                    return known.offset
            self._unreadable = None
        return offset

    async def _none_lies_before(self, offset: int) -> bool:
        """Whether no delayed record lies before ``offset``; also false where that is not sure."""
        schedule = self._fold.schedule
        moves = schedule.moves
        for entries in lying_before(self._fold, offset):
            if entries:
                return False
            if schedule.count > _AT_ONCE:
                await asyncio.sleep(0)
        return schedule is self._fold.schedule and schedule.moves == moves

    async def _carry(self, entries: list[Held]) -> Held | None:
        """Carry these records, up to the first that cannot be read: that one."""
        while entries and not self._is_stopped:
            lying = await asyncio.to_thread(read_lying, self._held(), entries)
            batch = to_carry(lying.records, self._fold, self._clock.time_ms())
            if batch and not self._is_stopped:
                self._partition.append_own(batch, 0)
            unreadable = lying.unreadable
            if unreadable is not None:
                if self._fold.schedule.contains(unreadable.due, unreadable.offset):
                    return unreadable
                lying = lying._replace(entries=lying.entries + 1)  # it is held back no longer
            entries = entries[lying.entries :]
        await asyncio.sleep(0)
        return None
