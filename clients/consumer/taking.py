"""What polls return of what was fetched."""

from typing import Any

from qbus.errors import QbusError
from qbus.records import CorruptBatch, RecordColumns, to_arrow

from ..types import ConsumerRecord, PartitionRecords, TopicPartition
from .answers import Answers
from .assignment import Assignment, PartitionState


class Taking:
    """Takes from the partitions in turn; those that gave some come last the next time.

    What cannot be read is raised, after what can.
    """

    def __init__(self, assignment: Assignment, answers: Answers) -> None:
        self._assignment = assignment
        self._answers = answers

    def records(self, limit: int) -> list[PartitionRecords]:
        """Up to ``limit`` records, by partition.

        Raises :class:`~qbus.errors.ApiError`.
        """
        taken: list[PartitionRecords] = []
        for partition, state in list(self._assignment.states.items()):
            records: list[ConsumerRecord] = []
            while len(records) < limit and (fetched := _next(state)) is not None:
                try:
                    found = fetched.take(limit - len(records))
                    records = records + found if records else found
                except CorruptBatch as error:
                    self._damaged(partition, state, error)
                    break
                finally:
                    _follow(state)
            if records:
                taken.append(PartitionRecords(*partition, records))
                limit -= len(records)
                self._assignment.move_to_end(partition)
        self._raise_unless(taken)
        return taken

    def arrow(self, limit: int) -> list[Any]:
        """Whole batches of about ``limit`` records, one Arrow batch for each partition."""
        taken: list[Any] = []
        for partition, state in list(self._assignment.states.items()):
            columns = RecordColumns()
            while columns.rows < limit and (fetched := _next(state)) is not None:
                try:
                    fetched.take_columns(columns, limit)
                except CorruptBatch as error:
                    self._damaged(partition, state, error)
                    break
                finally:
                    _follow(state)
            if columns.rows:
                taken.append(to_arrow(columns, *partition))
                limit -= columns.rows
                self._assignment.move_to_end(partition)
        self._raise_unless(taken)
        return taken

    def _damaged(
        self, partition: TopicPartition, state: PartitionState, error: CorruptBatch
    ) -> None:
        """Whoever polls again without going elsewhere reads the same again."""
        topic, index = partition
        _follow(state)
        state.drop()
        failure = CorruptBatch(f"{topic}-{index} at {state.position}: {error}")
        failure.__cause__ = error
        self._answers.failure = failure

    def _raise_unless(self, taken: list[Any]) -> None:
        failure: QbusError | None = self._answers.failure
        if failure is not None and not taken:
            self._answers.failure = None
            raise failure


def _next(state: PartitionState) -> Any:
    if state.is_paused or state.is_stopped or not state.fetched:
        return None
    return state.fetched[0]


def _follow(state: PartitionState) -> None:
    """The position is behind what was taken."""
    if state.fetched:
        fetched = state.fetched[0]
        state.position = fetched.position
        if fetched.epoch >= 0:
            state.epoch = fetched.epoch
        if fetched.is_exhausted:
            state.fetched.popleft()
