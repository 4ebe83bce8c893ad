"""A commit of offsets on its way: what it stores, and who is told. Compiled, where it can be."""

from collections.abc import Callable, Sequence

from qbus.errors import ApiError, ErrorCode

from .offsets import Offset, TopicPartition

Position = tuple[int, int, int, str]
"""A partition's index, and the offset, the leader epoch and the metadata that are committed."""

Positions = Sequence[tuple[str, bytes, Sequence[Position]]]
"""By topic: its name and id."""


def dated(positions: Positions, committed_at: int) -> dict[TopicPartition, Offset]:
    """The offsets as they are stored; ``committed_at`` in milliseconds since the Unix epoch."""
    offsets: dict[TopicPartition, Offset] = {}
    for topic, topic_id, some in positions:
        for index, offset, leader_epoch, text in some:
            offsets[topic, index] = Offset(offset, leader_epoch, text, committed_at, None, topic_id)
    return offsets


class Saving:
    """Offsets on their way to the log; ``done`` is called with the error, if any."""

    __slots__ = ("_done", "_is_done")

    def __init__(self, done: Callable[[ErrorCode], None]) -> None:
        self._done = done
        self._is_done = False

    def done(self) -> bool:
        """Whether it was told already."""
        return self._is_done

    def set_result(self, result: None) -> None:  # noqa: ARG002 - as of a future
        """They are stored."""
        self._is_done = True
        self._done(ErrorCode.NONE)

    def set_exception(self, error: ApiError) -> None:
        """They are not, or nobody knows."""
        self._is_done = True
        self._done(error.code)
