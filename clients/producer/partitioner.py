"""The partition of each record, the same one that Java's default partitioner chooses.

A key's hash decides, so that every client sends a key to the same partition. Records without a key
stick to one partition until its batch is full and then move on, which fills batches better
(KIP-480).
"""

import random
from collections.abc import Collection, Sequence
from operator import index
from typing import SupportsIndex

from qbus.errors import ApiError, ErrorCode
from qbus.records import Buffer, murmur2

from ..types import TopicDescription
from .options import Partitioner


def partition_for_key(key: Buffer, partitions: int) -> int:
    """Return the partition, out of ``partitions``, of the records with ``key``."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Chooses partitions for records without a key, those with a leader first.

    ``silent``: brokers that do not answer; their partitions are the second choice.
    """

    def __init__(self) -> None:
        self._current: dict[str, int] = {}

    def current(self, topic: TopicDescription, silent: Collection[int] = ()) -> int:
        """Return the partition to stay with."""
        partition = self._current.get(topic.name)
        if partition is None or not _is_led(topic, partition, silent):
            return self.move_on(topic, silent)
        return partition

    def move_on(self, topic: TopicDescription, silent: Collection[int] = ()) -> int:
        """Choose another partition for the next batch."""
        every = [part.index for part in topic.partitions]
        led = [index for index in every if _is_led(topic, index, silent)]
        return self._choose(topic, led or [i for i in every if _is_led(topic, i, ())] or every)

    def among(self, topic: TopicDescription, partitions: Sequence[int]) -> int:
        """Return the partition to stay with, out of ``partitions``."""
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


class Router:
    """Chooses a record's partition: the caller's choice, else the partitioner's, the key's, the
    sticky one.

    ``silent``: brokers that do not answer now; their partitions are avoided while there are others.
    The set is replaced, never changed in place, because other threads read it.
    """

    def __init__(self, partitioner: Partitioner | None) -> None:
        self.silent: frozenset[int] = frozenset()
        self._partitioner = partitioner
        self._sticky = StickyPartitioner()

    def fixed(
        self,
        topic: TopicDescription,
        key: Buffer | None,
        value: Buffer | None,
        partition: SupportsIndex | None,
        broker: SupportsIndex | None,
    ) -> int | None:
        """Return the only possible partition; None: any.

        Raises :class:`~qbus.errors.ApiError`, and whatever a partitioner function raises.
        """
        leader = None if broker is None else index(broker)
        if partition is not None:
            return _checked(topic, index(partition), leader)
        if self._partitioner is not None and leader is None:
            chosen = self._partitioner(topic, key, value)
            return None if chosen is None else _checked(topic, index(chosen), None)
        if leader is not None:
            led = [part.index for part in topic.partitions if part.leader == leader]
            if not led:
                raise ApiError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"broker {leader} leads nothing of {topic.name}"
                )
            if key is None:
                return self._sticky.among(topic, led)
            return led[partition_for_key(key, len(led))]
        return None if key is None else partition_for_key(key, len(topic.partitions))

    @property
    def is_by_key(self) -> bool:
        """Whether keys alone decide."""
        return self._partitioner is None

    def current(self, topic: TopicDescription) -> int:
        """Return the partition for records that may go to any."""
        return self._sticky.current(topic, self.silent)

    def move_on(self, topic: TopicDescription) -> int:
        """Choose another one for the next batch."""
        return self._sticky.move_on(topic, self.silent)


def _checked(topic: TopicDescription, partition: int, broker: int | None) -> int:
    if not 0 <= partition < len(topic.partitions):
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {partition}"
        )
    if broker is not None and topic.partitions[partition].leader != broker:
        raise ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {broker} does not lead {topic.name}-{partition}",
        )
    return partition
