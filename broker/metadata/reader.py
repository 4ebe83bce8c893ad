"""What a broker reads of the store about the cluster and about some of its topics."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Check, MetadataStore, Node
from qbus.metadata.errors import MalformedNode
from qbus.metadata.znodes import (
    ALL_BROKERS,
    BROKERS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    BrokerNode,
    ConfigNode,
    ControllerEpochNode,
    ControllerNode,
    PartitionStateNode,
    TopicNode,
)

from .image import BrokerInfo, Topic, with_states

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Cluster(NamedTuple):
    """Who is there, and who decides; ``epoch_version`` is that of the epoch's node, or -1."""

    brokers: Mapping[int, BrokerInfo] = {}
    controller: ControllerNode | None = None
    controller_epoch: int = 0
    epoch_version: int = -1

    def fence(self) -> Check:
        """The check that goes with whatever is decided under this controller.

        Raises:
            ApiError: NOT_CONTROLLER, there has been none yet.
        """
        if self.epoch_version < 0:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller yet")
        return Check(CONTROLLER_EPOCH, self.epoch_version)

    def is_live(self, broker: int, epoch: int) -> bool:
        """Whether a broker is registered under ``epoch``, and not about to leave."""
        known = self.brokers.get(broker)
        return known is not None and known.epoch == epoch and not known.is_stopping


async def read_cluster(store: MetadataStore) -> Cluster:
    """Who is there now. The epoch is never newer than the controller that it is read with."""
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
    """What is configured dynamically for all brokers, and for this one."""
    paths = [ConfigNode.broker_path(name) for name in (ALL_BROKERS, str(node_id))]
    nodes = await store.get_many(paths)
    nothing = ConfigNode({})
    default, own = (readable(ConfigNode.decode, nodes.get(path)) or nothing for path in paths)
    return default.config, own.config


class TopicNodes(NamedTuple):
    """What was read of some topics: whole ones, and others whose states alone changed."""

    whole: Collection[str]
    nodes: Mapping[str, Node]
    updated: Mapping[str, Topic]


async def read_changed(
    store: MetadataStore,
    names: Collection[str],
    states: Mapping[str, Collection[int]],
    known: Mapping[str, Topic],
) -> TopicNodes:
    """Read the topics ``names`` whole, and of those in ``states`` what changed, if that will do.

    Many nodes come with one request: a broker that fails may have led thousands of partitions.
    """
    partial_ = {name: some for name, some in states.items() if name not in names}
    paths = [TopicNode.path(name) for name in (*names, *partial_)]
    paths += [ConfigNode.topic_path(name) for name in names]
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
    if stale := [name for name in whole if name not in names]:
        paths = [TopicNode.path(name) for name in stale]
        nodes |= await store.get_many([*paths, *map(ConfigNode.topic_path, stale)])
    return TopicNodes(whole, nodes | await _read_states(store, whole, nodes), updated)


async def _read_states(
    store: MetadataStore, names: Collection[str], nodes: Mapping[str, Node]
) -> dict[str, Node]:
    paths = []
    for name in names:
        topic = readable(TopicNode.decode, nodes.get(TopicNode.path(name)))
        if topic is not None:
            paths += [PartitionStateNode.path(name, index) for index in topic.assignment]
    return await store.get_many(paths)


def _updated(
    topic: Topic | None, name: str, some: Collection[int], nodes: Mapping[str, Node]
) -> Topic | None:
    """The topic as it is now; None when more than states became different."""
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
        return None  # reading it whole says what is wrong


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
    )


def readable(decode: Callable[[bytes], T], stored: Node | bytes | None) -> T | None:
    """What is stored; None where it is not there, or holds something else."""
    if stored is None:
        return None
    try:
        return decode(stored.data if isinstance(stored, Node) else stored)
    except MalformedNode:
        _log.exception("something in the metadata cannot be read and is left out")
        return None
