"""The registration of a broker in the metadata store.

A starting broker first raises its epoch, which fences all writes under way for its previous
registration. Then it resigns what it led (see :mod:`.leader_elector`), and only then it registers.
"""

import asyncio
import logging

from qbus.clock import Clock
from qbus.errors import ConfigError
from qbus.metadata import (
    Check,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeError,
    NodeExists,
    Op,
    Set,
)
from qbus.metadata.errors import MalformedNode
from qbus.metadata.feed import decide
from qbus.metadata.ids import encode_id, new_id
from qbus.metadata.znodes import (
    BROKERS,
    CLUSTER_ID,
    CONTROLLER,
    BrokerEpochNode,
    BrokerNode,
    ChangeNode,
    ClusterIdNode,
    ControllerNode,
)

_log = logging.getLogger(__name__)

_CLUSTER_CHANGED = ChangeNode(cluster=True)


async def find_cluster_id(store: MetadataStore) -> str | None:
    """Return the cluster's id, None if there is no cluster yet.

    Raises:
        StoreUnavailable: the store cannot be used.
        MalformedNode: the node does not hold a cluster id.
    """
    node = await store.get(CLUSTER_ID)
    return None if node is None else ClusterIdNode.decode(node.data).cluster_id


async def ensure_cluster_id(store: MetadataStore) -> str:
    """Return the cluster's id; the first broker creates it.

    Raises:
        StoreUnavailable: the store cannot be used.
        MalformedNode: the node does not hold a cluster id.
    """
    while True:
        if (found := await find_cluster_id(store)) is not None:
            return found
        try:
            await store.transaction(
                [Create(CLUSTER_ID, ClusterIdNode(encode_id(new_id())).encode())]
            )
        except NodeExists:  # another broker was first
            continue


async def expire_previous_registration(
    store: MetadataStore, node_id: int, directory: str, *, timeout_s: float = 0.0
) -> None:
    """Make sure that no broker is registered as ``node_id``.

    A registration with this broker's own data ``directory``, which it has locked, is left over from
    a crash and is removed at once. Any other one must end within ``timeout_s`` seconds, as after a
    crash of a broker whose directory was replaced or copied.

    Raises:
        ConfigError: another broker with the same id is registered.
        StoreUnavailable: the store cannot be used.
    """
    path = BrokerNode.path(node_id)
    node = await store.get(path)
    if node is None:
        return
    if directory and _directory_of(node) == directory:
        try:
            await decide(store, [], [Delete(path, node.version)], _CLUSTER_CHANGED)
        except NodeError:  # its session has ended meanwhile
            _log.debug("broker %d is already unregistered", node_id)
        return
    if not await _is_gone(store, node_id, timeout_s):
        raise ConfigError(f"node.id={node_id}: a broker with this id is running")


async def raise_broker_epoch(store: MetadataStore, node_id: int, clock: Clock) -> int:
    """Begin a new epoch of the broker and return it; writes that name an older epoch fail.

    Raises:
        StoreUnavailable: the store cannot be used.
    """
    path = BrokerEpochNode.path(node_id)
    data = BrokerEpochNode(clock.time_ms()).encode()
    while True:
        node = await store.get(path)
        bump = Create(path, data) if node is None else Set(path, data, node.version)
        try:
            await store.transaction([bump])
        except NodeError:
            continue
        return 0 if node is None else node.version + 1


async def register_broker(store: MetadataStore, node_id: int, broker: BrokerNode) -> int:
    """Register a broker under its epoch, for as long as the session lasts.

    Returns:
        The sequence number of the change in the feed: metadata from there on includes this broker.

    Raises:
        ConfigError: another broker with the same id is registered.
        StoreUnavailable: the store cannot be used.
    """
    try:
        return await decide(
            store,
            [Check(BrokerEpochNode.path(node_id), broker.epoch)],
            [Create(BrokerNode.path(node_id), broker.encode(), ephemeral=True)],
            _CLUSTER_CHANGED,
        )
    except NodeError as error:
        raise ConfigError(f"node.id={node_id}: a broker with this id is running") from error


async def announce_stop(store: MetadataStore, node_id: int, broker: BrokerNode) -> int | None:
    """Announce that a broker is about to stop; return the change's number, or None if it is gone.

    Raises:
        StoreUnavailable: the store cannot be used.
    """
    leaving = broker._replace(is_stopping=True)
    try:
        return await decide(
            store,
            [Check(BrokerEpochNode.path(node_id), broker.epoch)],
            [Set(BrokerNode.path(node_id), leaving.encode())],
            _CLUSTER_CHANGED,
        )
    except NodeError:
        return None


async def announce_storage(
    store: MetadataStore,
    node_id: int,
    epoch: int,
    *,
    is_full: bool,
    offline: frozenset[tuple[str, int]],
) -> None:
    """Announce whether a registered broker has room for more records, and which of its replicas
    are ``offline``.

    Raises:
        StoreUnavailable: the store cannot be used.
        NodeError: its registration has changed or ended.
        MalformedNode: the node does not hold a cluster id.
    """
    path = BrokerNode.path(node_id)
    found = await store.get(path)
    if found is None:
        return
    broker = BrokerNode.decode(found.data)._replace(is_full=is_full, offline=offline)
    await decide(
        store,
        [Check(BrokerEpochNode.path(node_id), epoch)],
        [Set(path, broker.encode(), found.version)],
        _CLUSTER_CHANGED,
    )


async def unregister_broker(store: MetadataStore, node_id: int, epoch: int) -> bool:
    """End a registration before its session ends, and its controllership if it has it.

    Returns:
        Whether it was registered.

    Raises:
        StoreUnavailable: the store cannot be used.
    """
    ops: list[Op] = [Delete(BrokerNode.path(node_id))]
    controller = await store.get(CONTROLLER)
    if controller is not None and _is_held_by(controller, node_id, epoch):
        ops.append(Delete(CONTROLLER, controller.version))
    try:
        await decide(store, [Check(BrokerEpochNode.path(node_id), epoch)], ops, _CLUSTER_CHANGED)
    except NodeError:
        _log.debug("broker %d is already unregistered", node_id)
        return False
    return True


def _is_held_by(controller: Node, node_id: int, epoch: int) -> bool:
    try:
        holder = ControllerNode.decode(controller.data)
    except MalformedNode:
        return False
    return (holder.broker, holder.broker_epoch) == (node_id, epoch)


def _directory_of(node: Node) -> str:
    try:
        return BrokerNode.decode(node.data).directory
    except MalformedNode:
        return ""


async def _is_gone(store: MetadataStore, node_id: int, timeout_s: float) -> bool:
    """Wait for the end of a registration; return whether it came."""
    if timeout_s <= 0:
        return False
    _log.info("broker %d is still registered; waiting for its session to end", node_id)
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                changed = asyncio.Event()
                if str(node_id) not in await store.children(BROKERS, changed.set):
                    return True
                await changed.wait()
    except TimeoutError:
        return False
