"""Records from untrusted bytes, in plain Python.

A record inside a batch (KIP-98, "Record"); all integers but the attributes byte are zigzag varints:

    length, attributes, timestamp delta, offset delta, key length, key, value length, value,
    headers count, and for each header: key length, key, value length, value

A length of -1 is null. ``_parse.pxd`` is the same in C: it refuses the same bytes with the same
messages.
"""

from collections.abc import Iterator

from qbus.errors import CorruptBatch, OversizedBatch
from qbus.records.bounds import MAX_HEADERS
from qbus.records.fields import MAX_INT64, MIN_INT64, decode_varint
from qbus.records.header import BatchHeader, Buffer
from qbus.records.record import ConsumerRecord, Headers, Record

_NULL = 1  # the varint of -1
_LEAST_OVERHEAD = 7  # bytes that a record takes, at least, besides its key and its value


class Decoder:
    """Reads the records of ``payload`` from ``from_offset`` on, some at a time."""

    def __init__(
        self, payload: Buffer, header: BatchHeader, topic: str, partition: int, from_offset: int
    ) -> None:
        self._records = parse_records(bytes(payload), header)
        self._where = (topic, partition)
        self._from_offset = from_offset

    def take(self, size: int) -> list[ConsumerRecord]:
        """Return the records of about the next ``size`` bytes: at least one, unless none are left.

        Raises as ``parse_records``; the records of this call before the damage are lost.
        """
        new_record, where = tuple.__new__, self._where
        records: list[ConsumerRecord] = []
        for record in self._records:
            size -= _LEAST_OVERHEAD + len(record[2] or b"") + len(record[3] or b"")
            if record[0] >= self._from_offset:
                records.append(new_record(ConsumerRecord, where + record))
            if size <= 0 and records:
                break
        return records


def parse_records(payload: bytes, header: BatchHeader) -> Iterator[Record]:  # noqa: C901, PLR0912, PLR0915
    """Yield the records in ``payload``, the decompressed bytes after ``header``.

    Raises :class:`CorruptBatch` at the first malformed byte.
    """
    # The hot loop: calls cost more than arithmetic, so most integers of one or two bytes are
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
            delta = payload[pos]
            if delta < 0x80 and not delta & 1:
                delta >>= 1
                pos += 1
            elif delta > 0x7F and payload[pos + 1] < 0x80 and not delta & 1:
                delta = (delta & 0x7F | payload[pos + 1] << 7) >> 1
                pos += 2
            else:
                delta, pos = decode_varint(payload, pos)
            timestamp += base_timestamp
            if fixed_timestamp is not None:
                timestamp = fixed_timestamp
            elif not MIN_INT64 <= timestamp <= MAX_INT64:
                raise CorruptBatch("a timestamp does not fit 64 bits")
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
    if count > MAX_HEADERS:
        raise OversizedBatch(f"a record has {count} headers, more than {MAX_HEADERS}")
    headers = []
    for _ in range(count):
        key, pos = _nullable_bytes(payload, pos)
        if key is None:
            raise CorruptBatch("a header's key is null")
        value, pos = _nullable_bytes(payload, pos)
        headers.append((key.decode(errors="replace"), value))
    return tuple(headers), pos
