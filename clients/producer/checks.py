"""Checks of records, made while the sender can still be told."""

from collections.abc import Iterable, Sequence, Sized
from typing import Any, TypeVar

from qbus.records import Buffer
from qbus.records.codec import are_bytes

from .lists import Columns, Headers

T = TypeVar("T")

_BYTES_LIKE = {bytes, bytearray, memoryview}
_MAX_TIMESTAMP = 2**63 - 1


def check_item(
    key: Buffer | None, value: Buffer | None, headers: Headers | None, timestamp: int | None
) -> None:
    """Raise TypeError or ValueError for what no record can hold."""
    _check_types((key, value))
    if headers:
        _check_headers(headers)
    if timestamp is not None:
        _check_timestamps((timestamp,))


def checked_columns(
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None,
    headers: Sequence[Headers | None] | None,
    timestamps: Sequence[int | None] | None,
) -> Columns:
    """Return the columns as lists or tuples; raise TypeError or ValueError for bad records."""
    if isinstance(values, bytes | bytearray | memoryview | str):
        raise TypeError("values are a list, not one value")
    values = _listed(values)
    keys = None if keys is None else _listed(keys)
    headers = None if headers is None else _listed(headers)
    timestamps = None if timestamps is None else _listed(timestamps)
    _check_types(values)
    _check_length("keys", keys, values)
    _check_length("headers", headers, values)
    _check_length("timestamps", timestamps, values)
    if keys is not None:
        _check_types(keys)
    for items in headers or ():
        if items:
            _check_headers(items)
    _check_timestamps(timestamps or ())
    return values, keys, headers, timestamps


def _listed(column: Sequence[T]) -> Sequence[T]:
    return column if isinstance(column, list | tuple) else list(column)


def _check_length(what: str, column: Sized | None, values: Sized) -> None:
    if column is not None and len(column) != len(values):
        raise ValueError(f"{len(column)} {what} for {len(values)} values")


def _check_headers(headers: Headers) -> None:
    if not isinstance(headers, list | tuple):
        raise TypeError(f"headers are a list of pairs, not {type(headers).__name__}")
    for name, data in headers:
        if not isinstance(name, str):
            raise TypeError(f"a header's name is a str, not {type(name).__name__}")
        name.encode()  # raises ValueError if it is not valid Unicode
        _check_types((data,), "a header's value is")


def _check_types(data: Sequence[Buffer | None], subject: str = "keys and values are") -> None:
    if not are_bytes(data):
        wrong = set(map(type, data)) - _BYTES_LIKE - {type(None)}
        names = ", ".join(sorted(kind.__name__ for kind in wrong))
        raise TypeError(f"{subject} bytes, not {names}")


def _check_timestamps(timestamps: Iterable[Any]) -> None:
    for timestamp in timestamps:
        if timestamp is None:
            continue
        if not isinstance(timestamp, int) or isinstance(timestamp, bool):
            raise TypeError(f"a timestamp is an int, not {type(timestamp).__name__}")
        if not -1 <= timestamp <= _MAX_TIMESTAMP:
            raise ValueError(f"a timestamp is in milliseconds since 1970, not {timestamp}")
