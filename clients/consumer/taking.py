"""What is taken of what was fetched, as columns."""

import asyncio
from collections.abc import Iterable
from typing import Any

from qbus.records import CorruptBatch, RecordColumns, to_arrow

from ..types import TopicPartition
from .answers import Answers
from .assignment import Assignment, PartitionState
from .fetched import Fetched
from .spare import SpareColumns

_MUCH = 256 * 1024
"""Bytes that take longer to decode than it takes to have a thread do it."""


class Taking:
    """Takes from the partitions in turn; those that gave some come last the next time.

    What cannot be read is raised, after what can.
    """

    def __init__(self, assignment: Assignment, answers: Answers) -> None:
        self._assignment = assignment
        self._answers = answers
        self._spare = SpareColumns()

    async def arrow(self, limit: int) -> list[Any]:
        """Whole batches of about ``limit`` records, one Arrow batch for each partition.

        Much is decoded in a thread, while the loop receives what comes next.
        """
        columns = [
            _PartitionColumns(partition, state, self._spare.take())
            for partition, state in self._assignment.states.items()
            if state.ready is not None
        ]
        try:
            if sum(each.nbytes for each in columns) > _MUCH:
                await asyncio.to_thread(_decode, columns, limit)
            else:
                _decode(columns, limit)
        except BaseException:  # nobody gets what is decoded, by a thread perhaps that goes on
            for each in columns:
                each.state.fetched.clear()  # it is fetched again, from the position on
            raise
        taken = [batch for each in columns if (batch := self._arrow(each)) is not None]
        self._answers.raise_unless(taken)
        return taken

    def _arrow(self, columns: "_PartitionColumns") -> Any:
        """What was decoded of a partition, unless the user went elsewhere in it meanwhile."""
        partition, state = columns.partition, columns.state
        if columns.batch is None:
            self._spare.lend(columns.columns)
        if state.cuts != columns.cuts or self._assignment.states.get(partition) is not state:
            return None
        for fetched in columns.begun:
            state.has_read(fetched)
        if columns.error is not None:
            self._answers.damaged(partition, state, columns.error)
        if columns.batch is not None:
            self._assignment.move_to_end(partition)
            self._spare.lend(columns.columns)
        return columns.batch


class _PartitionColumns:
    """What one partition has, on its way to an Arrow batch: whoever decodes has no other state.

    ``begun`` are the answers that were decoded, the last one perhaps in part.
    """

    def __init__(
        self, partition: TopicPartition, state: PartitionState, columns: RecordColumns
    ) -> None:
        self.partition = partition
        self.state = state
        self.columns = columns
        self.cuts = state.cuts
        self.begun: list[Fetched] = []
        self.batch: Any = None
        self.error: CorruptBatch | None = None
        self._fetched = tuple(state.fetched)

    @property
    def nbytes(self) -> int:
        """Bytes to decode, at most."""
        return sum(fetched.nbytes for fetched in self._fetched)

    def decode(self, limit: int) -> int:
        """Decode about ``limit`` records; how many there are."""
        columns = self.columns
        for fetched in self._fetched:
            if columns.rows >= limit:
                break
            self.begun.append(fetched)
            try:
                fetched.take_columns(columns, limit)
            except CorruptBatch as error:
                self.error = error
                break
            if not fetched.is_exhausted:
                break  # what is left of it comes before the next
        if columns.rows:
            self.batch = to_arrow(columns, *self.partition)
        return columns.rows


def _decode(columns: Iterable[_PartitionColumns], limit: int) -> None:
    for each in columns:
        if limit > 0:
            limit -= each.decode(limit)
