"""What a broker tells the store when it comes up: that it is there, and where.

First it raises its epoch, which fences whatever is under way in its former life's name; then it
gives up what it may not claim any more (see ``restart``); only then it registers.
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


async def ensure_cluster_id(store: MetadataStore) -> str:
    """The cluster's id; the first broker to ask gives it one.

    Raises:
        StoreUnavailable: the store cannot be used.
        MalformedNode: the store holds something else there.
    """
    while True:
        node = await store.get(CLUSTER_ID)
        if node is not None:
            return ClusterIdNode.decode(node.data).cluster_id
        try:
            await store.transaction(
                [Create(CLUSTER_ID, ClusterIdNode(encode_id(new_id())).encode())]
            )
        except NodeExists:  # another broker was first
            continue


async def expire_previous_registration(
    store: MetadataStore, node_id: int, directory: str, *, patience_s: float = 0.0
) -> None:
    """Make sure that no broker is registered as ``node_id``.

    What is registered with our own data ``directory``, which is locked by us, is what is left of us
    from before a crash: it goes at once. The end of any other is waited for, ``patience_s`` seconds
    at most, as after a crash of a broker whose directory was replaced, or copied.

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
        except NodeError:  # its session ended just now
            _log.debug("broker %d is gone already", node_id)
        return
    if not await _is_gone(store, node_id, patience_s):
        raise ConfigError(f"node.id={node_id}: a broker with this id is running")


async def raise_broker_epoch(store: MetadataStore, node_id: int, clock: Clock) -> int:
    """Begin a new epoch of the broker, which is returned: nothing counts that names an older one.

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
        The number of the change in the feed: what is known of the cluster from there on may be
        acted on.

    Raises:
        ConfigError: another broker with the same id is there.
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
    """Say that a registered broker is about to leave; the number of the change, None: it is gone.

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


async def announce_room(store: MetadataStore, node_id: int, epoch: int, *, is_full: bool) -> None:
    """Say whether a registered broker has room for more records.

    Raises:
        StoreUnavailable: the store cannot be used.
        NodeError: it is registered anew, or no more, or somebody else said something.
        MalformedNode: the store holds something else there.
    """
    path = BrokerNode.path(node_id)
    found = await store.get(path)
    if found is None:
        return
    broker = BrokerNode.decode(found.data)._replace(is_full=is_full)
    await decide(
        store,
        [Check(BrokerEpochNode.path(node_id), epoch)],
        [Set(path, broker.encode(), found.version)],
        _CLUSTER_CHANGED,
    )


async def unregister_broker(store: MetadataStore, node_id: int, epoch: int) -> bool:
    """End a registration before its session ends, and the office with it if it is held.

    Returns:
        Whether it was there.

    Raises:
        StoreUnavailable: the store cannot be used.
    """
    ops: list[Op] = [Delete(BrokerNode.path(node_id))]
    office = await store.get(CONTROLLER)
    if office is not None and _is_held_by(office, node_id, epoch):
        ops.append(Delete(CONTROLLER, office.version))
    try:
        await decide(store, [Check(BrokerEpochNode.path(node_id), epoch)], ops, _CLUSTER_CHANGED)
    except NodeError:
        _log.debug("broker %d is gone already", node_id)
        return False
    return True


def _is_held_by(office: Node, node_id: int, epoch: int) -> bool:
    try:
        holder = ControllerNode.decode(office.data)
    except MalformedNode:
        return False
    return (holder.broker, holder.broker_epoch) == (node_id, epoch)


def _directory_of(node: Node) -> str:
    try:
        return BrokerNode.decode(node.data).directory
    except MalformedNode:
        return ""


async def _is_gone(store: MetadataStore, node_id: int, patience_s: float) -> bool:
    """Wait for the end of a registration; whether it has come."""
    if patience_s <= 0:
        return False
    _log.info("broker %d is still registered; waiting for the end of its session", node_id)
    try:
        async with asyncio.timeout(patience_s):
            while True:
                changed = asyncio.Event()
                if str(node_id) not in await store.children(BROKERS, changed.set):
                    return True
                await changed.wait()
    except TimeoutError:
        return False
