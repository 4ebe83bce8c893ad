"""What there is to compact in a log, and which segments become one. Pure."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from ..log import LogConfig
from ..log.indexes import MaxTimestamp
from ..log.segment import MAX_RELATIVE_OFFSET


class Segment(Protocol):
    """What is to be known of a segment. Reading a timestamp may raise OSError, BadBatch."""

    base_offset: int
    created_ms: int

    @property
    def end_offset(self) -> int:
        """The offset after the last batch."""

    @property
    def size(self) -> int:
        """The length of its file in bytes."""

    @property
    def max_timestamp(self) -> MaxTimestamp:
        """The greatest timestamp, -1 without any."""

    @property
    def first_timestamp(self) -> int:
        """The timestamp of the first batch, -1 without any."""


S = TypeVar("S", bound=Segment)


class Dirt(NamedTuple):
    """The part of a log that is not compacted yet, and may be.

    It begins with ``first_offset`` and ends before ``end_offset``; before it lie ``clean_bytes``.
    ``is_overdue``: it has records that are older than ``max.compaction.lag.ms``.
    """

    first_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """The share of bytes that are not compacted, 0 without any."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0

    def is_due(self, least_ratio: float) -> bool:
        """Whether it is to be compacted, with ``min.cleanable.dirty.ratio``."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > least_ratio)


def find_dirt(
    segments: Sequence[Segment], config: LogConfig, *, cleaned_before: int, limit: int, now_ms: int
) -> Dirt:
    """What is to be compacted of ``segments``, to which nothing is appended any more.

    Nothing with an offset of ``limit`` or later, and nothing behind a segment with records that are
    newer than ``min.compaction.lag.ms``. Raises OSError, BadBatch.
    """
    if not segments:
        return Dirt(cleaned_before, cleaned_before, 0, 0, is_overdue=False)
    first_offset = max(cleaned_before, segments[0].base_offset)
    clean_bytes = sum(one.size for one in segments if one.end_offset <= first_offset)
    end_offset, dirty_bytes, is_overdue = first_offset, 0, False
    for segment in segments:
        if segment.end_offset <= first_offset:
            continue
        if segment.end_offset > limit or _is_young(segment, config, now_ms):
            break
        end_offset = segment.end_offset
        dirty_bytes += segment.size
        is_overdue = is_overdue or _is_overdue(segment, config, now_ms)
    return Dirt(first_offset, end_offset, clean_bytes, dirty_bytes, is_overdue)


def _is_young(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    if not config.min_compaction_lag_ms:
        return False
    timestamp = segment.max_timestamp.timestamp
    newest = timestamp if timestamp >= 0 else segment.created_ms
    return newest > now_ms - config.min_compaction_lag_ms


def _is_overdue(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    first = segment.first_timestamp
    return 0 <= first < now_ms - config.max_compaction_lag_ms


def grouped(segments: Sequence[S], end_offset: int, config: LogConfig) -> list[list[S]]:
    """Those ``segments`` that begin before ``end_offset``, grouped by what becomes one segment.

    A group is no larger than ``segment.bytes``, and its offsets fit an index, unless a single
    segment's do not. A segment without batches, which stands for a gap, is left as it is.
    """
    groups: list[list[S]] = []
    size = 0
    is_open = False
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if not segment.size:
            is_open = False
            continue
        fits = (
            is_open
            and size + segment.size <= config.segment_bytes
            and segment.end_offset - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        )
        if fits:
            groups[-1].append(segment)
            size += segment.size
        else:
            groups.append([segment])
            size = segment.size
        is_open = True
    return groups
