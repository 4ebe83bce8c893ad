"""What a broker tells the store when it comes up: that it is there, and where."""

from qbus.clock import Clock
from qbus.errors import ConfigError
from qbus.metadata import Create, MetadataStore, NodeExists, Set, VersionConflict
from qbus.metadata.feed import announce
from qbus.metadata.ids import encode_id, new_id
from qbus.metadata.znodes import CLUSTER_ID, BrokerEpochNode, BrokerNode, ChangeNode, ClusterIdNode

from ..metadata_image import BrokerInfo


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


async def register_broker(store: MetadataStore, broker: BrokerInfo, clock: Clock) -> int:
    """Register ``broker``, for as long as the session lasts, under a new epoch, which is returned.

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
            if error.path == path:
                continue
            raise ConfigError(f"node.id={broker.id}: a broker with this id is running") from error
        return epoch
