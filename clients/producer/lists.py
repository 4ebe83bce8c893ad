"""Batches of records that come one by one or in lists: one list for each part of a record."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Self

from qbus.records import Buffer, Compression, encode_records

from ..types import TopicPartition
from .batch import NO_IDENTITY, Batch

Headers = Sequence[tuple[str, Buffer | None]]
Columns = tuple[
    Sequence[Buffer | None],
    Sequence[Buffer | None] | None,
    Sequence[Headers | None] | None,
    Sequence[int | None] | None,
]
"""Values, keys, headers and timestamps of records; one index is one record."""

RECORD_OVERHEAD = 12
"""Bytes that most records take besides key, value and headers."""


class ListBatch(Batch):
    """A batch in lists."""

    __slots__ = ("_count",)

    def __init__(
        self,
        partition: TopicPartition,
        timestamp: int,
        created_at: float,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(partition, timestamp, created_at, loop)
        self._count = -1
        self.is_quick = True

    @classmethod
    def of_values(
        cls,
        values: list[Any],
        loop: asyncio.AbstractEventLoop | None,
        partition: TopicPartition,
        timestamp: int,
        created_at: float,
    ) -> Self:
        """Return a whole batch of records that have nothing but these values."""
        batch = cls(partition, timestamp, created_at, loop)
        batch.values, batch.is_quick = values, False
        return batch

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.values) if self._count < 0 else self._count

    def add(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        callback: Callable[[Any], object] | None = None,
    ) -> int:
        """Add one record; return its index."""
        index = len(self.values)
        self.values.append(value)
        if callback is not None:
            self.callbacks += [None] * (index - len(self.callbacks))
            self.callbacks.append(callback)
        if self.keys is not None or key is not None:
            self.keys = _extended(self.keys, index, (key,))
        if self.headers is not None or headers:
            self.headers = _extended(self.headers, index, (headers,))
        if self.timestamps is not None or timestamp is not None:
            self.timestamps = _extended(self.timestamps, index, (timestamp,))
        return index

    def add_many(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        timestamps: Sequence[int | None] | None = None,
    ) -> int:
        """Add records; return the index of the first."""
        index, count = len(self.values), len(values)
        self.values.extend(values)
        if self.keys is not None or keys is not None:
            self.keys = _extended(self.keys, index, keys or repeat(None, count))
        if self.headers is not None or headers is not None:
            self.headers = _extended(self.headers, index, headers or repeat(None, count))
        if self.timestamps is not None or timestamps is not None:
            self.timestamps = _extended(self.timestamps, index, timestamps or repeat(None, count))
        return index

    def encode(self, compression: Compression, level: int | None) -> bytearray:
        """Encode the batch with its identity and sequence."""
        identity = self.identity or NO_IDENTITY
        return encode_records(
            self.values,
            self.keys,
            self.headers,
            self.timestamps,
            base_timestamp=self.timestamp,
            compression=compression,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=self.sequence,
            attributes=identity.attributes,
            level=level,
        )

    def timestamp_of(self, index: int) -> int:
        """Return a record's own timestamp, or the batch's."""
        own = None if self.timestamps is None else self.timestamps[index]
        return self.timestamp if own is None else own

    def forget_records(self) -> None:
        """Release keys and values; timestamps are still needed."""
        self._count = self.count
        self.values = []
        self.keys = self.headers = None

    def cut(self) -> "tuple[ListBatch, ListBatch]":
        """Return two batches of half the records each."""
        middle = self.count // 2
        left, right = self._part(0, middle), self._part(middle, self.count)
        return left, right

    def _part(self, start: int, stop: int) -> "ListBatch":
        part = ListBatch(self.partition, self.timestamp, self.created_at, self._loop)
        part.values = self.values[start:stop]
        part.keys = self.keys and self.keys[start:stop]
        part.headers = self.headers and self.headers[start:stop]
        part.timestamps = self.timestamps and self.timestamps[start:stop]
        return part


def _extended(column: list[Any] | None, index: int, items: Iterable[Any]) -> list[Any]:
    """Return ``column`` (None: ``index`` records without this part) with ``items`` appended."""
    if column is None:
        column = [None] * index
    column.extend(items)
    return column


def item_size(key: Buffer | None, value: Buffer | None, headers: Headers | None) -> int:
    """Return about how many bytes a record takes in a batch."""
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, data in headers or ():
        size += RECORD_OVERHEAD + len(name) + len(data or b"")
    return size
