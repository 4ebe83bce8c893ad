"""What a broker tells the store when it comes up: that it is there, and where."""

import asyncio
import logging

from qbus.clock import Clock
from qbus.errors import ConfigError
from qbus.metadata import Create, MetadataStore, NodeExists, Set, VersionConflict
from qbus.metadata.feed import announce
from qbus.metadata.ids import encode_id, new_id
from qbus.metadata.znodes import (
    BROKERS,
    CLUSTER_ID,
    BrokerEpochNode,
    BrokerNode,
    ChangeNode,
    ClusterIdNode,
)

from ..metadata_image import BrokerInfo

_log = logging.getLogger(__name__)


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


async def register_broker(
    store: MetadataStore, broker: BrokerInfo, clock: Clock, *, patience_s: float = 0.0
) -> int:
    """Register ``broker``, for as long as the session lasts, under a new epoch, which is returned.

    A broker that crashed stays registered until its session ends: so long, ``patience_s`` seconds
    at most, this one waits.

    Raises:
        ConfigError: another broker with the same id is registered.
        StoreUnavailable: the store cannot be used.
    """
    path = BrokerEpochNode.path(broker.id)
    now = clock.time_ms()
    while True:
        node = await store.get(path)
        data = BrokerEpochNode(now).encode()
        epoch = 0 if node is None else node.version + 1
        bump = Create(path, data) if node is None else Set(path, data, node.version)
        registration = BrokerNode(broker.host, broker.port, epoch, broker.rack, now)
        try:
            await store.transaction(
                [
                    bump,
                    Create(BrokerNode.path(broker.id), registration.encode(), ephemeral=True),
                    announce(ChangeNode(cluster=True).encode()),
                ]
            )
        except (VersionConflict, NodeExists) as error:
            if error.path == path or await _is_gone(store, broker.id, patience_s):
                continue
            raise ConfigError(f"node.id={broker.id}: a broker with this id is running") from error
        return epoch


async def check_alone(store: MetadataStore, node_id: int) -> None:
    """Brokers do not replicate to each other yet, so only one may be registered.

    Ask when ``node_id`` is: of two that come at once, at least the second sees the first.

    Raises:
        ConfigError: there is another.
        StoreUnavailable: the store cannot be used.
    """
    others = sorted(set(await store.children(BROKERS)) - {str(node_id)})
    if others:
        raise ConfigError(
            f"node.id={node_id}: broker {others[0]} keeps its metadata in the same place,"
            " which only one can do for now"
        )


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
