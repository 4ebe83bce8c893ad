"""Reading a segment's batches, many at a time: what a compiled loop takes, and the rest."""

from collections.abc import Callable, Iterator
from typing import Final

from qbus.records import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, read_header

from ..log.scan import BadBatch, check_place
from ..log.segment import LogSegment

LEAST_BUFFER: Final = 16 * 1024

Run = Callable[[bytes, int, int], tuple[int, int]]
"""Takes batches from a position in bytes on, the first of an offset or later.

Returns where the first batch is that it does not take, and the offset after those before it.
"""

Pace = Callable[[int], None]
"""Is told of bytes that were read or written, and may wait."""


def read_batches(
    segment: LogSegment, buffer_bytes: int, run: Run, pace: Pace
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Have ``run`` take the batches of a segment; yield each one that it does not take.

    Raises BadBatch where a batch is damaged, OSError, and what ``pace`` does.
    """
    position, end = 0, segment.size
    offset = segment.base_offset
    data, start = b"", 0
    while position < end:
        at = position - start
        taken, offset = run(data, at, offset)
        if taken > at:
            position = start + taken
            continue
        size = _whole(data, at)
        if size is None:
            start = position
            data = _read(segment, position, end, max(buffer_bytes, LEAST_BUFFER))
            pace(len(data))
            continue
        try:
            header = read_header(data, at)
            check_crc(data, header, at)
            check_place(header, offset, gaps=True)
        except CorruptBatch as bad:
            raise BadBatch(position, offset, str(bad)) from bad
        yield header, data[at : at + size]
        position += size
        offset = header.last_offset + 1


def _whole(data: bytes, at: int) -> int | None:
    """The size of the batch at a position, None unless all of it is there."""
    if len(data) - at < HEADER_SIZE:
        return None
    size = _size(data, at)
    return size if at + size <= len(data) else None


def _size(data: bytes, at: int) -> int:
    return max(int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + 12, HEADER_SIZE)


def _read(segment: LogSegment, position: int, end: int, length: int) -> bytes:
    """At least one whole batch from ``position`` on."""
    data = segment.file.read_at(position, min(length, end - position))
    if len(data) < HEADER_SIZE:
        raise BadBatch(position, -1, f"{len(data)} bytes are too few for a batch header")
    size = _size(data, 0)
    if position + size > end:
        raise BadBatch(position, -1, f"batch of {size} bytes is cut at {end - position}")
    if size > len(data):
        data = segment.file.read_at(position, size)
        if len(data) < size:
            raise BadBatch(position, -1, f"batch of {size} bytes is cut at {len(data)}")
    return data
