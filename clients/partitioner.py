"""Which partition a record goes to: the same one as with Java's default partitioner.

A key's hash decides, so that every client sends a key to the same partition. Records without a key
stick to one partition until its batch is done and then move on, for fuller batches (KIP-480).
"""

import random
from collections.abc import Collection, Sequence

from qbus.records import murmur2
from qbus.records.crc import Buffer

from .types import TopicDescription

__all__ = ["StickyPartitioner", "murmur2", "partition_for_key"]


def partition_for_key(key: Buffer, partitions: int) -> int:
    """The partition, of so many, of the records with ``key``."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Where records without a key go now: to a partition with a leader, if there is any.

    ``silent``: brokers that do not answer, whose partitions are the second choice.
    """

    def __init__(self) -> None:
        self._current: dict[str, int] = {}

    def current(self, topic: TopicDescription, silent: Collection[int] = ()) -> int:
        """The partition to stay with."""
        partition = self._current.get(topic.name)
        if partition is None or not _is_led(topic, partition, silent):
            return self.move_on(topic, silent)
        return partition

    def move_on(self, topic: TopicDescription, silent: Collection[int] = ()) -> int:
        """Another partition than now, for the next batch."""
        every = [part.index for part in topic.partitions]
        led = [index for index in every if _is_led(topic, index, silent)]
        return self._choose(topic, led or [i for i in every if _is_led(topic, i, ())] or every)

    def among(self, topic: TopicDescription, partitions: Sequence[int]) -> int:
        """The partition to stay with, one of those."""
        now = self._current.get(topic.name)
        return now if now is not None and now in partitions else self._choose(topic, partitions)

    def _choose(self, topic: TopicDescription, candidates: Sequence[int]) -> int:
        now = self._current.get(topic.name)
        others = [index for index in candidates if index != now]
        chosen = random.choice(others or candidates)  # noqa: S311 - not a secret
        self._current[topic.name] = chosen
        return chosen


def _is_led(topic: TopicDescription, partition: int, silent: Collection[int]) -> bool:
    if partition >= len(topic.partitions):
        return False
    leader = topic.partitions[partition].leader
    return leader >= 0 and leader not in silent
