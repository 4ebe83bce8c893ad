"""Handing out what was fetched, so that the position is always behind the last record given."""

from typing import NamedTuple

from ..types import TopicPartition
from .assignment import Assignment, PartitionState
from .fetch_cursor import FetchCursor
from .fetch_responses import Answers

ENOUGH = 1024 * 1024
"""Bytes that are lent at a time, if one partition has no more."""


class _Lent(NamedTuple):
    partition: TopicPartition
    state: PartitionState
    loan: FetchCursor


class FetchBuffer:
    """Lends what was fetched to polls and loops, and takes note of what those gave.

    Of no use to other threads, but for what it lends.
    """

    def __init__(self, assignment: Assignment, answers: Answers) -> None:
        self._assignment = assignment
        self._answers = answers
        self._lent: list[_Lent] = []

    def lend(self, enough: int = ENOUGH) -> list[FetchCursor]:
        """What was fetched, ``enough`` bytes or some more, one answer of each partition.

        What was lent before has been taken back. Raises as a poll.
        """
        much = 0
        for partition, state in self._assignment.states.items():
            if much >= enough:
                break
            if (fetched := state.ready) is not None:
                much += fetched.nbytes
                state.loan = FetchCursor(fetched)
                self._lent.append(_Lent(partition, state, state.loan))
        loans = [lent.loan for lent in self._lent]
        self._answers.raise_unless(loans)
        return loans

    def take_back(self) -> None:
        """Whoever comes next goes on behind what was given, the loop itself or another."""
        for partition, state, loan in self._lent:
            if state.loan is not loan:  # what it was good for became void
                continue
            before = state.position
            state.take_back()
            if state.position != before:
                self._assignment.move_to_end(partition)  # the others have their turn first
            if loan.error is not None:
                self._answers.damaged(partition, state, loan.error)
        self._lent.clear()
