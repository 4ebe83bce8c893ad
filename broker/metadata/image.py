"""What a broker knows of the cluster, as values that do not change, and how two of them differ."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from qbus.metadata import Check, Node, Op
from qbus.metadata.znodes import NO_LEADER, ConfigNode, PartitionStateNode, TopicNode


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker that lives, and where clients reach it; ``epoch`` is that of its registration.

    ``is_stopping``: it still serves, and nothing more is handed to it. ``is_full``: it has no room
    for more records, and leads only where nobody else can.
    """

    id: int
    host: str
    port: int
    rack: str | None = None
    epoch: int = 0
    is_stopping: bool = False
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition's replicas and their state; ``version`` is that of the state's node.

    While it moves, ``replicas`` are all that are meant to hold it, now or later: ``adding`` did not
    before, ``removing`` will not afterwards.
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
        """Whether it is being moved to other brokers."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that it shall have."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    def state(self, controller_epoch: int = 0) -> PartitionStateNode:
        """What its state's node holds, save for the controller's epoch."""
        return PartitionStateNode(
            self.leader, self.leader_epoch, self.isr, controller_epoch, self.elr, self.last_in_sync
        )

    @property
    def has_leader(self) -> bool:
        """Whether somebody leads it."""
        return self.leader != NO_LEADER


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: 16 bytes of id, partitions from 0 on, and what is configured for it.

    ``version`` and ``config_version`` are those of its nodes; -1 where there is no configuration.
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
        """What whoever decides something about this topic checks: that it is still this one.

        It goes before all that reads or writes the topic's other nodes.
        """
        if not self.has_identity:
            return []
        return [Check(TopicNode.identity_path(self.name, self.id))]


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic is new."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic is gone; one of the same name and another id may follow."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """A topic has more partitions, or other leaders, replicas or in-sync replicas than before."""

    topic: Topic
    before: Topic


@dataclass(frozen=True, slots=True)
class TopicConfigChanged:
    """Something else is configured for a topic."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class BrokerConfigChanged:
    """Something else is configured for this broker, and with that, maybe, for any topic."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Brokers came or went, or another one is the controller."""


Event = (
    TopicCreated
    | TopicDeleted
    | PartitionsChanged
    | TopicConfigChanged
    | BrokerConfigChanged
    | BrokersChanged
)


def read_topic(name: str, nodes: Mapping[str, Node], config: Node | None) -> Topic | None:
    """The topic that ``nodes``, with its tree in the store, and its configuration's node make.

    Raises:
        MalformedNode: a node holds something else.
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
    """The topic with other states of some of its partitions, by index.

    Raises:
        MalformedNode: a node holds something else.
    """
    partitions = list(topic.partitions)
    for index, node in nodes.items():
        before = partitions[index]
        partitions[index] = _with_state(before.replicas, before.adding, before.removing, node)
    return replace(topic, partitions=tuple(partitions))


def topic_node(topic: Topic) -> TopicNode:
    """What a topic's node holds."""
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
    if node is None:  # assigned, but nobody has led it yet
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
    """What has to happen for ``before`` to become ``after``."""
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
