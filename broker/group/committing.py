"""A commit of offsets on its way: what it stores, and who is told. Compiled, where it can be."""

from collections.abc import Callable, Sequence
from typing import Final

from qbus.errors import ApiError, ErrorCode

from .offset_records import encode_key
from .offset_table import add_records, positions
from .offsets import Offset, TopicPartition

PackedTopic = tuple[str, bytes, bytes, int]
"""A topic's name and id, packed positions (see :mod:`.offset_table`), and how many there are."""

_PARTITION_BYTES: Final = 4  # the end of a key
_RECORD_BYTES: Final = 64  # about what a record has besides key and metadata


class PackedCommit:
    """What a group commits at once; ``committed_at`` in milliseconds since the Unix epoch.

    ``count`` is the number of positions, ``size`` about that of the bytes of their records.
    """

    __slots__ = ("_prefixes", "committed_at", "count", "group_id", "size", "topics")

    def __init__(self, group_id: str, topics: Sequence[PackedTopic], committed_at: int) -> None:
        self.group_id = group_id
        self.topics = topics
        self.committed_at = committed_at
        self._prefixes: list[bytes] = []
        self.count = self.size = 0
        for name, _, packed, count in topics:
            prefix = encode_key(group_id, name, 0)[:-_PARTITION_BYTES]
            self._prefixes.append(prefix)
            self.count += count
            self.size += len(packed) + count * (len(prefix) + _RECORD_BYTES)

    def add_to(self, batch: bytearray, first: int) -> None:
        """Append its records to those of a batch; see :class:`PackedRecords`."""
        for prefix, (_, topic_id, packed, count) in zip(self._prefixes, self.topics, strict=True):
            add_records(batch, first, prefix, packed, count, self.committed_at, topic_id)
            first += count

    def offsets(self) -> list[tuple[TopicPartition, Offset]]:
        """What it commits, unpacked; of two positions for one partition the later counts."""
        return [
            ((name, index), Offset(offset, epoch, text, self.committed_at, None, topic_id))
            for name, topic_id, packed, count in self.topics
            for index, offset, epoch, text in positions(packed, count)
        ]


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
