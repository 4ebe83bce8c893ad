"""Leader elections as pure functions: which partition states are due, and who leads.

Elections are due when brokers come or go, when preferred replicas do not lead (KIP-183), and when
users ask for them (KIP-460). A write of an outcome checks the version that it was made from.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from qbus.config import TopicConfig
from qbus.errors import ApiError, ErrorCode
from qbus.metadata.znodes import NO_LEADER, PartitionStateNode

from ..metadata.cache import MetadataCache
from ..metadata.image import PartitionInfo, Topic, machines_of
from ..metadata.partition_states import Policy, elect, policy, without
from .placement import NO_MACHINES


class TopicRules(NamedTuple):
    """The part of a topic's configuration that elections need."""

    min_isr: int
    is_durable: bool
    is_unclean: bool

    def wanted(self, replicas: int) -> Policy:
        """Return the policy of a partition with this number of replicas."""
        return policy(self.min_isr, replicas, is_durable=self.is_durable)


class StateChange(NamedTuple):
    """A new state of a partition of ``topic``, replacing the one with ``version``."""

    topic: Topic
    partition: int
    state: PartitionStateNode
    version: int

    @property
    def path(self) -> str:
        """The node that holds the state."""
        return PartitionStateNode.path(self.topic.name, self.partition)


class View(NamedTuple):
    """The view of the cluster from which elections are decided.

    ``live`` brokers are registered; ``electable`` ones are not about to stop. ``full`` ones have no
    room for more records and lead only where no other replica can. ``machines``: of brokers that
    share one.
    """

    live: Collection[int]
    electable: Collection[int]
    controller_epoch: int
    rules: Callable[[Topic], TopicRules]
    full: Collection[int] = ()
    machines: Mapping[int, str] = NO_MACHINES

    def without(self, brokers: Collection[int]) -> "View":
        """Return the view of a partition that ``brokers`` cannot use their replicas of."""
        return self._replace(
            live={broker for broker in self.live if broker not in brokers},
            electable={broker for broker in self.electable if broker not in brokers},
        )

    def preference(self, replicas: Sequence[int]) -> list[int]:
        """Sort ``replicas`` by preference for leadership."""
        return sorted(replicas, key=lambda replica: replica in self.full)


def rules_of(config: TopicConfig) -> TopicRules:
    """Extract the rules from a configuration."""
    return TopicRules(
        config.min_insync_replicas,
        config.qbus_durability == "fsync",
        config.unclean_leader_election_enable,
    )


def current_view(metadata: MetadataCache) -> View:
    """Take a view of the cluster from the metadata cache."""
    brokers = metadata.brokers
    return View(
        brokers.keys(),
        {broker.id for broker in brokers.values() if not broker.is_stopping},
        metadata.cluster.controller_epoch,
        lambda topic: rules_of(metadata.topic_config(topic)),
        {broker.id for broker in brokers.values() if broker.is_full},
        machines_of(brokers.values()),
    )


def first_state(replicas: Sequence[int], controller_epoch: int) -> PartitionStateNode:
    """Return the state of a new partition: the preferred replica leads, all are in sync."""
    return PartitionStateNode(replicas[0], 0, tuple(replicas), controller_epoch)


def due_elections(topics: Iterable[Topic], view: View) -> list[StateChange]:
    """Find the states that must change because brokers are gone or came back.

    A broker that is gone leaves every ISR, because acks=all would wait for it. A partition gets a
    leader as soon as one is available, and another one when its leader has no room and a replica in
    sync has.
    """
    return [*_changes(topics, view, _due_state)]


def _due_state(
    partition: PartitionInfo, view: View, rules: TopicRules
) -> PartitionStateNode | None:
    leader, live = partition.leader, view.live
    if leader in live and leader not in view.full and all(one in live for one in partition.isr):
        return None  # as are nearly all, each time that anything changes
    wanted = rules.wanted(len(partition.replicas))
    state = partition.state(view.controller_epoch)
    for replica in partition.isr:
        if replica not in view.live:
            state = without(state, replica, wanted)
    electable = view.electable
    if state.leader in view.live:
        electable = {replica for replica in electable if replica not in view.full}
        if state.leader not in view.full or electable.isdisjoint(state.isr):
            return state
    elected = elect(
        state,
        view.preference(partition.replicas),
        electable,
        view.controller_epoch,
        wanted=wanted,
        unclean=rules.is_unclean,
    )
    return elected if elected.leader != NO_LEADER or state.leader != NO_LEADER else state


def leaderless_partitions(metadata: MetadataCache) -> int:
    """Count the partitions without a live leader. For any thread."""
    live = metadata.brokers
    return sum(
        partition.leader not in live
        for topic in list(metadata.topics.values())
        for partition in topic.partitions
    )


def shutdown_elections(topics: Iterable[Topic], leader: int, view: View) -> list[StateChange]:
    """Find states in which other replicas lead instead of ``leader``, where one is in sync."""

    def decide(partition: PartitionInfo, view: View, rules: TopicRules) -> PartitionStateNode:
        state = partition.state(view.controller_epoch)
        if partition.leader != leader:
            return state
        others = [
            replica for replica in partition.isr if replica in view.electable and replica != leader
        ]
        if not others:
            return state
        return elect(
            state,
            view.preference(partition.replicas),
            {replica for replica in view.electable if replica != leader},
            view.controller_epoch,
            wanted=rules.wanted(len(partition.replicas)),
        )

    return [*_changes(topics, view, decide)]


def _changes(
    topics: Iterable[Topic],
    view: View,
    decide: Callable[[PartitionInfo, View, TopicRules], PartitionStateNode | None],
) -> Iterator[StateChange]:
    for topic in topics:
        rules = view.rules(topic)
        for index, partition in enumerate(topic.partitions):
            if partition.version < 0:
                continue
            state = decide(partition, view, rules)
            if state is not None and state != partition.state(view.controller_epoch):
                yield StateChange(topic, index, state, partition.version)


class ElectionType(IntEnum):
    """The kind of election, by its number in ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


def elected_state(
    partition: PartitionInfo, kind: ElectionType, view: View, rules: TopicRules
) -> PartitionStateNode:
    """Return the state after a requested election.

    Raises:
        ApiError: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, or
            ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    is_led = partition.leader in view.live
    preferred = partition.replicas[0]
    if kind is ElectionType.PREFERRED:
        if is_led and partition.leader == preferred:
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "the preferred replica already leads")
        if preferred in view.full:
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"broker {preferred} has no room for more records",
            )
        if preferred not in view.electable or preferred not in (*partition.isr, *partition.elr):
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"broker {preferred} is not available or not in sync",
            )
    elif is_led:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads already")
    state = elect(
        partition.state(view.controller_epoch),
        view.preference(partition.replicas),
        view.live if kind is ElectionType.PREFERRED else view.electable,
        view.controller_epoch,
        wanted=rules.wanted(len(partition.replicas)),
        unclean=kind is ElectionType.UNCLEAN,
    )
    if state.leader == NO_LEADER:
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is available")
    if kind is ElectionType.PREFERRED and state.leader != preferred:
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is not in sync"
        )
    return state


def preferred_elections(topics: Iterable[Topic], view: View, percentage: int) -> list[StateChange]:
    """Find elections for brokers that lead too few of the partitions that prefer them.

    A broker is out of balance when it does not lead more than ``percentage`` of those partitions.
    Partitions under reassignment and those whose preferred replica cannot lead are left out.
    """
    known = list(topics)
    preferring: Counter[int] = Counter()
    astray: Counter[int] = Counter()
    for topic in known:
        for partition in topic.partitions:
            preferring[partition.replicas[0]] += 1
            astray[partition.replicas[0]] += partition.leader != partition.replicas[0]
    unbalanced = {
        broker for broker, count in astray.items() if 100 * count > percentage * preferring[broker]
    }
    changes = []
    for topic in known:
        rules = view.rules(topic)
        for index, partition in enumerate(topic.partitions):
            preferred = partition.replicas[0]
            if (
                preferred not in unbalanced
                or preferred not in partition.isr
                or partition.is_moving
                or partition.version < 0
            ):
                continue
            try:
                state = elected_state(partition, ElectionType.PREFERRED, view, rules)
            except ApiError:
                continue
            changes.append(StateChange(topic, index, state, partition.version))
    return changes
