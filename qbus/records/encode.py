"""Record batches out of records (the format: ``header`` and ``decode``).

Two ways in: :func:`build_batch` takes records with everything they may have,
:func:`build_values_batch` takes values that share one timestamp, and is several times faster
because all that it writes between two values comes out of a table.
"""

from collections.abc import Callable, Iterable, Sequence

from .compression import compress
from .crc import Buffer
from .header import HEADER_SIZE, LENGTH_PREFIX, MAGIC, BatchHeader, Compression, write_header
from .varint import encode_varint

RecordItem = tuple[Buffer | None, Buffer | None, Iterable[tuple[str, Buffer | None]], int]
"""Key, value, headers, timestamp in milliseconds since the Unix epoch (-1: unknown)."""

_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
_TABLE_SIZE = 1 << 16


class _Table(dict[int, bytes]):
    """Encodings of integers, kept for the first so many that were asked for."""

    def __init__(self, encode: Callable[[int], bytes]) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, number: int) -> bytes:
        encoded = self._encode(number)
        if len(self) < _TABLE_SIZE:
            self[number] = encoded
        return encoded


def build_batch(
    records: Iterable[RecordItem],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """One batch of ``records``, each ``(key, value, headers, timestamp)``.

    ``attributes`` are further bits of the header's field, such as "control". Raises ValueError
    when there are no records.
    """
    parts: list[Buffer] = []
    timestamps: list[int] = []
    for key, value, headers, timestamp in records:
        timestamps.append(timestamp)
        _add_record(parts, len(timestamps) - 1, timestamp - timestamps[0], (key, value), headers)
    if not timestamps:
        raise ValueError("a batch has at least one record")
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes | compression,
        last_offset_delta=len(timestamps) - 1,
        base_timestamp=timestamps[0],
        max_timestamp=max(timestamps),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(timestamps),
    )
    return _seal(header, b"".join(parts))


def build_values_batch(
    values: Sequence[Buffer],
    timestamp: int,
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """One batch of records that have a value and ``timestamp`` but neither key nor headers.

    Raises ValueError when there are no values.
    """
    if not values:
        raise ValueError("a batch has at least one record")
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=compression,
        last_offset_delta=len(values) - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(values),
    )
    return _seal(header, _encode_values(values))


def _seal(header: BatchHeader, records: bytes) -> bytearray:
    """The whole batch: its length and CRC are filled in."""
    payload = compress(Compression(header.attributes & 0x07), records)
    batch = bytearray(HEADER_SIZE)
    batch += payload
    write_header(batch, header._replace(batch_length=len(batch) - LENGTH_PREFIX))
    return batch


def _add_record(
    parts: list[Buffer],
    offset_delta: int,
    timestamp_delta: int,
    key_and_value: tuple[Buffer | None, Buffer | None],
    headers: Iterable[tuple[str, Buffer | None]],
) -> None:
    fields: list[Buffer] = [b"\0", _VARINTS[timestamp_delta], _VARINTS[offset_delta]]
    for data in key_and_value:
        if data is None:
            fields.append(_NULL)
        else:
            fields += (_VARINTS[len(data)], data)
    fields += _encode_headers(headers) if headers else (_NO_HEADERS,)
    parts.append(_VARINTS[sum(map(len, fields))])
    parts += fields


def _encode_headers(headers: Iterable[tuple[str, Buffer | None]]) -> list[Buffer]:
    items = list(headers)
    fields: list[Buffer] = [_VARINTS[len(items)]]
    for name, value in items:
        key = name.encode()
        fields += (_VARINTS[len(key)], key)
        fields += (_NULL,) if value is None else (_VARINTS[len(value)], value)
    return fields


def _encode_values(values: Sequence[Buffer]) -> bytes:
    parts: list[Buffer] = []
    append = parts.append
    prefixes = _VALUE_PREFIXES
    for offset_delta, value in enumerate(values):
        append(prefixes[len(value) << 32 | offset_delta])
        append(value)
    parts[0] = parts[0][len(_NO_HEADERS) :]
    append(_NO_HEADERS)
    return b"".join(parts)


def _value_prefix(length_and_delta: int) -> bytes:
    """The end of the record before, and what comes before a value of that length and delta."""
    length, offset_delta = length_and_delta >> 32, length_and_delta & 0xFFFFFFFF
    fields = b"\0\0" + _VARINTS[offset_delta] + _NULL + _VARINTS[length]
    size = len(fields) + length + len(_NO_HEADERS)
    return _NO_HEADERS + _VARINTS[size] + fields


_VARINTS = _Table(encode_varint)
_VALUE_PREFIXES = _Table(_value_prefix)
