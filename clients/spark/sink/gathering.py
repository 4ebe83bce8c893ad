"""Collects rows of many Arrow batches by partition, so that record batches are full."""

from collections.abc import Iterator

import pyarrow as pa

from ...types import TopicPartition

Full = tuple[TopicPartition, pa.Table]

_ROOM = 64 * 1024 * 1024
"""The most bytes held for all partitions; beyond that, the oldest rows are released early."""


class Gatherer:
    """Holds rows until there are enough for a partition, or too many in memory."""

    def __init__(self, enough: int, room: int = _ROOM) -> None:
        """``enough``: bytes that fill one partition; ``room``: the most bytes for all of them."""
        self._enough = enough
        self._room = room
        self._held: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._total = 0

    def add(self, target: TopicPartition, rows: pa.RecordBatch) -> Iterator[Full]:
        """Add ``rows``; yield what is to be sent now."""
        size = rows.nbytes
        self._held.setdefault(target, []).append(rows)
        self._sizes[target] = self._sizes.get(target, 0) + size
        self._total += size
        if self._sizes[target] >= self._enough:
            yield self._release(target)
        while self._total > self._room:
            yield self._release(next(iter(self._held)))

    def rest(self) -> Iterator[Full]:
        """Yield everything that is left."""
        while self._held:
            yield self._release(next(iter(self._held)))

    def _release(self, target: TopicPartition) -> Full:
        self._total -= self._sizes.pop(target)
        return target, pa.Table.from_batches(self._held.pop(target))
