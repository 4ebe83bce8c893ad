"""Handing records on one by one, so that the position is always behind the last one given."""

from collections.abc import Iterable, Iterator

from ..types import ConsumerRecord, PartitionRecords, TopicPartition
from .assignment import Assignment, PartitionState


class Iteration:
    """Between what polls take, many at a time, and a loop over single records."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._waiting: dict[TopicPartition, tuple[PartitionState, int, int]] = {}

    def begin(self, polled: list[PartitionRecords]) -> Iterable[PartitionRecords]:
        """Take over what a poll gave: it is not read before it is handed on."""
        for batch in polled:
            where = TopicPartition(batch.topic, batch.partition)
            state = self._assignment.states.get(where)
            if state is not None and where not in self._waiting:
                first = batch.records[0].offset
                self._waiting[where] = state, state.cuts, first
                state.handed = batch.records[0]._replace(offset=first - 1)
        return polled

    def of(self, batch: PartitionRecords) -> Iterator[ConsumerRecord]:
        """The records of a batch, up to a seek or the loss of the partition."""
        where = TopicPartition(batch.topic, batch.partition)
        found = self._waiting.get(where)
        if found is None:
            return
        state, cuts, _ = found
        for record in batch.records:
            if state.cuts != cuts:
                break
            state.handed = record
            yield record
        if state.cuts == cuts and batch.records[-1] is state.handed:
            self._done(where, state)

    def _done(self, where: TopicPartition, state: PartitionState) -> None:
        state.handed = None
        self._waiting.pop(where, None)

    def end(self) -> None:
        """The loop is left: what was not handed on is read again by whoever comes next."""
        for where, (state, cuts, _) in self._waiting.items():
            if state.cuts == cuts and state.handed is not None:
                epoch = state.epoch
                self._assignment.seek(where, state.handed.offset + 1)
                state.epoch = epoch
        self._waiting.clear()
