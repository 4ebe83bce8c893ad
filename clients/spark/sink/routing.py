"""Assigns rows to partitions by Arrow functions on whole columns."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from qbus.errors import QbusError
from qbus.records import ArrowColumns

from ...producer.arrow import rows_by_partition
from ...producer.partitioner import StickyPartitioner
from ...types import TopicDescription, TopicPartition

Describe = Callable[[str, int], TopicDescription]
"""Describes a topic that needs so many partitions; refreshes metadata that has fewer."""


class BadRow(QbusError):  # noqa: N818 - what was found
    """A row cannot be written; nothing of its micro-batch is published."""


class Router:
    """Assigns partitions as the SDK's producer does: by the key's hash, or sticky without a key.

    A row's own ``partition`` comes first. Rows of one Arrow batch without a key go to the same
    partition.
    """

    def __init__(self, topic: str | None, describe: Describe) -> None:
        """``topic``: the topic of all rows; None: each row has its own."""
        self._topic = topic
        self._describe = describe
        self._sticky = StickyPartitioner()

    def route(self, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Split ``rows`` by partition, in their order; raises :class:`BadRow`."""
        if not rows.num_rows:
            return
        for topic, part in self._by_topic(rows):
            for index, run in self._by_partition(topic, part):
                yield TopicPartition(topic, index), run

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            yield self._topic, rows
            return
        column = rows.column("topic")
        if column.null_count:
            raise BadRow("a row's topic is null: give every row a topic, or set the option topic")
        names = pc.unique(column).to_pylist()
        for name in names:
            yield name, rows if len(names) == 1 else rows.filter(pc.equal(column, name))

    def _by_partition(
        self, topic: str, rows: pa.RecordBatch
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        own = rows.column("partition") if "partition" in rows.schema.names else None
        described = self._describe(topic, 1 if own is None else _needed(topic, own))
        count = len(described.partitions)
        if own is not None and _needed(topic, own) > count:
            raise BadRow(
                f"a row's partition is {_needed(topic, own) - 1}, and {topic} has partitions"
                f" 0 to {count - 1}"
            )
        chosen = own
        if (own is None or own.null_count) and "key" in rows.schema.names:
            hashed = pa.array(ArrowColumns.of(rows, key="key").partitions(count), pa.int32())
            chosen = hashed if own is None else pc.coalesce(own, hashed)
        sticky = self._sticky.move_on(described)
        if chosen is None:
            yield sticky, rows
            return
        is_free = pc.less(pc.fill_null(chosen, -1), 0)
        partitions = pc.if_else(is_free, pa.scalar(sticky, pa.int32()), chosen)
        yield from rows_by_partition(rows, partitions)


def _needed(topic: str, partitions: Any) -> int:
    """The number of partitions that ``topic`` must have for these rows."""
    bounds = pc.min_max(partitions).as_py()
    if (bounds["min"] or 0) < 0:
        raise BadRow(f"a row's partition of {topic} is {bounds['min']}: it must be 0 or more")
    return (bounds["max"] or 0) + 1
