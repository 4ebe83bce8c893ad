"""Bounding what moves of partitions may take of the network (KIP-73).

Brokers have the rates; topics name the replicas for which these count: those that send, and those
that are made.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from qbus.clients.types import ConfigKind, TopicPartition

if TYPE_CHECKING:
    from qbus.clients import Admin

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"

Replicas = Mapping[TopicPartition, Sequence[int]]


async def throttle(admin: "Admin", rate: int, before: Replicas, after: Replicas) -> None:
    """Let the moves from ``before`` to ``after`` take ``rate`` bytes a second of each broker."""
    coming = {
        place: [node for node in after[place] if node not in before[place]] for place in after
    }
    for topic in sorted({place.topic for place in after}):
        lists = {LEADERS: _listed(topic, before), FOLLOWERS: _listed(topic, coming)}
        await admin.alter_config(ConfigKind.TOPIC, topic, set=lists)
    involved = {node for some in (before, after) for nodes in some.values() for node in nodes}
    for node in (await admin.describe_cluster()).nodes:
        if node.id in involved:
            rates = dict.fromkeys(RATES, str(rate))
            await admin.alter_config(ConfigKind.BROKER, str(node.id), set=rates)


async def unthrottle(admin: "Admin", topics: Iterable[str]) -> None:
    """Lift what :func:`throttle` set, for these topics and on all brokers."""
    for topic in sorted(set(topics)):
        await admin.alter_config(ConfigKind.TOPIC, topic, unset=(LEADERS, FOLLOWERS))
    for node in (await admin.describe_cluster()).nodes:
        await admin.alter_config(ConfigKind.BROKER, str(node.id), unset=RATES)


def _listed(topic: str, replicas: Replicas) -> str:
    return ",".join(
        f"{place.partition}:{node}"
        for place, nodes in sorted(replicas.items())
        if place.topic == topic
        for node in nodes
    )
