"""The names of a spool's directories and files."""

import re
from typing import NamedTuple

from qbus.names import check_topic_name, is_topic_name

LOCK = "lock"
ACKNOWLEDGED = "acknowledged"
UNFINISHED = ".new-"
"""Prefix of a writer's directory until it holds its lock."""

_ANY = "any"
_QUEUE = re.compile(r"(.+)-(any|0|[1-9]\d{0,9})")
_SEGMENT = re.compile(r"(\d{20})\.log")


class QueueName(NamedTuple):
    """The destination of batches; ``partition`` None: any."""

    topic: str
    partition: int | None

    def to_path(self) -> str:
        """Return the name of the directory.

        Raises :class:`~qbus.errors.ApiError` INVALID_TOPIC_EXCEPTION for an invalid topic name.
        """
        check_topic_name(self.topic)
        return f"{self.topic}-{_ANY if self.partition is None else self.partition}"


def parse_queue(name: str) -> QueueName | None:
    """Return the queue that a directory holds, or None for any other directory."""
    match = _QUEUE.fullmatch(name)
    if match is None or not is_topic_name(match[1]):
        return None
    return QueueName(match[1], None if match[2] == _ANY else int(match[2]))


def segment_name(first_offset: int) -> str:
    """Return the name of the segment that begins with ``first_offset``."""
    return f"{first_offset:020d}.log"


def parse_segment(name: str) -> int | None:
    """Return the first offset of a segment, or None for any other file."""
    match = _SEGMENT.fullmatch(name)
    return int(match[1]) if match else None
