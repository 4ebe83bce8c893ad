"""Handing records on one by one, so that the position is always behind the last one given."""

from typing import NamedTuple

from ..types import TopicPartition
from .answers import Answers
from .assignment import Assignment, PartitionState
from .loan import Loan

_ENOUGH = 1024 * 1024
"""Bytes that are lent at a time, if one partition has no more."""


class _Lent(NamedTuple):
    partition: TopicPartition
    state: PartitionState
    loan: Loan


class Iteration:
    """Lends what was fetched to a loop over single records, and takes note of what that gave.

    Of no use to other threads, but for what it lends.
    """

    def __init__(self, assignment: Assignment, answers: Answers) -> None:
        self._assignment = assignment
        self._answers = answers
        self._lent: list[_Lent] = []

    async def lend(self) -> list[Loan]:
        """What was fetched, in place of what was lent before and is used up.

        Raises as a poll.
        """
        self._give_back()
        much = 0
        for partition, state in self._assignment.states.items():
            if much >= _ENOUGH:
                break
            if (fetched := state.ready) is not None:
                much += fetched.nbytes
                state.loan = Loan(fetched)
                self._lent.append(_Lent(partition, state, state.loan))
        loans = [lent.loan for lent in self._lent]
        self._answers.raise_unless(loans)
        return loans

    def end(self) -> None:
        """The loop is left: what was not given is read again by whoever comes next."""
        unread = [
            (lent, lent.loan.read_to)
            for lent in self._lent
            if lent.state.loan is lent.loan and not lent.loan.is_used_up
        ]
        self._give_back()
        for (partition, state, _), read_to in unread:
            epoch = state.epoch
            self._assignment.seek(partition, read_to)
            state.epoch = epoch

    def _give_back(self) -> None:
        for partition, state, loan in self._lent:
            if state.loan is not loan:  # what it was good for became void
                continue
            state.loan = None
            if loan.fetched.position != state.position:
                self._assignment.move_to_end(partition)  # the others have their turn first
            state.has_read(loan.fetched)
            if loan.error is not None:
                self._answers.damaged(partition, state, loan.error)
        self._lent.clear()
