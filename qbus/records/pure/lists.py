"""Keys to partitions, and parallel lists to records, in plain Python.

``_lists.pxi`` is the same in C. The hash is Austin Appleby's MurmurHash2 (32 bits, Kafka's seed).
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, islice, repeat

from qbus.records.fields import (
    HeaderItems,
    encode_headers,
    encode_varint,
    timestamp_delta,
    to_bytes,
)
from qbus.records.header import HEADER_SIZE, Buffer

Headers = Sequence[tuple[str, Buffer | None]]

_BYTES_LIKE = {bytes, bytearray, memoryview, type(None)}
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
_TABLE_SIZE = 1 << 16


def murmur2(key: Buffer) -> int:
    """Return the hash of ``key`` as Kafka's clients compute it, an unsigned 32-bit integer."""
    data = to_bytes(key, "key", 0)
    words, rest = divmod(len(data), 4)
    hashed = _SEED ^ len(data)
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = word * _M & _MASK
        mixed = (mixed ^ mixed >> 24) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ mixed
    if rest:
        hashed = (hashed ^ int.from_bytes(data[-rest:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def partition_for_keys(keys: Iterable[Buffer | None], count: int) -> list[int]:
    """Return the partition (of ``count``) of each key as Kafka's Java client does; -1 for None."""
    if not 0 < count <= 0x7FFFFFFF:
        raise ValueError(f"impossible partitions count {count}")
    return [
        -1 if key is None else (murmur2(to_bytes(key, "key", index)) & 0x7FFFFFFF) % count
        for index, key in enumerate(keys)
    ]


def are_bytes(items: Iterable[object]) -> bool:
    """Whether all items can be keys or values: bytes, bytearrays, memoryviews or None."""
    return _BYTES_LIKE.issuperset(map(type, items))


def fit(
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None,
    headers: Sequence[Headers | None] | None,
    start: int,
    room: int,
    overhead: int,
) -> tuple[int, int]:
    """Return the row up to which records from ``start`` on fit ``room`` bytes, and their size.

    The size of a record is that of its parts plus ``overhead``, and ``overhead`` for each header.
    """
    stop = start + max(room // overhead, 0) + 1
    sizes = (
        overhead + len(value or b"") + len(key or b"") + _headers_size(pairs, overhead)
        for value, key, pairs in zip(
            islice(values, start, stop),
            repeat(None) if keys is None else islice(keys, start, stop),
            repeat(None) if headers is None else islice(headers, start, stop),
            strict=False,
        )
    )
    ends = list(accumulate(sizes, initial=0))
    rows = bisect_right(ends, max(room, 0)) - 1
    return start + rows, ends[rows]


def _headers_size(headers: Headers | None, overhead: int) -> int:
    return sum(overhead + len(name) + len(data or b"") for name, data in headers or ())


class _Table(dict[int, bytes]):
    """Encodings of integers; remembers the first ``_TABLE_SIZE`` of them."""

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
    """Return room for a header followed by the encoded records, and the largest timestamp.

    The sequences have the same length and are not empty. Raises TypeError or ValueError for values
    that no record can have.
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
    """Append one encoded record to ``parts``."""
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
    """Return the bytes between two values: the end of a record and the start of the next one."""
    length, offset_delta = length_and_delta >> 32, length_and_delta & 0xFFFFFFFF
    fields = b"\0\0" + _VARINTS[offset_delta] + _NULL + _VARINTS[length]
    size = len(fields) + length + len(_NO_HEADERS)
    return _NO_HEADERS + _VARINTS[size] + fields


_VARINTS = _Table(encode_varint)
_VALUE_PREFIXES = _Table(_value_prefix)
