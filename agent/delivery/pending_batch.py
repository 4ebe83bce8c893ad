"""Records of one or more files on their way to one partition, and the memory they may take."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

from qbus.clients.producer import BulkDelivery

from ..tailing.file import Chunk
from ..tailing.source import Labels

RECORD_OVERHEAD = 96
"""Bytes of memory that a record takes beyond its own."""


class MemoryBudget:
    """Bounds what is in memory, read and not yet acknowledged, in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def has_room(self) -> bool:
        """Whether more may be read."""
        return self.used < self.limit


class PendingBatch:
    """Chunks of files that are sent together.

    size: the bytes of the files that they are made of. memory: about how many bytes they take here.
    delivery: what the producer gave for them, once it has them. values: the records that are not
    stored yet, as far as that is known. error: why they are not. refused: why the topic will never
    take some of them, by their indexes in values.
    """

    __slots__ = (
        "_count",
        "_firsts",
        "_headers",
        "_keys",
        "_rows",
        "chunks",
        "delivery",
        "error",
        "is_completed",
        "memory",
        "refused",
        "size",
        "values",
    )

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.values: list[bytes] = []
        self._keys: list[bytes | None] | None = None
        self._headers: list[Any] | None = None
        self._count = 0
        self._firsts: list[int] = []  # the row of each chunk's first record
        self._rows: list[int] | None = None  # of the values that are left; None: all of them are
        self.size = 0
        self.memory = 0
        self.delivery: BulkDelivery | None = None
        self.error: Exception | None = None
        self.refused: Mapping[int, Exception] = {}
        self.is_completed = False

    def __len__(self) -> int:
        """Number of records, without those that were set aside."""
        return self._count

    @property
    def keys(self) -> list[bytes | None] | None:
        """The key of each value; None if no value has one."""
        return self._keys

    @property
    def headers(self) -> list[Any] | None:
        """The headers of each value; None if no value has any."""
        return self._headers

    def add(self, chunk: Chunk, labels: Labels | None) -> None:
        """Take the records of a chunk."""
        before, count = len(self.values), len(chunk.values)
        self.values += chunk.values
        keys = headers = None
        if labels is not None:
            assert chunk.offsets is not None
            offsets = [chunk.start + offset for offset in chunk.offsets]
            keys, headers = labels.keys(offsets), labels.headers(offsets)
        self._keys = _extended(self._keys, keys, before, count)
        self._headers = _extended(self._headers, headers, before, count)
        chunk.forget_records()
        self.chunks.append(chunk)
        self._firsts.append(before)
        self._count += count
        self.size += chunk.end - chunk.start
        self.memory += chunk.end - chunk.start + count * RECORD_OVERHEAD

    def origin(self, index: int) -> tuple[Chunk, int]:
        """Return the chunk of a value, and the number of its record there."""
        row = index if self._rows is None else self._rows[index]
        number = bisect_right(self._firsts, row) - 1
        return self.chunks[number], row - self._firsts[number]

    def keep(self, indexes: Iterable[int]) -> None:
        """Drop all values but those with these indexes: the others are stored."""
        kept = list(indexes)
        rows = self._rows
        self._rows = kept if rows is None else [rows[index] for index in kept]
        self.values = [self.values[index] for index in kept]
        self._keys = None if self._keys is None else [self._keys[index] for index in kept]
        if self._headers is not None:
            self._headers = [self._headers[index] for index in kept]

    def drop_refused(self) -> None:
        """Drop the values that the topic will never take: they are set aside."""
        refused = self.refused
        self._count -= len(refused)
        self.keep([index for index in range(len(self.values)) if index not in refused])
        self.refused = {}

    def forget(self) -> None:
        """Free the records: they are delivered."""
        self.values = []
        self._rows = self._keys = self._headers = None


def _extended(
    column: list[Any] | None, items: list[Any] | None, before: int, count: int
) -> list[Any] | None:
    """Return ``column`` of ``before`` records, extended by ``items`` of ``count`` more records."""
    if column is None and items is None:
        return None
    return (column if column is not None else [None] * before) + (items or [None] * count)
