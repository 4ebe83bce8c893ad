"""The state of partitions as clients are told of it."""

from typing import NamedTuple

from qbus.errors import ErrorCode
from qbus.metadata.znodes import NO_LEADER
from qbus.names import INTERNAL_TOPICS

from ...metadata.cache import MetadataCache
from ...metadata.image import Topic


class PartitionView(NamedTuple):
    """A partition with the brokers that live: a leader that does not, or is in doubt, is none.

    Nor is one that clients of a listener cannot reach.
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
    offline = [replica for replica in partition.replicas if replica not in live]
    leader = live.get(partition.leader)
    if leader is not None and (topic.name, index) not in metadata.suspected:
        if not leader.serves(listener):
            return PartitionView(ErrorCode.LISTENER_NOT_FOUND, NO_LEADER, offline)
        return PartitionView(ErrorCode.NONE, leader.id, offline)
    return PartitionView(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline)


def is_internal(topic: str) -> bool:
    """Whether it is a topic of the system's own, as Kafka names them."""
    return topic in INTERNAL_TOPICS
