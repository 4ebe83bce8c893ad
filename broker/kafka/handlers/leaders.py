"""Who leads instead (KIP-951): a client that is refused moves on without asking for metadata.

A fetch's answer has room for a leader's id from version 12 on, and for its address from version 16
on. Like Kafka we name neither before that: some clients take the id and ask a broker that they may
have no address of, as after its restart, and fail (kafka-python: UnknownBrokerIdError).
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from qbus.errors import ErrorCode
from qbus.names import TopicPartition
from qbus.wire.messages.fetch import FetchResponse, LeaderIdAndEpoch, NodeEndpoint

from ...metadata.cache import MetadataCache
from ...metadata.image import BrokerInfo, NodeAddress
from ...partition.partition import Partition

_FIRST_FETCH_WITH_ADDRESSES: Final = 16
_LED_OTHERWISE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Leader(NamedTuple):
    """The leader of a partition; -1 and -1 when no live leader can serve it, or that is
    uncertain."""

    id: int
    epoch: int


def leader_of(metadata: MetadataCache, topic: str | bytes, index: int) -> Leader:
    """Who leads a partition of the topic with this name or id."""
    known = (
        metadata.topics.get(topic) if isinstance(topic, str) else metadata.topics_by_id.get(topic)
    )
    if known is None or not 0 <= index < len(known.partitions):
        return Leader(-1, -1)
    info = known.partitions[index]
    leader, key = metadata.brokers.get(info.leader), TopicPartition(known.name, index)
    if leader is None or key in leader.offline or key in metadata.suspected:
        return Leader(-1, -1)
    return Leader(info.leader, info.leader_epoch)


def reachable(metadata: MetadataCache, ids: set[int], listener: str) -> Iterator[NodeAddress]:
    """Those of some brokers that live, and that clients of a listener have an address of."""
    for node_id in sorted(ids):
        broker = metadata.brokers.get(node_id)
        node = None if broker is None else broker.node(listener)
        if node is not None:
            yield node


def name_leaders(
    metadata: MetadataCache, response: FetchResponse, version: int, listener: str
) -> None:
    """Say in a fetch's answer who leads what is led elsewhere, or in another epoch."""
    if version < _FIRST_FETCH_WITH_ADDRESSES:
        return
    ids = set()
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code in _LED_OTHERWISE:
                leader = leader_of(metadata, topic.topic or topic.topic_id, data.partition_index)
                ids.add(leader.id)
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.id, leader_epoch=leader.epoch
                )
    response.node_endpoints = [
        NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in reachable(metadata, ids, listener)
    ]


def nearest_replica(
    partition: Partition, brokers: Mapping[int, BrokerInfo], rack: str, offset: int
) -> int:
    """One in sync, in the consumer's own rack, that has ``offset``; else the leader.

    Of several the one that has most; the leader, if it is one of them. Asked where the partition is
    led.
    """
    leader, followers = partition.leader_id, partition.followers
    if followers is None or _rack_of(brokers, leader) == rack:
        return leader
    ends = {
        one: followers.end_offset(one)
        for one in followers.state.isr
        if one != leader and _rack_of(brokers, one) == rack and followers.end_offset(one) >= offset
    }
    return max(ends, key=lambda one: ends[one], default=leader)


def _rack_of(brokers: Mapping[int, BrokerInfo], node_id: int) -> str | None:
    """None of one that is not there, or about to leave."""
    broker = brokers.get(node_id)
    return None if broker is None or broker.is_stopping else broker.rack
