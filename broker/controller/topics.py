"""Plans for creating, growing and deleting topics, and the errors that refuse them.

The error codes are Kafka's (its ``ReplicationControlManager``).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from qbus.config import BrokerConfig, check_topic_config
from qbus.errors import ApiError, ConfigError, ErrorCode
from qbus.metadata import Create, Delete, Op, Set
from qbus.metadata.ids import new_id
from qbus.metadata.paths import split
from qbus.metadata.znodes import ConfigNode, PartitionStateNode, TopicChange, TopicNode
from qbus.names import check_topic_name

from ..metadata.cache import MetadataCache
from ..metadata.image import PartitionInfo, Topic, machines_of, topic_node
from .elections import first_state
from .placement import Assignment, check_assignment, place, room

DEFAULT = -1
MAX_PARTITIONS = 10_000  # per request, as in Kafka, to bound its memory

_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class NewTopic(NamedTuple):
    """A topic to create. DEFAULT takes the broker's numbers; ``assignment`` excludes both."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignment: Mapping[int, Sequence[int]] = _NOTHING
    config: Mapping[str, str | None] = _NOTHING


class TopicPlan(NamedTuple):
    """A topic to be created, and the operations that create it."""

    topic_id: bytes
    assignment: Assignment
    config: Mapping[str, str]
    ops: list[Op]

    @property
    def replication_factor(self) -> int:
        """Number of replicas of each partition."""
        return len(self.assignment[0])

    @property
    def change(self) -> TopicChange:
        """What the feed tells of the new topic."""
        added = tuple(self.assignment[index] for index in range(len(self.assignment)))
        return TopicChange(self.topic_id, 0, 0, added, self.config)


class TopicPlanner:
    """Plans from the metadata cache; the operations check the versions that it was planned from."""

    def __init__(self, metadata: MetadataCache, config: BrokerConfig, random: Random) -> None:
        self._metadata = metadata
        self._config = config
        self._random = random

    def create(self, new: NewTopic, controller_epoch: int) -> TopicPlan:
        """Plan a new topic.

        Raises:
            ApiError: it cannot be created; the code and the message say why.
        """
        self._check_name(new.name)
        config = _check_config(new.config)
        assignment = self._assign(new)
        topic_id = new_id()
        node = TopicNode(topic_id, assignment, has_identity=True)
        ops: list[Op] = [
            Create(TopicNode.path(new.name), node.encode()),
            Create(TopicNode.identity_path(new.name, topic_id)),
        ]
        if config:
            ops.append(Create(ConfigNode.topic_path(new.name), ConfigNode(config).encode()))
        ops += _first_states(new.name, assignment, controller_epoch)
        return TopicPlan(topic_id, assignment, config, ops)

    def grow(
        self,
        name: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None,
        controller_epoch: int,
        *,
        is_first: bool = True,
    ) -> tuple[list[Op], TopicChange]:
        """Plan more partitions of a topic, ``count`` in all; what the feed tells of it.

        ``is_first``: the nodes above the new partitions' states are taken for missing, which spares
        the store looking for them.

        Raises:
            ApiError: it cannot grow; the code and the message say why.
        """
        topic = self.existing(name)
        current = len(topic.partitions)
        if count <= current:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"the topic has {current} partitions already; partitions cannot be removed",
            )
        check_count(count - current)
        added = self._assign_more(topic, count, assignment)
        existing = topic_node(topic)
        node = existing._replace(assignment={**existing.assignment, **added})
        states = _first_states(name, added, controller_epoch)
        if is_first:
            states = [op for state in states for op in (Create(split(state.path)[0]), state)]
        change = Set(TopicNode.path(name), node.encode(), topic.version)
        told = TopicChange(
            topic.id,
            topic.version + 1,
            current,
            tuple(added[index] for index in range(current, count)),
        )
        return [*topic.guards, change, *states], told

    def existing(self, name: str) -> Topic:
        """Return the topic of that name.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        topic = self._metadata.topics.get(name)
        if topic is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {name!r} does not exist"
            )
        return topic

    def partition(self, topic: Topic, index: int) -> PartitionInfo:
        """Return one partition of a topic.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        if not 0 <= index < len(topic.partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name!r} has no partition {index}"
            )
        return topic.partitions[index]

    def _check_name(self, name: str) -> None:
        check_topic_name(name)
        other = self._metadata.colliding(name)
        if other == name:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"the topic {name!r} exists already")
        if other is not None:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name!r} collides with the topic {other!r}: '.' and '_' count as the same",
            )

    def _assign(self, new: NewTopic) -> Assignment:
        if new.assignment:
            if new.partitions != DEFAULT or new.replication_factor != DEFAULT:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    "with an assignment, the numbers of partitions and replicas must be -1",
                )
            check_count(len(new.assignment))
            return check_assignment(new.assignment, 0, self._metadata.brokers, self._machines())
        count, factor = new.partitions, new.replication_factor
        if factor == DEFAULT:
            factor = self._config.default_replication_factor
        if count == DEFAULT:
            count = self._config.num_partitions
        if factor < 1:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"a replication factor is at least 1, or -1 for the default, not {factor}",
            )
        if count < 1:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"a topic has at least 1 partition, or -1 for the default, not {count}",
            )
        check_count(count)
        racks, machines = self._racks(factor), self._machines()
        return place(racks, 0, count, factor, self._random, machines=machines)

    def _assign_more(
        self, topic: Topic, count: int, assignment: Sequence[Sequence[int]] | None
    ) -> Assignment:
        current, factor = len(topic.partitions), len(topic.partitions[0].target)
        brokers = self._metadata.brokers
        if assignment is None:
            first = topic.partitions[0].replicas
            racks = self._racks(factor)
            added, machines = count - current, self._machines()
            return place(racks, current, added, factor, self._random, first, machines)
        if len(assignment) != count - current:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{count - current} partitions are added, {len(assignment)} are assigned",
            )
        wanted = dict(enumerate(assignment, current))
        checked = check_assignment(wanted, current, brokers, self._machines())
        if len(checked[current]) != factor:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"the topic's partitions have {factor} replicas, not {len(checked[current])}",
            )
        return checked

    def _racks(self, needed: int) -> dict[int, str | None]:
        """Return the brokers for new replicas; stopping or full ones only if needed."""
        live = self._metadata.brokers.values()
        staying = {
            broker.id: broker.rack
            for broker in live
            if not broker.is_stopping and not broker.is_full
        }
        if room(staying, self._machines()) >= needed:
            return staying
        return {broker.id: broker.rack for broker in live}

    def _machines(self) -> dict[int, str]:
        return machines_of(self._metadata.brokers.values())


def nodes_of(topic: Topic) -> list[str]:
    """The paths of the nodes that a topic is made of, as far as this broker knows."""
    nodes = [TopicNode.path(topic.name)]
    if topic.has_identity:
        nodes.append(TopicNode.identity_path(topic.name, topic.id))
    partitions = TopicNode.partitions_path(topic.name)
    above = [
        f"{partitions}/{index}"
        for index, partition in enumerate(topic.partitions)
        if partition.version >= 0
    ]
    if above:
        nodes.append(partitions)
    nodes += above
    nodes += [f"{one}/state" for one in above]
    return nodes


def delete(topic: Topic, nodes: Iterable[str]) -> list[Op]:
    """Plan the deletion of a topic with all ``nodes`` of its tree and its configuration."""
    root = TopicNode.path(topic.name)
    below = sorted((path for path in nodes if path != root), key=len, reverse=True)
    ops: list[Op] = [Delete(path) for path in below]
    # Deleting the node of its identity checks that as well.
    if topic.has_identity and TopicNode.identity_path(topic.name, topic.id) not in below:
        ops[:0] = topic.guards
    ops.append(Delete(root, topic.version))
    if topic.config_version >= 0:
        ops.append(Delete(ConfigNode.topic_path(topic.name)))
    return ops


def delete_unchanged(topic: Topic) -> list[Op]:
    """Plan the deletion of a topic that is still as it is known, with its partitions' states.

    A change of a leader, of the in-sync replicas or of the configuration meanwhile fails it.
    """
    versions = {
        PartitionStateNode.path(topic.name, index): partition.version
        for index, partition in enumerate(topic.partitions)
    }
    versions[TopicNode.path(topic.name)] = topic.version
    versions[ConfigNode.topic_path(topic.name)] = topic.config_version
    return [
        Delete(op.path, versions.get(op.path, op.version)) if isinstance(op, Delete) else op
        for op in delete(topic, nodes_of(topic))
    ]


def renew(topic: Topic) -> Op:
    """Plan another version of a topic's node: a deletion planned before does not apply then.

    For what gives a topic its first configuration: such a deletion would leave that behind.
    """
    return Set(TopicNode.path(topic.name), topic_node(topic).encode(), topic.version)


def check_count(partitions: int) -> None:
    """Check the number of partitions that one request creates.

    Raises:
        ApiError: POLICY_VIOLATION, too many.
    """
    if partitions > MAX_PARTITIONS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} partitions in one request; the limit is {MAX_PARTITIONS}",
        )


def _check_config(config: Mapping[str, str | None]) -> dict[str, str]:
    try:
        check_topic_config(config)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return {name: text for name, text in config.items() if text is not None}


def _first_states(name: str, assignment: Assignment, controller_epoch: int) -> Collection[Create]:
    return [
        Create(
            PartitionStateNode.path(name, index), first_state(replicas, controller_epoch).encode()
        )
        for index, replicas in assignment.items()
    ]
