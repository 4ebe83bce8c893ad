"""Which partition a record goes to: the same one as with Java's default partitioner.

A key's hash decides, so that every client sends a key to the same partition. Records without a key
stick to one partition until its batch is done and then move on, for fuller batches (KIP-480).
"""

import random
import struct

from qbus.records.crc import Buffer

from .types import TopicDescription

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: Buffer) -> int:
    """The 32-bit MurmurHash2 of ``data``, unsigned, with the seed of Kafka's clients."""
    words, rest = divmod(len(data), 4)
    hashed = _SEED ^ len(data)
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = word * _M & _MASK
        mixed = (mixed ^ mixed >> 24) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ mixed
    if rest:
        hashed = (hashed ^ int.from_bytes(data[-rest:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def partition_for_key(key: Buffer, partitions: int) -> int:
    """The partition, of so many, of the records with ``key``."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Where records without a key go now."""

    def __init__(self) -> None:
        self._current: dict[str, int] = {}

    def current(self, topic: TopicDescription) -> int:
        """The partition to stay with; one with a leader if there is any."""
        partition = self._current.get(topic.name)
        if partition is None or not _has_leader(topic, partition):
            return self.move_on(topic)
        return partition

    def move_on(self, topic: TopicDescription) -> int:
        """Another partition than now, for the next batch."""
        led = [part.index for part in topic.partitions if _has_leader(topic, part.index)]
        candidates = led or [part.index for part in topic.partitions]
        now = self._current.get(topic.name)
        others = [index for index in candidates if index != now]
        self._current[topic.name] = random.choice(others or candidates)  # noqa: S311
        return self._current[topic.name]


def _has_leader(topic: TopicDescription, partition: int) -> bool:
    return partition < len(topic.partitions) and topic.partitions[partition].leader >= 0
