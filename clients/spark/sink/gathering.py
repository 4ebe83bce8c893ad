"""Rows of one partition put together from many Arrow batches, for full record batches."""

from collections.abc import Iterator

import pyarrow as pa

from ...types import TopicPartition

Full = tuple[TopicPartition, pa.Table]

_ROOM = 64 * 1024 * 1024
"""Bytes of all partitions' rows from which on those that wait longest are not full, but sent."""


class Gatherer:
    """Holds rows back until there are enough for one partition, or too many for the memory."""

    def __init__(self, enough: int, room: int = _ROOM) -> None:
        """``enough``: bytes for one partition, ``room``: for all of them."""
        self._enough = enough
        self._room = room
        self._held: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._total = 0

    def add(self, target: TopicPartition, rows: pa.RecordBatch) -> Iterator[Full]:
        """Take in ``rows``; what is to be sent now, if anything."""
        size = rows.nbytes
        self._held.setdefault(target, []).append(rows)
        self._sizes[target] = self._sizes.get(target, 0) + size
        self._total += size
        if self._sizes[target] >= self._enough:
            yield self._release(target)
        while self._total > self._room:
            yield self._release(next(iter(self._held)))

    def rest(self) -> Iterator[Full]:
        """All that is left."""
        while self._held:
            yield self._release(next(iter(self._held)))

    def _release(self, target: TopicPartition) -> Full:
        self._total -= self._sizes.pop(target)
        return target, pa.Table.from_batches(self._held.pop(target))
