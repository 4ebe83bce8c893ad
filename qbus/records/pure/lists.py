"""What is in lists of keys and values, seen without encoding it, in plain Python."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice, repeat

from qbus.records.crc import Buffer

_BYTES_LIKE = {bytes, bytearray, memoryview, type(None)}

Headers = Sequence[tuple[str, Buffer | None]]


def are_bytes(items: Iterable[object]) -> bool:
    """Whether all of these can be keys or values: bytes, bytearrays, memoryviews, or None."""
    return _BYTES_LIKE.issuperset(map(type, items))


def fit(
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None,
    headers: Sequence[Headers | None] | None,
    start: int,
    room: int,
    overhead: int,
) -> tuple[int, int]:
    """The row up to which records from ``start`` on fit ``room`` bytes, and how many they take.

    A record takes what its parts do, and ``overhead``, as does each of its headers.
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
