"""Names of the files and directories of a partition, as Kafka gives them."""

import re
from typing import Final, NamedTuple

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
CONTROL_INDEX_SUFFIX: Final = ".controlindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
CONTROL_SNAPSHOT_SUFFIX: Final = ".control"
DELETED_SUFFIX: Final = ".deleted"
TEMPORARY_SUFFIX: Final = ".tmp"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
DELETED_DIRECTORY_SUFFIX: Final = "-delete"
FUTURE_DIRECTORY_SUFFIX: Final = "-future"
STRAY_DIRECTORY_SUFFIX: Final = "-stray"

INDEX_SUFFIXES: Final = (
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    CONTROL_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
SNAPSHOT_SUFFIXES: Final = (SNAPSHOT_SUFFIX, CONTROL_SNAPSHOT_SUFFIX)
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES, *SNAPSHOT_SUFFIXES)

_NUMBERED: Final = re.compile(
    r"(\d{20})(\.log|\.index|\.timeindex|\.controlindex|\.txnindex|\.snapshot|\.control)"
)
_PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,9})")


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def numbered(offset: int, suffix: str) -> str:
    """The name of the file of ``offset``: twenty digits and a suffix."""
    return f"{offset:020d}{suffix}"


def parse_numbered(name: str) -> tuple[int, str] | None:
    """The offset and the suffix of a segment's file, or None for any other file."""
    match = _NUMBERED.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_partition(name: str) -> TopicPartition | None:
    """The partition that a directory is named for, or None when it is no partition's."""
    match = _PARTITION.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None
