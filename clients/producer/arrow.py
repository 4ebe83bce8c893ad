"""Batches made of rows of an Arrow table, and the partitions of the rows."""

import asyncio
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from qbus.records import ArrowColumns, Compression, encode_arrow, read_header

from ..types import TopicPartition
from .batch import NO_IDENTITY, Batch


class ArrowBatch(Batch):
    """The rows of ``columns`` from ``start`` to before ``stop``."""

    __slots__ = ("_columns", "_count", "_latest", "_start")

    def __init__(
        self,
        partition: TopicPartition,
        timestamp: int,
        created_at: float,
        columns: ArrowColumns,
        rows: tuple[int, int],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(partition, timestamp, created_at, loop)
        self._columns: ArrowColumns | None = columns
        self._start = rows[0]
        self._count = rows[1] - rows[0]
        self._latest = timestamp

    @property
    def count(self) -> int:
        """Number of records."""
        return self._count

    def encode(self, compression: Compression, level: int | None) -> bytearray:
        """Encode the batch with its identity and sequence."""
        assert self._columns is not None
        identity = self.identity or NO_IDENTITY
        encoded = encode_arrow(
            self._columns,
            self._start,
            self._start + self._count,
            base_timestamp=self.timestamp,
            compression=compression,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=self.sequence,
            attributes=identity.attributes,
            level=level,
        )
        self._latest = read_header(encoded).max_timestamp
        return encoded

    def timestamp_of(self, index: int) -> int:  # noqa: ARG002 - a column has no single ones
        """Return the latest timestamp of the batch."""
        return self._latest

    def forget_records(self) -> None:
        """Release the table."""
        self._columns = None

    def cut(self) -> "tuple[ArrowBatch, ArrowBatch]":
        """Return two batches of half the rows each."""
        middle = self._start + self._count // 2
        left = self._part(self._start, middle)
        return left, self._part(middle, self._start + self._count)

    def _part(self, start: int, stop: int) -> "ArrowBatch":
        assert self._columns is not None
        place = (self.partition, self.timestamp, self.created_at)
        return ArrowBatch(*place, self._columns, (start, stop), self._loop)


def by_partition(
    table: Any, partitions: Any, names: dict[str, Any]
) -> Iterator[tuple[int, ArrowColumns]]:
    """Split as :func:`rows_by_partition` does; ``names``: the columns of values, keys and so on."""
    for partition, rows in rows_by_partition(table, partitions):
        yield partition, ArrowColumns.of(rows, **names)


def rows_by_partition(table: Any, partitions: Any) -> Iterator[tuple[int, Any]]:
    """Yield the rows of ``table`` of each partition (-1: any), in order.

    partitions: a 32-bit integer for each row.
    """
    compute = import_module("pyarrow.compute")
    pa = import_module("pyarrow")
    chosen = pa.array(partitions, pa.int32())
    rows = compute.sort_indices(chosen)  # a stable sort
    runs = compute.run_end_encode(chosen.take(rows))
    ordered = table if len(runs.values) == 1 else table.take(rows)
    start = 0
    for partition, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield partition, ordered.slice(start, stop - start)
        start = stop
