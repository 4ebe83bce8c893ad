"""How much a micro-batch reads, and how that is split among tasks. Pure."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from ...types import TopicPartition
from .offsets import Marks


@dataclass(frozen=True, order=True)
class OffsetRange(InputPartition):
    """The records from ``start`` to before ``end``, of the topic that has this id."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str

    def __len__(self) -> int:
        """How many offsets it spans: as many records, but for those that compaction removed."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.start} to {self.end}"

    @property
    def where(self) -> TopicPartition:
        """The partition that it is of."""
        return TopicPartition(self.topic, self.partition)


def backlog(begin: Marks, end: Marks) -> dict[TopicPartition, int]:
    """How many offsets each partition of ``end`` is behind."""
    return {where: max(at - begin[where], 0) for where, at in end.items()}


def admit(begin: Marks, end: Marks, limit: int) -> dict[TopicPartition, int]:
    """Where a batch of about ``limit`` records ends: each partition's share is as its backlog.

    Every partition with a backlog gets on by a record at least, however small the limit.
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
    """The ranges, cut so that there are ``min_partitions``, and none has over ``max_records``.

    What is largest is cut first, into parts as equal as can be; nothing below one record.
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
