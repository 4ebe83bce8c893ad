"""Repairing batches that went bad on disk, with the bytes of another replica's log.

Replicas have the same bytes below the high watermark. So a bad batch is overwritten in place with
that of another replica: of the same offsets, size and leader epoch, with a right checksum. Before,
during and after that, this log has everything else that it ever acknowledged. A crash in between
leaves the same batch bad, or repaired.
"""

from typing import NamedTuple

from qbus.records import CorruptBatch

from .damage import DamagedRange, next_place, range_of
from .files import write_all
from .following import walk
from .health import Corruption
from .recovery import check_epoch
from .scan import BadBatch, Place, scan
from .segment import LogSegment
from .state import LogState


class Damage(NamedTuple):
    """A stretch of a segment between two batch boundaries that does not hold whole batches."""

    segment: LogSegment
    start: Place
    end: Place

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end.position - self.start.position


class BatchRepair:
    """Repairs one log. Its methods wait for the disk: they are for threads."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    @property
    def is_beyond_repair(self) -> bool:
        """Whether the log is corrupt as a whole: it refuses everything until it starts anew."""
        return self._state.corruption is not None and not self._state.health.offline

    def find(self, corruption: Corruption) -> Damage | None:
        """Find the bad batches that ``corruption`` tells of; None: they are good by now.

        Raises ApiError.
        """
        state = self._state
        state.check_usable()
        offset = max(corruption.offset, state.segments[0].base_offset)
        segment = state.segment_of(offset)
        end = Place(*segment.end)
        damaged = range_of(segment.damage, offset)
        try:
            if damaged is not None and self._is_bad(segment, damaged):
                return Damage(segment, damaged.start, damaged.end)
            bad = None if damaged is not None else self._first_bad(segment, offset)
            if bad is None:
                end_offset = offset + 1 if damaged is None else damaged.end.offset
                state.repaired(offset, end_offset)
                return None
            start = Place(bad.offset, bad.position)
            end = next_place(segment.file, start, end.position) or end
        except OSError as error:
            raise state.health.judge(f"read {segment.path}", error) from error
        return Damage(segment, start, end)

    def _is_bad(self, segment: LogSegment, damaged: DamagedRange) -> bool:
        (offset, position), end = damaged.start, damaged.end.position
        try:
            for placed in scan(segment.file, position, end, offset, gaps=segment.gaps):
                check_epoch(self._state.epochs, placed)
        except BadBatch:
            return True
        return not damaged.size

    def _first_bad(self, segment: LogSegment, offset: int) -> BadBatch | None:
        """The first batch from an indexed one before ``offset`` on that is bad, up to that one."""
        start = segment.indexed_before(offset)
        try:
            for placed in segment.batches_at(start, segment.size, crc=True):
                check_epoch(self._state.epochs, placed)
                if placed.next_offset > offset:
                    return None
        except BadBatch as bad:
            return bad
        return None

    def repair(self, damage: Damage, records: bytes) -> None:
        """Write ``records``, batches of another replica from ``damage.start`` on, in its place.

        Stable on return. Raises ApiError: CORRUPT_MESSAGE when they are not what was there.
        """
        state, (segment, start, end) = self._state, damage
        batches = memoryview(records)[: damage.size]
        self._check(damage, batches)
        with state.sync_lock, state.lock:
            state.check_usable()
            if segment not in state.segments or segment.size < end.position:
                raise CorruptBatch(f"{segment.path} is another one by now")
            state.rewrites += 1
            try:
                file = state.cache.files.open(segment.path, write=True)
                write_all(file, start.position, batches)
            except OSError as error:
                raise state.health.judge(f"repair {segment.path}", error) from error
            finally:  # a part may be written
                segment.forget_places()
            try:
                file.sync()
            except OSError as error:
                raise state.health.fail(f"repair {segment.path}", error) from error
            state.repaired(start.offset, end.offset)

    def _check(self, damage: Damage, batches: memoryview) -> None:
        epochs = self._state.epochs
        offset = damage.start.offset
        gaps = damage.segment.gaps
        headers, problem = walk(batches, offset, epochs.epoch_at(offset), gaps=gaps)
        if problem is not None:
            raise problem
        size = sum(header.size for header in headers)
        end = headers[-1].last_offset + 1
        meets = end == damage.end.offset or (gaps and end < damage.end.offset)
        if size != damage.size or not meets:
            raise CorruptBatch(
                f"{size} bytes up to offset {headers[-1].last_offset} do not fit"
                f" {damage.size} up to {damage.end.offset - 1}"
            )
        if any(one.partition_leader_epoch != epochs.epoch_at(one.base_offset) for one in headers):
            raise CorruptBatch("another replica has other leader epochs")
