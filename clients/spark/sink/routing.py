"""Which rows go to which partition: by Arrow's means, without a look at single rows."""

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
"""Tells of a topic; it is looked up anew if fewer partitions of it are known."""


class BadRow(QbusError):  # noqa: N818 - what was found
    """A row that cannot be written; nothing of its micro-batch is."""


class Router:
    """Shares rows out as the SDK's producer does: by the hash of the key, else in turn.

    A row's own ``partition`` goes first. Rows without a key stay together for one Arrow batch.
    """

    def __init__(self, topic: str | None, describe: Describe) -> None:
        """``topic``: where all rows go; None: each row's own."""
        self._topic = topic
        self._describe = describe
        self._sticky = StickyPartitioner()

    def route(self, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Which of ``rows`` go where, in their order; raises :class:`BadRow`."""
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
            raise BadRow(
                "a row's topic is null: give every row a topic, or all of them one with the"
                " option topic"
            )
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
        settled = pc.if_else(is_free, pa.scalar(sticky, pa.int32()), chosen)
        yield from rows_by_partition(rows, settled)


def _needed(topic: str, partitions: Any) -> int:
    """How many partitions ``topic`` must have for rows that name theirs."""
    bounds = pc.min_max(partitions).as_py()
    if (bounds["min"] or 0) < 0:
        raise BadRow(f"a row's partition of {topic} is {bounds['min']}: none is below 0")
    return (bounds["max"] or 0) + 1
