"""Handing records on one by one, so that the position is always behind the last one given."""

from collections.abc import Iterator

from ..types import ConsumerRecord, PartitionRecords, TopicPartition
from .assignment import Assignment, PartitionState
from .handing import Handing


class Iteration:
    """Between what polls take, many at a time, and a loop over single records."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._waiting: dict[TopicPartition, tuple[PartitionState, Handing]] = {}

    def over(self, polled: list[PartitionRecords]) -> Iterator[Iterator[ConsumerRecord]]:
        """What a poll gave, partition by partition: up to a seek, or the loss of the partition.

        Each is to be read before the next is asked for.
        """
        for batch in polled:
            where = TopicPartition(batch.topic, batch.partition)
            state = self._assignment.states.get(where)
            if state is not None:
                state.handing = Handing(batch.records)
                self._waiting[where] = state, state.handing
        while self._waiting:
            where, (state, handing) = next(iter(self._waiting.items()))
            yield handing.rest
            if state.handing is handing:
                state.handing = None
            del self._waiting[where]

    def end(self) -> None:
        """The loop is left: what was not handed on is read again by whoever comes next."""
        for where, (state, handing) in self._waiting.items():
            if state.handing is handing:
                epoch = state.epoch
                self._assignment.seek(where, handing.read_to)
                state.epoch = epoch
        self._waiting.clear()
