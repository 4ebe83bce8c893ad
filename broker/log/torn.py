"""Telling a write that a power cut tore from data that went bad.

Above the recovery point, records may or may not be on the disk, page by page, in any order: a batch
may be missing while one after it is there. Nobody was told that they are safe, so the log ends
before the first missing one. But the checkpointed recovery point lags behind what was in fact
made stable; a batch that went bad there, with good ones after it, was perhaps acknowledged, and
cutting it off would lose it without a word.

The two look different. A sector that was not written, or was written before the records at its
end were there, ends in zeros; a file that lost its last pages just ends. A batch that went bad has
its bytes, some of them wrong.
"""

import struct

from qbus.records import CorruptBatch, check_crc, crc32c, read_header

from .files import File

_SECTOR = 512
_ZEROS = 16
_CHUNK = 1 << 20
_MAGIC = b"\x02"
_MAGIC_AT = 16
_HEADER_SIZE = 61
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CRC_FROM = 21
_FAR = 2**31
_LEAST_ZEROS = 9  # a batch's first eight bytes may well be zeros: its base offset


def next_batch(file: File, position: int, end: int, offset: int) -> int | None:
    """The position of the first valid batch behind ``position`` with an offset above ``offset``.

    Raises OSError.
    """
    start = position + 1
    while start < end:
        data = file.read_at(start, min(_CHUNK + _HEADER_SIZE, end - start))
        found = _find(file, data, start, end, offset)
        if found is not None:
            return found
        start += _CHUNK
    return None


def _find(file: File, data: bytes, start: int, end: int, offset: int) -> int | None:
    magic = data.find(_MAGIC, _MAGIC_AT)
    while 0 <= magic <= len(data) - (_HEADER_SIZE - _MAGIC_AT):
        at = magic - _MAGIC_AT
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(data, at)
        size = length + _OFFSET_AND_LENGTH.size
        plausible = offset < base_offset < offset + _FAR and size >= _HEADER_SIZE
        if plausible and start + at + size <= end and _is_valid(file.read_at(start + at, size)):
            return start + at
        magic = data.find(_MAGIC, magic + 1)
    return None


def _is_valid(batch: bytes) -> bool:
    try:
        check_crc(batch, read_header(batch))
    except CorruptBatch:
        return False
    return True


def is_torn(file: File, start: int, end: int) -> bool:
    """Whether the batch that should be at ``start`` was not wholly written.

    The next good one is at ``end``, which is the file's end when that one is in the next file.
    Raises OSError.
    """
    if start == end or _has_unwritten_sector(file, start, end):
        return True
    return end == file.size() and not _reaches(file.read_at(start, end - start))


def _reaches(batch: bytes) -> bool:
    """Whether these bytes are all of a batch, if its length is not believed."""
    return (
        len(batch) >= _HEADER_SIZE
        and crc32c(batch[_CRC_FROM:]) == _CRC.unpack_from(batch, _CRC_AT)[0]
    )


def _has_unwritten_sector(file: File, start: int, end: int) -> bool:
    first = start - start % _SECTOR
    while first < end:
        data = file.read_at(first, min(_CHUNK, end - first))
        for boundary in range(_SECTOR, len(data) + 1, _SECTOR):
            low = max(boundary - _ZEROS, start - first)
            if boundary - low >= _LEAST_ZEROS and not any(data[low:boundary]):
                return True
        first += _CHUNK
    return False
