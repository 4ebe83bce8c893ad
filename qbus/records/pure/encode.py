"""Records out of parallel lists, in plain Python: a table remembers what lies between values."""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from qbus.records.crc import Buffer
from qbus.records.fields import HeaderItems, encode_headers, timestamp_delta, to_bytes
from qbus.records.header import HEADER_SIZE
from qbus.records.varint import encode_varint

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


def encode_lists(
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None,
    headers: Sequence[HeaderItems | None] | None,
    timestamps: Sequence[int | None] | None,
    base_timestamp: int,
) -> tuple[bytearray, int]:
    """The records behind room for a batch's header, and the largest timestamp.

    The sequences are of one length, and not empty. Raises TypeError or ValueError for what no
    record can hold.
    """
    batch = bytearray(HEADER_SIZE)
    if keys is headers is timestamps is None and set(map(type, values)) == {bytes}:
        batch += _encode_values(values)  # type: ignore[arg-type] # nothing but bytes
        return batch, base_timestamp
    parts: list[bytes] = []
    latest: int | None = None
    columns = zip(
        values,
        keys or repeat(None),
        headers or repeat(None),
        timestamps or repeat(None),
        strict=False,
    )
    for index, (value, key, items, timestamp) in enumerate(columns):
        delta = 0 if timestamp is None else timestamp_delta(timestamp, base_timestamp, index)
        latest = delta if latest is None else max(latest, delta)
        add_record(
            parts,
            index,
            delta,
            None if key is None else to_bytes(key, "key", index),
            None if value is None else to_bytes(value, "value", index),
            encode_headers(items, index),
        )
    batch += b"".join(parts)
    return batch, base_timestamp + (latest or 0)


def add_record(
    parts: list[bytes],
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: bytes,
) -> None:
    """Append one record to ``parts``."""
    fields = [b"\0", _VARINTS[timestamp_delta], _VARINTS[offset_delta]]
    for data in (key, value):
        if data is None:
            fields.append(_NULL)
        else:
            fields += (_VARINTS[len(data)], data)
    fields.append(headers)
    parts.append(_VARINTS[sum(map(len, fields))])
    parts += fields


def _encode_values(values: Iterable[bytes]) -> bytes:
    parts: list[bytes] = []
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
