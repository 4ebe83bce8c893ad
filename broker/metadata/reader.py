"""Reads the cluster, its configuration and its topics from the store."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from qbus.config import Address, ListenerInfo, SecurityProtocol
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Check, MetadataStore, Node
from qbus.metadata.acls import (
    EXTENDED_ACLS,
    LITERAL_ACLS,
    acl_paths,
    decode_acls,
    pattern_at,
)
from qbus.metadata.errors import MalformedNode
from qbus.metadata.znodes import (
    ALL_BROKERS,
    ALL_USERS,
    BROKERS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    GROUP_CONFIGS,
    USER_CONFIGS,
    BrokerNode,
    ConfigNode,
    ControllerEpochNode,
    ControllerNode,
    PartitionStateNode,
    TopicNode,
)
from qbus.names import unescape, unsanitise
from qbus.security.acls import Entry, Pattern

from .image import BrokerInfo, Topic, with_states

_log = logging.getLogger(__name__)

T = TypeVar("T")

_PROTOCOLS = frozenset(SecurityProtocol)


class Cluster(NamedTuple):
    """The live brokers and the controller; ``epoch_version`` is that of the epoch's node, or -1."""

    brokers: Mapping[int, BrokerInfo] = {}
    controller: ControllerNode | None = None
    controller_epoch: int = 0
    epoch_version: int = -1

    def fence(self) -> Check:
        """Return the check of the controller epoch, for every decision under this controller.

        Raises:
            ApiError: NOT_CONTROLLER, there has been no controller yet.
        """
        if self.epoch_version < 0:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller yet")
        return Check(CONTROLLER_EPOCH, self.epoch_version)

    def is_live(self, broker: int, epoch: int) -> bool:
        """Whether a broker is registered under ``epoch`` and not about to stop."""
        known = self.brokers.get(broker)
        return known is not None and known.epoch == epoch and not known.is_stopping


async def read_cluster(store: MetadataStore) -> Cluster:
    """Read the cluster. The epoch is never newer than the controller that is read with it."""
    epoch, controller, nodes = await asyncio.gather(
        store.get(CONTROLLER_EPOCH), store.get(CONTROLLER), store.tree(BROKERS)
    )
    nodes.pop(BROKERS, None)
    brokers = (readable(partial(_read_broker, path), node) for path, node in nodes.items())
    known = readable(ControllerEpochNode.decode, epoch)
    return Cluster(
        {broker.id: broker for broker in brokers if broker is not None},
        readable(ControllerNode.decode, controller),
        known.epoch if known else 0,
        epoch.version if epoch else -1,
    )


async def read_broker_configs(
    store: MetadataStore, node_id: int
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Read the dynamic configuration of all brokers, and that of this one."""
    paths = [ConfigNode.broker_path(name) for name in (ALL_BROKERS, str(node_id))]
    nodes = await store.get_many(paths)
    nothing = ConfigNode({})
    default, own = (readable(ConfigNode.decode, nodes.get(path)) or nothing for path in paths)
    return default.config, own.config


async def read_group_configs(
    store: MetadataStore, names: Collection[str] | None = None
) -> dict[str, Mapping[str, str]]:
    """Read the configuration of share groups, by default of all that have one."""
    if names is None:
        names = [name for one in await store.children(GROUP_CONFIGS) if (name := _name(one))]
    paths = {name: ConfigNode.group_path(name) for name in names}
    nodes = await store.get_many([*paths.values()]) if paths else {}
    found = {name: readable(ConfigNode.decode, nodes.get(path)) for name, path in paths.items()}
    return {name: node.config for name, node in found.items() if node is not None}


async def read_user_configs(
    store: MetadataStore, names: Collection[str] | None = None
) -> dict[str, Mapping[str, str]]:
    """Read the credentials and quotas of users, by default of all that have any."""
    if names is None:
        nodes_of_all = await store.children(USER_CONFIGS)
        names = [name for one in nodes_of_all if (name := _name_of_user(one))]
    paths = {name: ConfigNode.user_path(name) for name in names}
    nodes = await store.get_many([*paths.values()]) if paths else {}
    read = ConfigNode.decode_secret
    found = {name: readable(read, nodes.get(path)) for name, path in paths.items()}
    return {name: node.config for name, node in found.items() if node is not None and node.config}


AclNodes = Mapping[Pattern, list[Entry] | None]
"""The rules of patterns; None: they cannot be read."""


async def read_acls(store: MetadataStore, paths: Collection[str] | None = None) -> AclNodes:
    """Read the access rules of the patterns at ``paths``, by default all there are.

    Patterns that have none any more are told with none.
    """
    if paths is None:
        nodes = {**await store.tree(LITERAL_ACLS), **await store.tree(EXTENDED_ACLS)}
        found: dict[Pattern, list[Entry] | None] = {}
    else:
        patterns = {pattern for path in paths if (pattern := pattern_at(path)) is not None}
        wanted = [path for pattern in patterns for path in acl_paths(pattern)]
        nodes = await store.get_many(wanted) if wanted else {}
        found = {pattern: [] for pattern in patterns}
    for path, node in nodes.items():
        pattern = pattern_at(path)
        # A node without data may have been made for the sake of one below it.
        if pattern is not None and (node.data or not await store.children(path)):
            found[pattern] = _joined(pattern, found.get(pattern, []), node)
    return found


def _joined(pattern: Pattern, known: list[Entry] | None, node: Node) -> list[Entry] | None:
    """The rules of a pattern that has another node with some; None if one cannot be read."""
    try:
        decoded = decode_acls(node.data)
    except MalformedNode:
        _log.exception(
            "the access rules of %s cannot be read: it is denied to all but super users until "
            "they are mended or removed",
            pattern,
        )
        return None
    return None if known is None else [*dict.fromkeys([*known, *decoded])]


def _name(escaped: str) -> str | None:
    try:
        return unescape(escaped)
    except ValueError:
        return None


def _name_of_user(sanitised: str) -> str | None:
    if sanitised == ALL_USERS:
        return ALL_USERS
    try:
        name = unsanitise(sanitised)
    except ValueError:
        return None
    return None if name == ALL_USERS else name  # which no user can be called


class TopicNodes(NamedTuple):
    """Topics that were read: ``whole`` ones, and those of which only states changed."""

    whole: Collection[str]
    nodes: Mapping[str, Node]
    updated: Mapping[str, Topic]


async def read_changed(
    store: MetadataStore,
    names: Collection[str],
    states: Mapping[str, Collection[int]],
    known: Mapping[str, Topic],
) -> TopicNodes:
    """Read the topics ``names`` whole, and of those in ``states`` only the changed states.

    A topic whose root changed as well is read whole. One request reads many nodes: a broker that
    fails may have led thousands of partitions.
    """
    partial_ = {name: some for name, some in states.items() if name not in names}
    paths = [TopicNode.path(name) for name in (*names, *partial_)]
    paths += [PartitionStateNode.path(name, i) for name, some in partial_.items() for i in some]
    nodes = await store.get_many(paths)
    updated = {}
    whole = dict.fromkeys(names)
    for name, some in partial_.items():
        topic = _updated(known.get(name), name, some, nodes)
        if topic is None:
            whole[name] = None
        else:
            updated[name] = topic
    return TopicNodes(whole, nodes | await _read_rest(store, whole, nodes), updated)


async def _read_rest(
    store: MetadataStore, names: Collection[str], nodes: Mapping[str, Node]
) -> dict[str, Node]:
    """Read the configurations and states of those topics that there are."""
    paths = []
    for name in names:
        topic = readable(TopicNode.decode, nodes.get(TopicNode.path(name)))
        if topic is not None:
            paths.append(ConfigNode.topic_path(name))
            paths += [PartitionStateNode.path(name, index) for index in topic.assignment]
    return await store.get_many(paths) if paths else {}


def _updated(
    topic: Topic | None, name: str, some: Collection[int], nodes: Mapping[str, Node]
) -> Topic | None:
    """Return the updated topic, or None if more than its states changed."""
    root = nodes.get(TopicNode.path(name))
    found = {index: nodes.get(PartitionStateNode.path(name, index)) for index in some}
    states = {index: node for index, node in found.items() if node is not None}
    if topic is None or root is None or root.version != topic.version or len(states) < len(found):
        return None
    if not all(0 <= index < len(topic.partitions) for index in states):
        return None
    try:
        is_same = TopicNode.decode(root.data).topic_id == topic.id
        return with_states(topic, states) if is_same else None
    except MalformedNode:
        return None  # reading it whole reports the error


def _read_broker(path: str, data: bytes) -> BrokerInfo:
    node = BrokerNode.decode(data)
    return BrokerInfo(
        BrokerNode.id_of(path),
        node.host,
        node.port,
        node.rack,
        node.epoch,
        node.is_stopping,
        node.is_full,
        node.machine,
        None if node.disque is None else Address(*node.disque),
        None if node.disque_tls is None else Address(*node.disque_tls),
        tuple(
            ListenerInfo(one.name, SecurityProtocol(one.protocol), Address(one.host, one.port))
            for one in node.listeners
            if one.protocol in _PROTOCOLS
        ),
        node.offline,
    )


def readable(decode: Callable[[bytes], T], stored: Node | bytes | None) -> T | None:
    """Decode a node; return None where it is missing or malformed."""
    if stored is None:
        return None
    try:
        return decode(stored.data if isinstance(stored, Node) else stored)
    except MalformedNode:
        _log.exception("a node of the metadata cannot be read and is ignored")
        return None
