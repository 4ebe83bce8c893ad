"""Which replica a consumer had best read from (KIP-392)."""

from collections.abc import Mapping

from ...metadata.image import BrokerInfo
from ...partition.partition import Partition


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
