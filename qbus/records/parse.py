"""Records out of bytes that nobody has vouched for, in plain Python.

A record inside a batch (KIP-98, "Record"), every integer a zigzag varint but the attributes byte:

    length, attributes, timestamp delta, offset delta, key length, key, value length, value,
    headers count, and for each header: key length, key, value length, value

A length of -1 is null. ``_parse.pxd`` is the same in C: it refuses what this refuses,
and says so in the same words.
"""

from collections.abc import Iterator

from qbus.records.errors import CorruptBatch
from qbus.records.fields import MAX_INT64, MIN_INT64
from qbus.records.header import BatchHeader
from qbus.records.record import Headers, Record
from qbus.records.varint import decode_varint

_NULL = 1  # the varint of -1


def parse_records(payload: bytes, header: BatchHeader) -> Iterator[Record]:  # noqa: C901, PLR0912, PLR0915
    """The records that ``payload``, decompressed, is made of, as ``header`` describes them.

    Raises :class:`CorruptBatch` at the first byte that is not what it should be.
    """
    # The hot loop: calls cost more than arithmetic, so integers of one or two bytes are mostly
    # decoded in place, and everything is local.
    new_record = tuple.__new__
    size = len(payload)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    timestamp_type = header.timestamp_type
    last_delta, max_delta = -1, header.last_offset_delta
    if base_offset + max_delta > MAX_INT64:
        raise CorruptBatch(f"impossible offsets, {max_delta} from {base_offset}")
    pos = 0
    try:
        for _ in range(header.records_count):
            number = payload[pos]
            if number > 0x7F and payload[pos + 1] < 0x80:
                length = (number & 0x7F | payload[pos + 1] << 7) >> 1
                pos += 2
            else:
                length, pos = decode_varint(payload, pos)
            if number & 1:
                raise CorruptBatch("a record's length is negative")
            end = pos + length
            if end > size:
                raise CorruptBatch("records are cut")
            pos += 1  # the attributes, which are unused

            timestamp = payload[pos]
            if timestamp:
                timestamp, pos = decode_varint(payload, pos)
            else:
                pos += 1
            timestamp += base_timestamp
            if fixed_timestamp is not None:
                timestamp = fixed_timestamp
            elif not MIN_INT64 <= timestamp <= MAX_INT64:
                raise CorruptBatch("a timestamp does not fit 64 bits")

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
                headers, pos = _headers(payload, pos)
            else:
                pos += 1
            if pos != end:
                raise CorruptBatch(f"a record ends at {pos}, its length says {end}")
            yield new_record(
                Record, (base_offset + delta, timestamp, key, value, headers, timestamp_type)
            )
    except IndexError:
        raise CorruptBatch("records are cut") from None
    if pos != size:
        raise CorruptBatch(f"{size - pos} bytes after the last record")


def _nullable_bytes(payload: bytes, pos: int) -> tuple[bytes | None, int]:
    length, pos = decode_varint(payload, pos)
    if length < 0:
        if length != -1:
            raise CorruptBatch(f"impossible length {length}")
        return None, pos
    end = pos + length
    if end > len(payload):
        raise CorruptBatch("records are cut")
    return payload[pos:end], end


def _headers(payload: bytes, pos: int) -> tuple[Headers, int]:
    count, pos = decode_varint(payload, pos)
    if not 0 <= count <= (len(payload) - pos) // 2:  # two lengths each, at least
        raise CorruptBatch(f"impossible headers count {count}")
    headers = []
    for _ in range(count):
        key, pos = _nullable_bytes(payload, pos)
        if key is None:
            raise CorruptBatch("a header's key is null")
        value, pos = _nullable_bytes(payload, pos)
        headers.append((key.decode(errors="replace"), value))
    return tuple(headers), pos
