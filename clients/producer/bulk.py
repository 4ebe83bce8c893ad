"""Sending many records at once, batch by batch."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from qbus.records import ArrowColumns, partition_for_keys
from qbus.records.arrow_buffers import import_pyarrow

from ..types import TopicDescription
from .accumulator import Accumulator
from .arrow import ArrowBatch, by_partition
from .arrow_delays import with_due_times
from .batch import Batch
from .lists import RECORD_OVERHEAD, Columns
from .options import ProducerOptions

ANY = -1
Part = tuple[Batch, int, int]
"""A batch, and which of its records: from and up to."""


def add_lists(
    accumulator: Accumulator, topic: TopicDescription, columns: Columns, partition: int | None
) -> Iterator[Part]:
    """Put the records into batches; yield after each, so that the caller can wait for room.

    Raises :class:`~qbus.errors.ApiError` for a partition that does not exist.
    """
    values, keys, headers, timestamps = columns
    router = accumulator.router
    if partition is not None:
        partition = router.fixed(topic, None, None, partition, None)
    if partition is not None or (keys is None and router.is_by_key) or not values:
        yield from accumulator.add_many(topic, columns, partition)
        return
    if router.is_by_key:
        assert keys is not None
        chosen = list(partition_for_keys(keys, len(topic.partitions)))
    else:
        every = keys or [None] * len(values)
        found = (router.fixed(topic, *pair, None, None) for pair in zip(every, values, strict=True))
        chosen = [ANY if index is None else index for index in found]
    rows: dict[int, list[int]] = {}
    for row, index in enumerate(chosen):
        rows.setdefault(index, []).append(row)
    for index, picked in rows.items():
        run = (
            [values[row] for row in picked],
            keys and [keys[row] for row in picked],
            headers and [headers[row] for row in picked],
            timestamps and [timestamps[row] for row in picked],
        )
        yield from accumulator.add_many(topic, run, None if index == ANY else index)


class ArrowTable:
    """A table whose rows are sent: checked, and cut into batches."""

    def __init__(
        self,
        table: Any,
        *,
        value: str,
        key: str | None,
        headers: str | None,
        timestamp: str | None,
        deliver_at: str | None,
    ) -> None:
        """Raises as :meth:`qbus.records.ArrowColumns.of`."""
        self._table = table if hasattr(table, "take") else import_pyarrow().table(table)
        if deliver_at is not None:
            self._table, headers = with_due_times(self._table, headers, deliver_at)
        self._names: dict[str, Any] = {
            "value": value,
            "key": key,
            "headers": headers,
            "timestamp": timestamp,
        }
        self._columns = ArrowColumns.of(self._table, **self._names)
        rows = max(len(self._columns), 1)
        self._row_bytes = self._table.nbytes / rows + RECORD_OVERHEAD

    def add(
        self,
        accumulator: Accumulator,
        topic: TopicDescription,
        partition: int | None,
        options: ProducerOptions,
    ) -> Iterator[Part]:
        """Put the rows into batches as :func:`add_lists` does."""
        router = accumulator.router
        if partition is not None:
            partition = router.fixed(topic, None, None, partition, None)
        if partition is not None or (self._names["key"] is None and router.is_by_key):
            runs = [(ANY if partition is None else partition, self._columns)]
        else:
            found = self._partitions(accumulator, topic)
            runs = list(by_partition(self._table, found, self._names))
        for index, columns in runs:
            start = 0
            while start < len(columns):
                stop = columns.fit(start, options.batch_bytes)
                make = partial(
                    ArrowBatch, columns=columns, rows=(start, stop), loop=accumulator.loop
                )
                size = int((stop - start) * self._row_bytes)
                chosen = None if index == ANY else index
                batch = accumulator.push(topic, chosen, make, size)
                yield batch, 0, batch.count
                start = stop

    def _partitions(self, accumulator: Accumulator, topic: TopicDescription) -> Any:
        router = accumulator.router
        if router.is_by_key:
            return self._columns.partitions(len(topic.partitions))
        values = self._table[self._names["value"]].to_pylist()
        name = self._names["key"]
        keys = [None] * len(values) if name is None else self._table[name].to_pylist()
        found = (
            router.fixed(topic, _bytes(key), _bytes(value), None, None)
            for key, value in zip(keys, values, strict=True)
        )
        return [ANY if index is None else index for index in found]


def _bytes(item: Any) -> Any:
    return item.encode() if isinstance(item, str) else item
