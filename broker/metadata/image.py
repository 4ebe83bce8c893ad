"""The cluster's metadata as immutable values, and the differences between two of them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from qbus.config import Address, ListenerInfo
from qbus.metadata import Check, Node, Op
from qbus.metadata.client_quotas import QuotaEntity
from qbus.metadata.znodes import (
    DELETED,
    NO_LEADER,
    ConfigNode,
    PartitionStateNode,
    TopicChange,
    TopicNode,
)


class NodeAddress(NamedTuple):
    """A broker as the clients of one listener reach it."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker and its address; ``epoch`` is that of its registration.

    ``is_stopping``: it still serves, but takes over nothing more. ``is_full``: it has no room for
    more records, and leads only where no other replica can. ``machine``: where not empty, that of
    the other brokers that run on the same one. ``disque``: where it serves RESP, if it does;
    ``disque_tls``: where with TLS.
    ``listeners``: where each of its listeners is reached; none: PLAINTEXT alone, at host and port.
    ``offline``: replicas of it that it cannot use.
    """

    id: int
    host: str
    port: int
    rack: str | None = None
    epoch: int = 0
    is_stopping: bool = False
    is_full: bool = False
    machine: str = ""
    disque: Address | None = None
    disque_tls: Address | None = None
    listeners: tuple[ListenerInfo, ...] = ()
    offline: frozenset[tuple[str, int]] = frozenset()

    def address_of(self, listener: str) -> Address | None:
        """Where its listener of that name is reached; None: it has none."""
        if not self.listeners:
            return Address(self.host, self.port) if listener == "PLAINTEXT" else None
        return next((one.address for one in self.listeners if one.name == listener), None)

    def serves(self, listener: str) -> bool:
        """Whether it has a listener of that name."""
        if not self.listeners:
            return listener == "PLAINTEXT"
        return any(one.name == listener for one in self.listeners)

    def node(self, listener: str) -> NodeAddress | None:
        """What clients of a listener are told of it; None: they cannot reach it."""
        address = self.address_of(listener)
        if address is None:
            return None
        return NodeAddress(self.id, address.host, address.port, self.rack)


def machines_of(brokers: Iterable[BrokerInfo]) -> dict[int, str]:
    """The machines of those brokers that share one."""
    return {broker.id: broker.machine for broker in brokers if broker.machine}


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition's replicas and state; ``version`` is that of the state's node.

    During a reassignment ``replicas`` has the target and the former replicas: ``adding`` are new,
    ``removing`` will be removed.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    version: int = 0
    elr: tuple[int, ...] = ()
    last_in_sync: int = NO_LEADER
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether the partition is being reassigned."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    def state(self, controller_epoch: int = 0) -> PartitionStateNode:
        """Return the content of the state's node, with the given controller epoch."""
        return PartitionStateNode(
            self.leader, self.leader_epoch, self.isr, controller_epoch, self.elr, self.last_in_sync
        )


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: a 16-byte id, partitions from 0 on, and the topic's own configuration.

    ``version`` and ``config_version`` are those of its nodes; -1 without configuration.
    ``has_identity``: see :class:`qbus.metadata.znodes.TopicNode`.
    """

    name: str
    id: bytes
    partitions: tuple[PartitionInfo, ...]
    config: Mapping[str, str] = field(default_factory=dict)
    version: int = 0
    config_version: int = -1
    has_identity: bool = False

    @property
    def guards(self) -> list[Op]:
        """The checks that this topic still exists, for every decision about it.

        They precede all operations on the topic's other nodes.
        """
        if not self.has_identity:
            return []
        return [Check(TopicNode.identity_path(self.name, self.id))]


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic was created."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic was deleted; another one of the same name may follow."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """A topic has more partitions, or its leaders, replicas or in-sync replicas changed."""

    topic: Topic
    before: Topic


@dataclass(frozen=True, slots=True)
class TopicConfigChanged:
    """A topic's configuration changed."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class BrokerConfigChanged:
    """This broker's configuration changed, and possibly the defaults of every topic."""


@dataclass(frozen=True, slots=True)
class GroupConfigChanged:
    """A share group's configuration changed."""

    group: str


@dataclass(frozen=True, slots=True)
class UserConfigChanged:
    """The credentials or quotas of a user changed, or of ALL_USERS the quotas."""

    user: str


@dataclass(frozen=True, slots=True)
class ClientQuotasChanged:
    """The quotas of some users, clients or addresses changed."""

    entities: frozenset[QuotaEntity]


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Brokers came or went, or the controller changed."""


Event = (
    TopicCreated
    | TopicDeleted
    | PartitionsChanged
    | TopicConfigChanged
    | BrokerConfigChanged
    | GroupConfigChanged
    | UserConfigChanged
    | ClientQuotasChanged
    | BrokersChanged
)


def changed_topics(events: Iterable[Event]) -> frozenset[str]:
    """Return the names of the topics that came, went, or have more partitions than before."""
    return frozenset(
        event.topic.name
        for event in events
        if isinstance(event, TopicCreated | TopicDeleted)
        or (
            isinstance(event, PartitionsChanged)
            and len(event.topic.partitions) != len(event.before.partitions)
        )
    )


def read_topic(name: str, nodes: Mapping[str, Node], config: Node | None) -> Topic | None:
    """Build a topic from its ``nodes`` in the store and the node of its configuration.

    Raises:
        MalformedNode: a node cannot be decoded.
    """
    root = nodes.get(TopicNode.path(name))
    if root is None:
        return None
    decoded = TopicNode.decode(root.data)
    return Topic(
        name,
        decoded.topic_id,
        tuple(
            _read_partition(decoded, index, nodes.get(PartitionStateNode.path(name, index)))
            for index in range(len(decoded.assignment))
        ),
        ConfigNode.decode(config.data).config if config else {},
        root.version,
        config.version if config else -1,
        decoded.has_identity,
    )


def with_states(topic: Topic, nodes: Mapping[int, Node]) -> Topic:
    """Replace the states of some partitions, given by index.

    Raises:
        MalformedNode: a node cannot be decoded.
    """
    partitions = list(topic.partitions)
    for index, node in nodes.items():
        before = partitions[index]
        partitions[index] = _with_state(before.replicas, before.adding, before.removing, node)
    return replace(topic, partitions=tuple(partitions))


def follows(change: TopicChange, known: Topic | None) -> bool:
    """Whether a change tells all that became of a topic; ``known`` is what is known of its name."""
    if change.version == DELETED:
        return known is None or known.id == change.topic_id
    if known is None:
        return change.version == 0 and change.first == 0
    return (
        known.id == change.topic_id
        and known.version == change.version - 1
        and len(known.partitions) == change.first
    )


def changed_topic(name: str, change: TopicChange, known: Topic | None) -> Topic | None:
    """The topic after a change that :func:`follows`; None: it was deleted."""
    if change.version == DELETED:
        return None
    added = tuple(PartitionInfo(some[0], 0, some, some) for some in change.added)
    if known is not None:
        return replace(known, partitions=known.partitions + added, version=change.version)
    config_version = 0 if change.config else -1
    return Topic(name, change.topic_id, added, change.config, 0, config_version, has_identity=True)


def topic_node(topic: Topic) -> TopicNode:
    """Return the content of a topic's node."""
    partitions = dict(enumerate(topic.partitions))
    return TopicNode(
        topic.id,
        {index: info.replicas for index, info in partitions.items()},
        {index: info.adding for index, info in partitions.items() if info.adding},
        {index: info.removing for index, info in partitions.items() if info.removing},
        topic.has_identity,
    )


def _read_partition(topic: TopicNode, index: int, node: Node | None) -> PartitionInfo:
    replicas = topic.assignment[index]
    if node is None:  # assigned, but never led
        return PartitionInfo(NO_LEADER, -1, replicas, (), -1)
    return _with_state(replicas, topic.adding.get(index, ()), topic.removing.get(index, ()), node)


def _with_state(
    replicas: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...], node: Node
) -> PartitionInfo:
    state = PartitionStateNode.decode(node.data)
    return PartitionInfo(
        state.leader,
        state.leader_epoch,
        replicas,
        state.isr,
        node.version,
        state.elr,
        state.last_in_sync,
        adding,
        removing,
    )


def differences(before: Topic | None, after: Topic | None) -> Iterator[Event]:
    """List the events that turn ``before`` into ``after``."""
    if before is not None and (after is None or before.id != after.id):
        yield TopicDeleted(before)
        before = None
    if after is None:
        return
    if before is None:
        yield TopicCreated(after)
        return
    if before.partitions != after.partitions:
        yield PartitionsChanged(after, before)
    if before.config != after.config:
        yield TopicConfigChanged(after)
