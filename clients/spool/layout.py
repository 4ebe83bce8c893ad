"""Names of the directories and files of a spool."""

import re
from typing import NamedTuple

from qbus.names import check_topic_name, is_topic_name

LOCK = "lock"
ACKNOWLEDGED = "acknowledged"
UNFINISHED = ".new-"
"""A writer's directory is called so until it holds its lock."""

_ANY = "any"
_QUEUE = re.compile(r"(.+)-(any|0|[1-9]\d{0,9})")
_SEGMENT = re.compile(r"(\d{20})\.log")


class QueueName(NamedTuple):
    """Where batches are to go; ``partition`` is None where any will do."""

    topic: str
    partition: int | None

    def to_path(self) -> str:
        """The name of the directory.

        Raises :class:`~qbus.errors.ApiError` INVALID_TOPIC_EXCEPTION for what no topic is called.
        """
        check_topic_name(self.topic)
        return f"{self.topic}-{_ANY if self.partition is None else self.partition}"


def parse_queue(name: str) -> QueueName | None:
    """The queue that a directory holds, or None for any other directory."""
    match = _QUEUE.fullmatch(name)
    if match is None or not is_topic_name(match[1]):
        return None
    return QueueName(match[1], None if match[2] == _ANY else int(match[2]))


def segment_name(first_offset: int) -> str:
    """The name of the segment that begins with ``first_offset``."""
    return f"{first_offset:020d}.log"


def parse_segment(name: str) -> int | None:
    """The first offset of a segment, or None for any other file."""
    match = _SEGMENT.fullmatch(name)
    return int(match[1]) if match else None
