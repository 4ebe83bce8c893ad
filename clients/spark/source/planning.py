"""How much a micro-batch reads, and how it is split among tasks. Pure."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from ...types import TopicPartition
from .offsets import Marks


@dataclass(frozen=True, order=True)
class OffsetRange(InputPartition):
    """What one task reads: offsets from ``start`` to before ``end``, of the topic with this id."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str

    def __len__(self) -> int:
        """The number of offsets; there are fewer records if compaction has removed some."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.start} to {self.end}"

    @property
    def where(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


def backlog(begin: Marks, end: Marks) -> dict[TopicPartition, int]:
    """The number of offsets to read in each partition of ``end``."""
    return {where: max(at - begin[where], 0) for where, at in end.items()}


def admit(begin: Marks, end: Marks, limit: int) -> dict[TopicPartition, int]:
    """The end of a batch of about ``limit`` records, shared in proportion to the backlogs.

    Every partition with a backlog advances by at least one record.
    """
    behind = backlog(begin, end)
    total = sum(behind.values())
    if total <= limit:
        return dict(end)
    return {
        where: begin[where] + min(max(limit * rows // total, 1), rows) if rows else at
        for (where, at), rows in zip(end.items(), behind.values(), strict=True)
    }


def split(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Cut the ranges into ``min_partitions`` or more, of ``max_records`` or fewer.

    The largest ranges are cut first, into equal parts of at least one record.
    """
    ranges = [each for each in ranges if len(each) > 0]
    parts = [1 if max_records is None else -(-len(each) // max_records) for each in ranges]
    missing = (min_partitions or 0) - sum(parts)
    largest = [(-len(each) / parts[i], i) for i, each in enumerate(ranges)]
    heapq.heapify(largest)
    while missing > 0 and largest:
        size, index = heapq.heappop(largest)
        if -size <= 1:
            break
        parts[index] += 1
        missing -= 1
        heapq.heappush(largest, (-len(ranges[index]) / parts[index], index))
    return [piece for each, count in zip(ranges, parts, strict=True) for piece in _cut(each, count)]


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    cuts = [whole.start + len(whole) * index // count for index in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(cuts) if start < end]
