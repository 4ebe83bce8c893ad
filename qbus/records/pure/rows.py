"""Records from Arrow's buffers, in plain Python; ``_rows.pxi`` is the same in C."""

import sys
from collections.abc import Iterator

from qbus.records.arrow_buffers import Lists, Values
from qbus.records.fields import encode_varint, timestamp_delta
from qbus.records.header import Buffer
from qbus.records.pure.lists import add_record, partition_for_keys

_MAX_FIXED = 40
"""Maximum size in bytes of a record without its key, value and headers."""


class Rows:
    """Rows of columns of the same length, which become records.

    Methods raise ValueError for offsets outside of their column.
    """

    def __init__(
        self,
        length: int,
        value: Values,
        key: Values | None,
        headers: Lists | None,
        timestamp: Values | None,
    ) -> None:
        self.length = length
        self._value = _Bytes(value)
        self._key = None if key is None else _Bytes(key)
        self._headers = None if headers is None else _Headers(headers)
        self._timestamp = None if timestamp is None else _Bytes(timestamp)

    def encode(
        self, batch: bytearray, start: int, stop: int, first_delta: int, base_timestamp: int
    ) -> int:
        """Append rows to ``batch``, numbered from ``first_delta``; return the latest timestamp."""
        parts: list[bytes] = []
        latest: int | None = None
        for row in range(start, stop):
            delta = self._timestamp_delta(row, base_timestamp)
            latest = delta if latest is None else max(latest, delta)
            add_record(
                parts,
                first_delta + row - start,
                delta,
                None if self._key is None else self._key[row],
                self._value[row],
                b"\0" if self._headers is None else self._headers[row],
            )
        batch += b"".join(parts)
        return base_timestamp + (latest or 0)

    def fit(self, start: int, room: int) -> tuple[int, int]:
        """Return the row up to which rows fit ``room`` bytes, and the room that is left."""
        for row in range(start, self.length):
            size = _MAX_FIXED
            for column in (self._value, self._key, self._headers):
                size += 0 if column is None else len(column[row] or b"")
            if size > room:
                return row, 0
            room -= size
        return self.length, room

    def partitions(self, count: int) -> list[int]:
        """Return the partition of each row's key, or -1 for a null key."""
        if self._key is None:
            return [-1] * self.length
        return partition_for_keys(map(self._key.__getitem__, range(self.length)), count)

    def _timestamp_delta(self, row: int, base_timestamp: int) -> int:
        number = None if self._timestamp is None else self._timestamp[row]
        if number is None:
            return 0
        return timestamp_delta(_integer(number), base_timestamp, row)


class _Bytes:
    """Values by row."""

    def __init__(self, column: Values) -> None:
        self._validity = column.validity
        self._offsets = _cast(column.offsets, column.width)
        self._width = column.width
        self._data = memoryview(column.data)
        self._start = column.start

    def __getitem__(self, row: int) -> bytes | None:
        index = self._start + row
        if not _is_valid(self._validity, index):
            return None
        if self._offsets is None:
            start, end = index * self._width, (index + 1) * self._width
        else:
            start, end = self._offsets[index], self._offsets[index + 1]
        check_range(start, end, len(self._data))
        return self._data[start:end].tobytes()


class _Headers:
    """Encoded headers by row."""

    def __init__(self, column: Lists) -> None:
        self._validity = column.validity
        self._offsets = _cast(column.offsets, column.width)
        self._start = column.start
        self._pairs = column.pairs
        self._key = _Bytes(column.key)
        self._value = _Bytes(column.value)

    def __getitem__(self, row: int) -> bytes:
        index = self._start + row
        if not _is_valid(self._validity, index):
            return b"\0"
        assert self._offsets is not None
        start, end = self._offsets[index], self._offsets[index + 1]
        check_range(start, end, self._pairs)
        return encode_varint(end - start) + b"".join(self._fields(row, start, end))

    def _fields(self, row: int, start: int, end: int) -> Iterator[bytes]:
        for index in range(start, end):
            key, value = self._key[index], self._value[index]
            if key is None:
                raise ValueError(f"a header's key is null in row {row}")
            yield encode_varint(len(key)) + key
            yield b"\1" if value is None else encode_varint(len(value)) + value


def check_range(start: int, end: int, size: int) -> None:
    """Raise ValueError unless offsets are within ``size``."""
    if not 0 <= start <= end <= size:
        raise ValueError(f"impossible offsets {start} to {end} of {size}")


def _cast(offsets: Buffer | None, width: int) -> memoryview | None:
    if offsets is None:
        return None
    view = memoryview(offsets)
    return view.cast("i") if width == 4 else view.cast("q")


def _is_valid(validity: Buffer | None, index: int) -> bool:
    return validity is None or validity[index >> 3] >> (index & 7) & 1 == 1


def _integer(number: bytes) -> int:
    return int.from_bytes(number, sys.byteorder, signed=True)
