"""Handing out what was fetched, so that the position is always behind the last record given."""

from typing import NamedTuple

from ..types import TopicPartition
from .assignment import Assignment, PartitionState
from .fetch_cursor import FetchCursor
from .fetch_responses import FetchResponses

ENOUGH = 1024 * 1024
"""Bytes that are lent at a time, if one partition has no more."""


class _Open(NamedTuple):
    partition: TopicPartition
    state: PartitionState
    cursor: FetchCursor


class FetchBuffer:
    """Lends what was fetched to polls and loops, and takes note of what those gave.

    Of no use to other threads, but for what it lends.
    """

    def __init__(self, assignment: Assignment, responses: FetchResponses) -> None:
        self._assignment = assignment
        self._responses = responses
        self._open: list[_Open] = []

    def open_cursors(self, enough: int = ENOUGH) -> list[FetchCursor]:
        """What was fetched, ``enough`` bytes or some more, one answer of each partition.

        What was lent before has been taken back. Raises as a poll.
        """
        much = 0
        for partition, state in self._assignment.states.items():
            if much >= enough:
                break
            if (fetched := state.ready) is not None:
                much += fetched.nbytes
                state.cursor = FetchCursor(fetched)
                self._open.append(_Open(partition, state, state.cursor))
        cursors = [opened.cursor for opened in self._open]
        self._responses.raise_unless(cursors)
        return cursors

    def close_cursors(self) -> None:
        """Whoever comes next goes on behind what was given, the loop itself or another."""
        for partition, state, cursor in self._open:
            if state.cursor is not cursor:  # what it was good for became void
                continue
            before = state.position
            state.close_cursor()
            if state.position != before:
                self._assignment.move_to_end(partition)  # the others have their turn first
            if cursor.error is not None:
                self._responses.damaged(partition, state, cursor.error)
        self._open.clear()
