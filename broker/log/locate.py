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


class Place(NamedTuple):
    """A batch boundary: the position where the batch that begins with ``offset`` begins."""

    offset: int
    position: int


def place_of(segment: LogSegment, offset: int, *, wait: bool) -> Place:
    """The batch that contains ``offset``.

    Raises BlockingIOError without ``wait`` when a disk would be waited for, CorruptBatch when index
    and batches do not agree or the offset is not in the segment, and OSError.
    """
    known = segment.known_place(offset)
    if known is not None:
        return Place(offset, known)
    entry = segment.offset_index.lookup(offset, wait=wait)
    for place, following in _walk(segment, entry, wait=wait):
        if following.offset > offset:
            return place
    raise CorruptBatch(f"{segment.path} ends before offset {offset}")


def boundary_before(segment: LogSegment, position: int, offset: int, *, wait: bool) -> Place:
    """The last batch boundary at or before both ``position`` and ``offset``. Raises likewise."""
    end = Place(*segment.end)
    if offset >= end.offset:
        if position >= end.position:
            return end
    else:
        known = segment.known_place(offset)
        if known is not None and known <= position:
            return Place(offset, known)
    index = segment.offset_index
    by_offset = index.lookup(offset - 1, wait=wait)
    by_position = index.lookup_position(position, wait=wait)
    entry = min(by_offset, by_position) if by_offset and by_position else None
    for place, following in _walk(segment, entry, wait=wait):
        if following.offset > offset or following.position > position:
            return place
    return end


def _walk(
    segment: LogSegment, entry: tuple[int, int] | None, *, wait: bool
) -> Iterator[tuple[Place, Place]]:
    """Each batch's place and the following one's, from an index entry or the first batch on."""
    file = segment.file
    size = segment.size
    position = entry[1] if entry else 0
    expected = None if entry else segment.base_offset
    window, start = b"", 0
    while position < size:
        at = position - start
        if at + _STEP.size > len(window):
            start, at = position, 0
            window = file.read_at(position, min(_PEEK, size - position), wait=wait)
        if len(window) - at < _STEP.size:
            raise CorruptBatch(f"{segment.path} ends within a header at {position}")
        base_offset, length, delta = _STEP.unpack_from(window, at)
        if expected is None and entry is not None:
            expected = entry[0] - delta
        if base_offset != expected or delta < 0 or length < _LEAST_LENGTH:
            raise CorruptBatch(f"{segment.path} has no batch of offset {expected} at {position}")
        place = Place(base_offset, position)
        position += length + _LENGTH_PREFIX
        expected = base_offset + delta + 1
        yield place, Place(expected, position)


def batch_end(segment: LogSegment, start: Place, *, wait: bool) -> Place:
    """The boundary after the batch that begins at ``start``. Raises likewise."""
    data = segment.file.read_at(start.position, _STEP.size, wait=wait)
    if len(data) == _STEP.size:
        base_offset, length, delta = _STEP.unpack(data)
        end = start.position + length + _LENGTH_PREFIX
        if base_offset == start.offset and delta >= 0 and start.position < end <= segment.size:
            return Place(base_offset + delta + 1, end)
    raise CorruptBatch(f"{segment.path} has no batch of offset {start.offset} at {start.position}")
