"""What `qbus reassign` does, and the documents that it prints.

A throttle limits the bandwidth of moves (KIP-73): brokers have the rates, and topics name the
replicas that the rates apply to, the sending and the new ones.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from qbus.cli.failures import Failure
from qbus.cli.output import Document
from qbus.cli.reassign.plans import Plan, plan_document, spread
from qbus.clients.types import ConfigKind, TopicPartition
from qbus.errors import ApiError

if TYPE_CHECKING:
    from qbus.clients import Admin, Reassignment


async def generate(
    admin: "Admin", topics: Sequence[str], brokers: Collection[int], *, racks: bool
) -> Document:
    """A plan that spreads ``topics`` (none: all) over ``brokers`` (none: all)."""
    nodes = {node.id: node.rack for node in (await admin.describe_cluster()).nodes}
    if unknown := sorted(set(brokers) - nodes.keys()):
        raise Failure(f"there is no broker {unknown[0]}: there are {sorted(nodes)}")
    chosen = {node: nodes[node] if racks else None for node in brokers or nodes}
    found = (
        [*(await admin.describe_topics(topics)).values()]
        if topics
        else await admin.list_topics(internal=True)
    )
    current = {
        TopicPartition(topic.name, partition.index): partition.replicas
        for topic in found
        for partition in topic.partitions
    }
    return plan_document(spread(current, chosen))


async def execute(admin: "Admin", plan: Plan, rate: int | None) -> Document:
    """Start to move partitions; the result has the plan that moves them back."""
    before = await replicas_of(admin, plan)
    if rate is not None:
        await throttle(admin, rate, before, plan)
    try:
        await admin.alter_reassignments(plan)
    except ApiError:
        if rate is not None and not await admin.list_reassignments(plan):
            await unthrottle(admin, {place.topic for place in plan})
        raise
    return {"moving": plan_document(plan)["partitions"], "before": plan_document(before)}


async def verify(admin: "Admin", plan: Plan, *, keep_throttle: bool) -> Document:
    """The progress of a plan. The throttle is removed once no partition of the plan moves."""
    moving = await admin.list_reassignments(plan)
    now = await replicas_of(admin, plan)
    partitions = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "state": _state(place in moving, now[place], wanted),
            "replicas": list(now[place]),
        }
        for place, wanted in sorted(plan.items())
    ]
    lifted = not moving and not keep_throttle
    if lifted:
        await unthrottle(admin, {place.topic for place in plan})
    return {"partitions": partitions, "throttle_lifted": lifted}


async def cancel(admin: "Admin", plan: Collection[TopicPartition] | None) -> list[Document]:
    """Cancel the moves of ``plan`` (None: all), and remove the throttle; return the moves."""
    moving = await admin.list_reassignments(plan)
    if moving:
        await admin.cancel_reassignments(moving)
    await unthrottle(admin, {place.topic for place in plan or moving})
    return moves(moving)


def moves(moving: "Mapping[TopicPartition, Reassignment]") -> list[Document]:
    """The moves as documents."""
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "replicas": list(move.replicas),
            "adding": list(move.adding),
            "removing": list(move.removing),
        }
        for place, move in sorted(moving.items())
    ]


async def replicas_of(admin: "Admin", plan: Collection[TopicPartition]) -> Plan:
    """The current replicas of partitions; Failure for a partition that does not exist."""
    described = await admin.describe_topics(sorted({place.topic for place in plan}))
    found = {
        TopicPartition(topic.name, partition.index): partition.replicas
        for topic in described.values()
        for partition in topic.partitions
    }
    for place in plan:
        if place not in found:
            raise Failure(f"topic {place.topic} has no partition {place.partition}")
    return {place: found[place] for place in plan}


def _state(is_moving: bool, now: Sequence[int], wanted: Sequence[int]) -> str:
    if is_moving:
        return "moving"
    return "done" if tuple(now) == tuple(wanted) else "elsewhere"


RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"

Replicas = Mapping[TopicPartition, Sequence[int]]


async def throttle(admin: "Admin", rate: int, before: Replicas, after: Replicas) -> None:
    """Limit the moves from ``before`` to ``after`` to ``rate`` bytes per second and broker."""
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
    """Remove the throttle of these topics and of all brokers."""
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
