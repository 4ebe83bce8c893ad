"""Batches and records out of bytes that nobody has vouched for.

A record inside a batch (KIP-98, "Record"), every integer a zigzag varint but the attributes byte:

    length, attributes, timestamp delta, offset delta, key length, key, value length, value,
    headers count, and for each header: key length, key, value length, value

A length of -1 is null.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .compression import decompress
from .crc import Buffer
from .errors import CorruptBatch
from .header import HEADER_SIZE, BatchHeader, TimestampType, read_header
from .varint import decode_varint

Headers = tuple[tuple[str, bytes | None], ...]

MAX_RECORDS_SIZE = 128 * 1024 * 1024
"""Bytes that the records of one batch may take, decompressed."""

_NULL = 1  # the varint of -1


class Record(NamedTuple):
    """One record as it is read. ``timestamp`` is in milliseconds since the Unix epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_type: TimestampType


def iter_batches(
    buf: Buffer, *, partial_tail: bool = False
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches that lie one after another in ``buf``, each as its header and all its bytes.

    Raises :class:`CorruptBatch` for a bad header or a batch that is cut; with ``partial_tail`` a
    cut last batch ends the iteration quietly, as a fetch's size limit may leave one. CRCs are not
    checked.
    """
    view = memoryview(buf)
    pos = 0
    while pos < len(view):
        if partial_tail and len(view) - pos < HEADER_SIZE:
            return
        header = read_header(view, pos)
        end = pos + header.size
        if end > len(view):
            if partial_tail:
                return
            raise CorruptBatch(f"batch of {header.size} bytes is cut at {len(view) - pos}")
        yield header, view[pos:end]
        pos = end


def iter_records(batch: Buffer, *, max_size: int = MAX_RECORDS_SIZE) -> Iterator[Record]:
    """The records of one whole batch, a control batch's markers included.

    Raises :class:`CorruptBatch` at the first byte that is not what it should be, or when the
    records take more than ``max_size`` bytes decompressed. The CRC is not checked.
    """
    header = read_header(batch)
    if header.size != len(batch):
        raise CorruptBatch(f"batch of {header.size} bytes in {len(batch)}")
    if header.records_count < 0:
        raise CorruptBatch(f"impossible records count {header.records_count}")
    if header.records_count == 0:  # what compaction leaves of a batch
        return iter(())
    payload = decompress(header.compression, memoryview(batch)[HEADER_SIZE:], max_size)
    return _records(payload, header)


def _records(payload: bytes, header: BatchHeader) -> Iterator[Record]:  # noqa: C901, PLR0912, PLR0915
    # The hot loop: calls cost more than arithmetic, so integers of one or two bytes are mostly
    # decoded in place, and everything is local.
    new_record = tuple.__new__
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    timestamp_type = header.timestamp_type
    last_delta, max_delta = -1, header.last_offset_delta
    pos = 0
    try:
        for _ in range(header.records_count):
            number = payload[pos]
            if number > 0x7F and payload[pos + 1] < 0x80:
                number = number & 0x7F | payload[pos + 1] << 7
                end = pos + 2 + (number >> 1)
                pos += 3  # the length and the attributes, which are unused
            else:
                length, pos = decode_varint(payload, pos)
                end = pos + length
                pos += 1
                number = 0
            if number & 1 or end < pos:
                raise CorruptBatch("a record's length is negative")

            timestamp = payload[pos]
            if timestamp:
                timestamp, pos = decode_varint(payload, pos)
            else:
                pos += 1
            if fixed_timestamp is None:
                timestamp += base_timestamp
            else:
                timestamp = fixed_timestamp

            delta = payload[pos]
            if delta < 0x80 and not delta & 1:
                delta >>= 1
                pos += 1
            elif delta > 0x7F and payload[pos + 1] < 0x80 and not delta & 1:
                delta = (delta & 0x7F | payload[pos + 1] << 7) >> 1
                pos += 2
            else:
                delta, pos = decode_varint(payload, pos)
            if not last_delta < delta <= max_delta:
                raise CorruptBatch(f"offset delta {delta} after {last_delta}, of {max_delta}")
            last_delta = delta

            key: bytes | None = None
            if payload[pos] == _NULL:
                pos += 1
            else:
                key, pos = _nullable_bytes(payload, pos)

            number = payload[pos]
            if number > 0x7F and payload[pos + 1] < 0x80 and not number & 1:
                start = pos + 2
                pos = start + ((number & 0x7F | payload[pos + 1] << 7) >> 1)
                value: bytes | None = payload[start:pos]
            else:
                value, pos = _nullable_bytes(payload, pos)

            headers: Headers = ()
            if payload[pos]:
                headers, pos = _headers(payload, pos, end)
            else:
                pos += 1
            if pos != end:
                raise CorruptBatch(f"a record ends at {pos}, its length says {end}")
            yield new_record(
                Record, (base_offset + delta, timestamp, key, value, headers, timestamp_type)
            )
    except IndexError:
        raise CorruptBatch("records are cut") from None
    if pos != len(payload):
        raise CorruptBatch(f"{len(payload) - pos} bytes after the last record")


def _nullable_bytes(payload: bytes, pos: int) -> tuple[bytes | None, int]:
    length, pos = decode_varint(payload, pos)
    if length < 0:
        if length != -1:
            raise CorruptBatch(f"impossible length {length}")
        return None, pos
    end = pos + length
    if end > len(payload):
        raise CorruptBatch(f"impossible length {length}")
    return payload[pos:end], end


def _headers(payload: bytes, pos: int, end: int) -> tuple[Headers, int]:
    count, pos = decode_varint(payload, pos)
    if not 0 <= count <= (end - pos) // 2:  # two lengths each, at least
        raise CorruptBatch(f"impossible headers count {count}")
    headers = []
    for _ in range(count):
        key, pos = _nullable_bytes(payload, pos)
        if key is None:
            raise CorruptBatch("a header's key is null")
        value, pos = _nullable_bytes(payload, pos)
        headers.append((key.decode(errors="replace"), value))
    return tuple(headers), pos
