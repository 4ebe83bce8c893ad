"""Finding whole batches behind damage."""

from pathlib import Path

from qbus.records import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, read_header

_MAGIC_AT = 16
_MAGIC = b"\x02"
_ATTRIBUTES = 0x0F
_MOST_RECORDS = 1 << 48


def next_batch(path: Path, start: int, end: int) -> int:
    """Where the next whole batch of a segment begins, from ``start`` on; ``end`` if none does.

    Anything may look like a header: what counts is the checksum of what it is the header of.
    Raises OSError.
    """
    with path.open("rb") as file:
        data = file.read(end)
    place = data.find(_MAGIC, start + _MAGIC_AT) - _MAGIC_AT
    while start <= place <= len(data) - HEADER_SIZE:
        if _is_whole(data, place):
            return place
        place = data.find(_MAGIC, place + _MAGIC_AT + 1) - _MAGIC_AT
    return end


def _is_whole(data: bytes, place: int) -> bool:
    try:
        header = read_header(data, place)
        if not _is_likely(header) or place + header.size > len(data):
            return False
        check_crc(data, header, place)
    except CorruptBatch:
        return False
    return True


def _is_likely(header: BatchHeader) -> bool:
    """What costs no look at the records: most that looks like a header is none."""
    return (
        0 <= header.base_offset < _MOST_RECORDS
        and 0 <= header.attributes <= _ATTRIBUTES
        and 0 < header.records_count == header.last_offset_delta + 1
    )
