"""Where batches are in a segment: the index, then a short walk over headers."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from qbus.records import CorruptBatch

from .segment import LogSegment

_STEP = struct.Struct(">qi11xi")  # base offset, batch length, last offset delta
_LENGTH_PREFIX = 12
_LEAST_LENGTH = 49
_PEEK = 4096
_NEAR = 1 << 16  # nearer than that, walking is cheaper than searching an index


class Place(NamedTuple):
    """A batch boundary: the position where the batch that begins with ``offset`` begins.

    Before a batch that has a gap before it, ``offset`` may be the one that the gap begins with.
    """

    offset: int
    position: int


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
    # From a batch before that one, which tells where the gap begins if there is one.
    entry = segment.indexes.offsets.lookup(offset - 1)
    for place, following in _walk_from_entry(segment, entry, wait=True):
        if following.offset > offset:
            return place
    raise CorruptBatch(f"{segment.path} ends before offset {offset}")


def boundary_before(
    segment: LogSegment, start: Place, position: int, offset: int, *, wait: bool
) -> Place:
    """The last batch boundary from ``start`` on that is beyond neither ``position`` nor ``offset``.

    Raises likewise.
    """
    end = Place(*segment.end)
    known = end.position if offset >= end.offset else segment.places.get(offset)
    if known is not None and known <= position:
        return end if offset >= end.offset else Place(offset, known)
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
            return place
    return end


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
    """Likewise from ``position`` on; the batch there has this base offset, or else last offset."""
    end_offset, size = segment.end
    file = segment.file
    window, start = b"", 0
    while position < size:
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
