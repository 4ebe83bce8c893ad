"""Damage in the midst of a segment: how far it reaches, and where the next good batch begins.

A *damaged range* lies between two places: where a batch should begin, and where the first good
batch behind it does. Readers step over it as over one batch that fails its checksum, so whatever
lies around it is served, its offsets stay taken, and the log goes on behind it::

    offsets    0..4    5..9 (damaged)   10..14
    position   0       812 ........... 1624          DamagedRange((5, 812), (10, 1624))

A file that lost its end, or all of it, has a range without bytes, up to the next segment's offset.
"""

import struct
from bisect import bisect_left
from typing import Final, NamedTuple

from qbus.records import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, read_header

from .files import File
from .scan import BadBatch, Place

_CHUNK: Final = 1 << 20
_MAGIC: Final = b"\x02"
_MAGIC_AT: Final = 16
_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_FAR: Final = 2**31


class DamagedRange(NamedTuple):
    """A stretch of a segment without whole batches. ``since_ms`` is when it was found."""

    start: Place
    end: Place
    problem: str
    since_ms: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end.position - self.start.position


DamagedRanges = tuple[DamagedRange, ...]
"""The damaged ranges of one segment, ascending and disjoint."""


def with_range(damage: DamagedRanges, found: DamagedRange) -> DamagedRanges:
    """Add a range; those that it covers go."""
    others = (known for known in damage if known.end <= found.start or known.start >= found.end)
    return tuple(sorted((*others, found)))


def range_of(damage: DamagedRanges, offset: int) -> DamagedRange | None:
    """The range that contains ``offset``."""
    return next((one for one in damage if one.start.offset <= offset < one.end.offset), None)


def range_at(damage: DamagedRanges, position: int, offset: int | None) -> DamagedRange | None:
    """The range that begins at ``position``, where ``offset`` should be if that is known.

    A range without bytes begins where the batch behind it does: the offset tells them apart.
    """
    index = bisect_left(damage, position, key=_start_position)
    if index < len(damage) and damage[index].start.position == position:
        found = damage[index]
        if found.size or offset == found.start.offset:
            return found
    return None


def _start_position(damaged: DamagedRange) -> int:
    return damaged.start.position


def extent(
    file: File, bad: BadBatch, size: int, following: int | None, *, at_least: int, since_ms: int
) -> DamagedRange:
    """How far the damage reaches that ``bad`` begins with, in a file of ``size`` bytes.

    ``following`` is the next segment's base offset; without one, the log goes on at ``at_least`` or
    behind what the bad header claims. Raises OSError.
    """
    start = Place(bad.offset, bad.position)
    if _is_behind_gap(file, bad, size, following):
        good: Place | None = _place_at(file, bad.position)
    else:
        good = next_place(file, start, size)
    if good is not None and (following is None or good.offset < following):
        return DamagedRange(start, good, bad.problem, since_ms)
    if following is None:
        following = max(_claimed_end(file, bad, size), at_least)
    return DamagedRange(start, Place(following, size), bad.problem, since_ms)


def _claimed_end(file: File, bad: BadBatch, size: int) -> int:
    """The offset behind a bad batch, by its header if that makes sense; else it has one record."""
    claimed = claimed_header(file, bad.position, size)
    if (
        claimed is not None
        and claimed.base_offset == bad.offset
        and claimed.records_count == claimed.last_offset_delta + 1
    ):
        return claimed.last_offset + 1
    return bad.offset + (bad.position < size)


def _is_behind_gap(file: File, bad: BadBatch, size: int, following: int | None) -> bool:
    """Whether the batch is good, and only those before it are missing.

    A sum does not cover the base offset. The batch behind it tells whether that is right.
    """
    claimed = claimed_header(file, bad.position, size) if bad.intact else None
    if claimed is None or claimed.base_offset <= bad.offset:
        return False
    behind = bad.position + claimed.size
    if behind == size:
        return following == claimed.last_offset + 1
    after = claimed_header(file, behind, size)
    return after is not None and after.base_offset == claimed.last_offset + 1


def next_place(file: File, start: Place, end: int) -> Place | None:
    """Where the first good batch behind ``start`` begins, before ``end``. Raises OSError."""
    position = next_batch(file, start.position, end, start.offset)
    return None if position is None else _place_at(file, position)


def _place_at(file: File, position: int) -> Place:
    """The place of the batch that begins at ``position``. Raises OSError."""
    return Place(read_header(file.read_at(position, HEADER_SIZE)).base_offset, position)


def next_batch(file: File, position: int, end: int, offset: int) -> int | None:
    """The position of the first good batch behind ``position`` with an offset above ``offset``.

    The length of the bad batch there is believed if a good one, or ``end``, is where it leads:
    records may themselves contain what looks like batches. Else the bytes are searched. Raises
    OSError.
    """
    claimed = claimed_header(file, position, end)
    if claimed is not None:
        behind = position + claimed.size
        if behind == end:
            return None
        if is_batch_at(file, behind, end, offset):
            return behind
    start = position + 1
    while start < end:
        data = file.read_at(start, min(_CHUNK + HEADER_SIZE, end - start))
        found = _find(file, data, start, end, offset)
        if found is not None:
            return found
        start += _CHUNK
    return None


def is_batch_at(file: File, position: int, end: int, offset: int) -> bool:
    """Whether a good batch with an offset above ``offset`` begins there. Raises OSError."""
    data = file.read_at(position, min(HEADER_SIZE, end - position))
    if len(data) < HEADER_SIZE:
        return False
    base_offset, length = _OFFSET_AND_LENGTH.unpack_from(data)
    size = length + _OFFSET_AND_LENGTH.size
    plausible = offset < base_offset < offset + _FAR and size >= HEADER_SIZE
    return plausible and position + size <= end and _is_valid(file.read_at(position, size))


def claimed_header(file: File, position: int, end: int) -> BatchHeader | None:
    """The header at a position, if a batch of that size has room there, whatever its sum."""
    if not 0 <= position <= end - HEADER_SIZE:
        return None
    try:
        header = read_header(file.read_at(position, HEADER_SIZE))
    except CorruptBatch:
        return None
    return header if position + header.size <= end and header.last_offset_delta >= 0 else None


def _find(file: File, data: bytes, start: int, end: int, offset: int) -> int | None:
    magic = data.find(_MAGIC, _MAGIC_AT)
    while 0 <= magic <= len(data) - (HEADER_SIZE - _MAGIC_AT):
        at = start + magic - _MAGIC_AT
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(data, magic - _MAGIC_AT)
        plausible = offset < base_offset < offset + _FAR
        if plausible and length > 0 and is_batch_at(file, at, end, offset):
            return at
        magic = data.find(_MAGIC, magic + 1)
    return None


def _is_valid(batch: bytes) -> bool:
    try:
        check_crc(batch, read_header(batch))
    except CorruptBatch:
        return False
    return True
