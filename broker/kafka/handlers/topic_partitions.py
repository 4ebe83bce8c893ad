"""The state of partitions as clients are told of it."""

from typing import NamedTuple

from qbus.errors import ErrorCode
from qbus.metadata.znodes import NO_LEADER
from qbus.names import INTERNAL_TOPICS, TopicPartition

from ...metadata.cache import MetadataCache
from ...metadata.image import Topic


class PartitionView(NamedTuple):
    """A partition with the brokers that can serve it.

    A leader does not count when its broker is gone, cannot use its replica, may have been replaced,
    or has no listener that the client could reach.
    """

    error: ErrorCode
    leader: int
    offline: list[int]


def view(
    metadata: MetadataCache, topic: Topic, index: int, listener: str = "PLAINTEXT"
) -> PartitionView:
    """What a client of a listener can do with a partition now.

    LEADER_NOT_AVAILABLE has it try again, and LISTENER_NOT_FOUND, too: the leader has no listener
    of that name.
    """
    live, partition = metadata.brokers, topic.partitions[index]
    key = TopicPartition(topic.name, index)
    offline = [
        replica
        for replica in partition.replicas
        if replica not in live or key in live[replica].offline
    ]
    leader = live.get(partition.leader)
    if leader is not None and leader.id not in offline and key not in metadata.suspected:
        if not leader.serves(listener):
            return PartitionView(ErrorCode.LISTENER_NOT_FOUND, NO_LEADER, offline)
        return PartitionView(ErrorCode.NONE, leader.id, offline)
    return PartitionView(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline)


def is_internal(topic: str) -> bool:
    """Whether it is a topic of the system's own, as Kafka names them."""
    return topic in INTERNAL_TOPICS
