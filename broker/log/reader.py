"""Reading: from an offset or a timestamp to whole batches, as a region of a segment's file.

From top to bottom: finding where a batch lies, the slice that is returned, look-ups by time, and
the reader itself.
"""

import errno
import logging
import struct
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from qbus.errors import ApiError, ErrorCode, OversizedBatch
from qbus.records import CorruptBatch, check_crc

from .damage import range_at
from .files import File
from .health import Corruption
from .indexes import MaxTimestamp
from .scan import BadBatch, Place, PlacedBatch
from .segment import LogSegment
from .state import LogState

_logger = logging.getLogger(__name__)

_STEP: Final = struct.Struct(">qi11xi")  # base offset, batch length, last offset delta
_LENGTH_PREFIX: Final = 12
_LEAST_LENGTH: Final = 49
_PEEK: Final = 4096
_NEAR: Final = 1 << 16  # nearer than that, walking is cheaper than searching an index


# Where batches are in a segment: the index, then a short walk over headers.


def place_of(segment: LogSegment, offset: int, *, wait: bool) -> Place:
    """The batch that contains ``offset``, or the one after the gap that does.

    In an empty segment its start. Raises BlockingIOError without ``wait`` when a disk would be
    waited for, CorruptBatch when index and batches do not agree or the offset is not in the
    segment, and OSError.
    """
    known = segment.places.get(offset)
    if known is not None:
        return Place(offset, known)
    if segment.gaps and not segment.size:
        return Place(segment.base_offset, 0)
    entry = segment.indexes.offsets.lookup(offset, wait=wait)
    for place, following in _walk_from_entry(segment, entry, wait=wait):
        if following.offset > offset:
            return place
    raise CorruptBatch(f"{segment.path} ends before offset {offset}")


def end_before(segment: LogSegment, offset: int) -> Place:
    """Where the segment ends without the batches that have ``offset`` or later ones.

    Its offset is the one after the last batch that is left, be there a gap behind it. Waits for the
    disk. Raises CorruptBatch, OSError.
    """
    if not segment.size:
        return Place(segment.base_offset, 0)
    if segment.readable_end.offset <= offset:
        return segment.readable_end  # what lies between was lost with the end of the file
    # From a batch before that one, which tells where the gap begins if there is one.
    entry = segment.indexes.offsets.lookup(offset - 1)
    for place, following in _walk_from_entry(segment, entry, wait=True):
        if following.offset > offset:
            return place
    raise CorruptBatch(f"{segment.path} ends before offset {offset}")


def boundaries_around(
    segment: LogSegment, start: Place, position: int, offset: int, *, wait: bool
) -> tuple[Place, Place | None]:
    """The last batch boundary from ``start`` on that is beyond neither ``position`` nor ``offset``.

    And the one after it, if that was come by. Raises likewise.
    """
    end = Place(*segment.end)
    known = end.position if offset >= end.offset else segment.places.get(offset)
    if known is not None and known <= position:
        return (end if offset >= end.offset else Place(offset, known)), None
    after = segment.places.end_of(start.offset)
    if after is not None and (after[0] > offset or after[1] > position):
        return start, Place(*after)
    if position - start.position <= _NEAR:
        steps = _walk(segment, start.position, start.offset, wait=wait)
    else:
        entry = segment.indexes.offsets.lookup_position(position, wait=wait)
        if offset < end.offset:
            by_offset = segment.indexes.offsets.lookup(offset - 1, wait=wait)
            entry = min(entry, by_offset) if entry and by_offset else None
        steps = _walk_from_entry(segment, entry, wait=wait)
    for place, following in steps:
        if following.offset > offset or following.position > position:
            return place, following
    return end, None


def batch_end(segment: LogSegment, start: Place, *, wait: bool) -> Place:
    """The boundary after the batch that begins at ``start``. Raises likewise."""
    for _, following in _walk(segment, start.position, start.offset, wait=wait):
        return following
    raise CorruptBatch(f"{segment.path} ends before offset {start.offset}")


def _walk_from_entry(
    segment: LogSegment, entry: tuple[int, int] | None, *, wait: bool
) -> Iterator[tuple[Place, Place]]:
    """Each batch's place and the following one's, from an index entry or the first batch on."""
    if entry is None:
        return _walk(segment, 0, segment.base_offset, wait=wait)
    last_offset, position = entry
    if not 0 <= position < segment.size:
        raise CorruptBatch(f"{segment.path} does not reach to {position}")
    return _walk(segment, position, None, wait=wait, last_offset=last_offset)


def _walk(
    segment: LogSegment,
    position: int,
    offset: int | None,
    *,
    wait: bool,
    last_offset: int = 0,
) -> Iterator[tuple[Place, Place]]:
    """Likewise from ``position`` on; the batch there has this base offset, or else last offset.

    A damaged range counts as one batch.
    """
    end_offset, size = segment.end
    file = segment.file
    window, start = b"", 0
    damage = segment.damage
    while position < size:
        damaged = range_at(damage, position, offset) if damage else None
        if damaged is not None:
            yield damaged.start, damaged.end
            offset, position = damaged.end
            continue
        at = position - start
        if at + _STEP.size > len(window):
            start, at = position, 0
            window = file.read_at(position, min(_PEEK, size - position), wait=wait)
        if len(window) < at + _STEP.size:
            raise CorruptBatch(f"{segment.path} ends within a header at {position}")
        base_offset, length, delta = _STEP.unpack_from(window, at)
        expected = last_offset - delta if offset is None else offset
        is_there = base_offset == expected or (segment.gaps and base_offset > expected)
        if not is_there or delta < 0 or length < _LEAST_LENGTH:
            raise CorruptBatch(f"{segment.path} has no batch of offset {expected} at {position}")
        place = Place(expected, position)
        position += length + _LENGTH_PREFIX
        offset = base_offset + delta + 1
        if position > size or offset > end_offset:
            raise CorruptBatch(f"{segment.path}: the batch of offset {place.offset} is too large")
        yield place, Place(offset, position)


_PAGE: Final = 12  # bits of a position within a page


# What a read returns: a region of a segment's file, ready to be sent.


class Verifier(Protocol):
    """Checks batches on behalf of a log."""

    def verify(self, segment: LogSegment, start: Place, end: int) -> Place:
        """The boundary, at most ``end``, up to which all is well; reports what is not."""


class LogSlice:
    """Whole batches, one after another: ``length`` bytes of a file from ``position`` on.

    ``first_offset`` is the first batch's base offset, ``next_offset`` the one after the last batch.
    The file stays open, and readable if the segment is deleted, until :meth:`close`.

    Bytes that this process neither appended nor checked since it started must not be sent: if
    ``needs_verification`` is true, call :meth:`verify` in a thread first. A send must not wait for
    the disk: if :meth:`is_cached` returns false, call :meth:`warm` in a thread first. It reads the
    bytes and, as they come from the disk, checks them again.
    """

    __slots__ = (
        "_file",
        "_verifier",
        "first_offset",
        "length",
        "next_offset",
        "position",
        "segment",
    )

    def __init__(
        self,
        segment: LogSegment,
        verifier: Verifier,
        start: Place,
        end: Place,
    ) -> None:
        """The batches between two boundaries of ``segment``. Raises OSError."""
        self.segment = segment
        self._verifier = verifier
        self._file: File | None = segment.file
        self.first_offset, self.position = start
        self.next_offset, end_position = end
        self.length = end_position - self.position

    def __len__(self) -> int:
        return self.length

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def file(self) -> File:
        """The open file. Raises ValueError after :meth:`close`."""
        if self._file is None:
            raise ValueError("the slice is closed")
        return self._file

    def fileno(self) -> int:
        """The file descriptor, for ``os.sendfile``."""
        return self.file.fileno()

    def read(self, *, wait: bool = True) -> bytes:
        """The bytes; without ``wait``, BlockingIOError instead of waiting for a disk.

        Raises OSError.
        """
        return self.file.read_at(self.position, self.length, wait=wait)

    @property
    def needs_verification(self) -> bool:
        """Whether some of the bytes were not checked since the process started. Does no IO."""
        return not self.segment.verified.cover(self.position, self.position + self.length)

    def verify(self) -> None:
        """Check every batch; for a thread. The slice is cut before a corrupt batch.

        Raises CorruptBatch, an ApiError, when the first batch is the corrupt one: what is wrong was
        reported to the log then.
        """
        start = Place(self.first_offset, self.position)
        end = self._verifier.verify(self.segment, start, self.position + self.length)
        self.next_offset = end.offset
        self.length = end.position - self.position

    def is_cached(self) -> bool:
        """Whether the first and the last page are in the page cache: a guess at all of them."""
        first, last = self.position, self.position + self.length - 1
        file = self.file
        return file.is_cached(first) and (first >> _PAGE == last >> _PAGE or file.is_cached(last))

    def warm(self) -> None:
        """Bring the bytes into the page cache, checking them; for a thread. Raises as verify."""
        self.verify()

    def close(self) -> None:
        """Let go of the file. More than once does no harm."""
        self._file = None


# From timestamps to offsets: what ListOffsets asks.


class TimestampOffset(NamedTuple):
    """A record's timestamp in milliseconds, its offset, and the epoch of its leader."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(state: LogState, timestamp: int) -> TimestampOffset | None:
    """The first record, by offset, whose timestamp is ``timestamp`` or later.

    Raises CorruptBatch, BadBatch, OSError.
    """
    for segment in state.segments:
        if segment.max_timestamp.timestamp >= timestamp:
            for placed in segment.batches_since(timestamp):
                header = placed.header
                if header.max_timestamp >= timestamp and not header.is_hidden:
                    found = _first_in(segment, placed, timestamp, state.log_start_offset)
                    if found is not None:
                        return found
    return None


def latest(state: LogState) -> TimestampOffset | None:
    """The first record that has the greatest timestamp of the log. Raises likewise."""
    greatest, timestamp, last_offset = None, -1, -1
    for segment in state.segments:
        found = _visible_maximum(segment)
        if found.timestamp > timestamp:
            greatest, (timestamp, last_offset) = segment, found
    if greatest is None:
        return None
    for placed in greatest.batches_from(last_offset):
        if placed.header.last_offset >= last_offset:
            return _first_in(greatest, placed, timestamp, state.log_start_offset)
    return None


def _visible_maximum(segment: LogSegment) -> MaxTimestamp:
    """The greatest timestamp among the batches with records that consumers are sent."""
    if not (len(segment.indexes.controls) or segment.gaps):
        return segment.max_timestamp
    greatest = MaxTimestamp(-1, segment.base_offset)
    for _, header in segment.batches_from(segment.base_offset):
        is_seen = header.records_count and not header.is_hidden
        if is_seen and header.max_timestamp > greatest.timestamp:
            greatest = MaxTimestamp(header.max_timestamp, header.last_offset)
    return greatest


def _first_in(
    segment: LogSegment, placed: PlacedBatch, timestamp: int, start_offset: int
) -> TimestampOffset | None:
    from qbus.records.consume import decode_stored  # noqa: PLC0415 - loads the codec

    batch = segment.file.read_at(placed.position, placed.header.size)
    try:
        check_crc(batch, placed.header)
    except CorruptBatch as bad:
        where = placed.position, placed.header.base_offset
        raise BadBatch(*where, str(bad), path=segment.path) from bad
    epoch = placed.header.partition_leader_epoch
    try:
        for records in decode_stored(batch, placed.header):
            for record in records:
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset, epoch)
    except OversizedBatch as error:
        first = placed.header.base_offset
        _logger.warning(
            "%s: no record of the batch at offset %d is looked up: %s", segment.path, first, error
        )
        return TimestampOffset(placed.header.max_timestamp, max(first, start_offset), epoch)
    return None


class LogReader:
    """Finds batches by offset in one log."""

    __slots__ = ("_rebuilt", "_state", "_verifier")

    def __init__(self, state: LogState, verifier: Verifier) -> None:
        self._state = state
        self._verifier = verifier
        self._rebuilt: set[int] = set()  # segments, by base offset, whose batches are known bad

    def read(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int | None,
        *,
        min_one_batch: bool,
        wait: bool,
    ) -> LogSlice | None:
        """Do what :meth:`Log.read` states."""
        state = self._state
        if state.refusal is not None or state.health.failure is not None:
            state.check_readable()
        end_offset = state.segments[-1].end[0]
        if not state.log_start_offset <= offset <= end_offset:
            raise _out_of_range(state, offset)
        limit = end_offset if max_offset is None or max_offset > end_offset else max_offset
        if offset >= limit:
            return None
        segment = state.segment_of(offset)
        while True:
            try:
                return self._slice(segment, offset, max_bytes, limit, min_one_batch, wait)
            except CorruptBatch as bad:
                if segment in state.segments:
                    self._rebuild_or_raise(segment, offset, bad, wait=wait)
                segment = state.segment_of(offset)  # another one if that one was replaced just now
            except BlockingIOError:
                raise
            except OSError as error:
                raise self._failed(segment, offset, error) from error

    def read_batch(self, offset: int, *, wait: bool) -> LogSlice | None:
        """Do what :meth:`Log.read_batch` states."""
        state = self._state
        if state.segments[0].base_offset <= offset < state.log_start_offset:
            state.check_readable()
            segment = state.segment_of(offset)
            try:
                return self._slice(segment, offset, 0, segment.end_offset, True, wait)
            except BlockingIOError:
                raise
            except OSError as error:
                raise self._failed(segment, offset, error) from error
        if not state.log_start_offset <= offset < state.end_offset:
            return None
        return self.read(offset, 0, None, min_one_batch=True, wait=wait)

    def find(self, search: Callable[[LogState], TimestampOffset | None]) -> TimestampOffset | None:
        """What ``search`` finds, damaged batches apart.

        Raises ApiError CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        state = self._state
        state.check_readable()
        try:
            found = self._search(search)
        except OSError as error:
            state.check_usable()  # it may be gone since it was looked at
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        for segment in state.segments:
            if segment.doubt:
                with suppress(BadBatch):  # which was noted, or will be when it is read
                    self._rebuild_indexes(segment)
        return found

    def _search(
        self, search: Callable[[LogState], TimestampOffset | None]
    ) -> TimestampOffset | None:
        while True:
            try:
                return search(self._state)
            except BadBatch as bad:
                if not self._state.note_damage(bad):
                    raise CorruptBatch(bad.problem) from bad

    def _slice(
        self,
        segment: LogSegment,
        offset: int,
        max_bytes: int,
        limit: int,
        min_one_batch: bool,
        wait: bool,
    ) -> LogSlice | None:
        if segment.gaps and not segment.size:  # it stands for a gap, up to the next one
            offset = segment.end_offset
            if offset >= limit:
                return None
            return self._slice(
                self._state.segment_of(offset), offset, max_bytes, limit, min_one_batch, wait
            )
        places = segment.places
        start = place_of(segment, offset, wait=wait)
        end, following = boundaries_around(
            segment, start, start.position + max_bytes, limit, wait=wait
        )
        if end.position <= start.position:
            if not min_one_batch:
                return None
            end = following or batch_end(segment, start, wait=wait)
            if end.offset > limit:
                return None
            places.add_end(start.offset, end)
        places.add(*start)
        places.add(*end)
        return LogSlice(segment, self._verifier, start, end)

    def _rebuild_or_raise(
        self, segment: LogSegment, offset: int, bad: CorruptBatch, *, wait: bool
    ) -> None:
        """Make the index anew if it may be what is wrong; raise if the batches are.

        A damaged range that was not known is another reason to look again.
        """
        if segment.base_offset not in self._rebuilt:
            if not wait:
                raise BlockingIOError(errno.EAGAIN, "the index must be made anew")
            self._rebuilt.add(segment.base_offset)
            _logger.warning("%s: its indexes are made anew from the log: %s", segment.path, bad)
            try:
                self._rebuild_indexes(segment)
            except BadBatch as found:
                if self._state.note_damage(found):
                    self._rebuilt.discard(segment.base_offset)
                    return
            else:
                return
        if not segment.damage:
            self._state.report(Corruption(segment.path, -1, offset, str(bad)))
        raise bad

    def _rebuild_indexes(self, segment: LogSegment) -> None:
        state = self._state
        try:
            with state.sync_lock:  # nobody replaces the segment meanwhile
                if segment not in state.segments:
                    return
                active = segment is state.active
                segment.rebuild_indexes(
                    state.config.index_interval_bytes,
                    full=not active,
                    lock=state.lock if active else nullcontext(),
                )
                if not (active or segment.gaps):
                    _check_end(segment)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _failed(self, segment: LogSegment, offset: int, error: OSError) -> ApiError:
        if offset < self._state.log_start_offset:
            return _out_of_range(self._state, offset)  # its file went away just now
        excuse = self._state.excuse(segment, error)
        if excuse is not None:
            return excuse
        self._state.report(Corruption(segment.path, -1, offset, str(error)))
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read {segment.path}: {error}")


def _check_end(segment: LogSegment) -> None:
    """Raise BadBatch if a full segment ends before the next one begins. Raises OSError."""
    reached = segment.base_offset
    for placed in segment.batches_from(segment.end_offset):
        reached = placed.next_offset
    if segment.damage:
        reached = max(reached, segment.damage[-1].end.offset)
    if reached < segment.end_offset:
        problem = f"the next segment begins with offset {segment.end_offset}"
        raise BadBatch(segment.size, reached, problem, path=segment.path)


def _out_of_range(state: LogState, offset: int) -> ApiError:
    return ApiError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {offset} is not in {state.log_start_offset} to {state.end_offset}",
    )
