"""Fetched records, and the cursors that polls and loops read them with."""

from typing import NamedTuple

from ..types import TopicPartition
from .assignment import Assignment, PartitionState
from .fetch_cursor import FetchCursor
from .fetch_responses import FetchResponses

ENOUGH = 1024 * 1024
"""Bytes that cursors are opened for at a time, unless one partition has more."""


class _Open(NamedTuple):
    partition: TopicPartition
    state: PartitionState
    cursor: FetchCursor


class FetchBuffer:
    """Opens cursors on fetched records, and keeps positions behind the last delivered record.

    Not thread-safe; the cursors it opens are.
    """

    def __init__(self, assignment: Assignment, responses: FetchResponses) -> None:
        self._assignment = assignment
        self._responses = responses
        self._open: list[_Open] = []

    def open_cursors(self, enough: int = ENOUGH) -> list[FetchCursor]:
        """Open a cursor on one fetched answer of each partition, for about ``enough`` bytes.

        All earlier cursors are closed. Raises as a poll.
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
        """Close all cursors: the next reader continues behind what they delivered."""
        for partition, state, cursor in self._open:
            if state.cursor is not cursor:  # it was closed by a seek or a revocation
                continue
            before = state.position
            state.close_cursor()
            if state.position != before:
                self._assignment.move_to_end(partition)  # other partitions have their turn first
            if cursor.error is not None:
                self._responses.damaged(partition, state, cursor.error)
        self._open.clear()
