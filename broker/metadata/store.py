"""Chooses a broker's metadata store: ZooKeeper where configured, else an embedded file."""

from pathlib import Path

from qbus.config import BrokerConfig
from qbus.metadata import EmbeddedStore, MetadataStore

STORE_FILE = "metadata.db"


def metadata_store(config: BrokerConfig) -> MetadataStore:
    """Create the store of a broker with this configuration; it is not started.

    Raises:
        ConfigError: ZooKeeper is configured, but kazoo is not installed.
    """
    address = config.zookeeper_address
    if address is None:
        return EmbeddedStore(Path(config.log_dirs[0]) / STORE_FILE)
    from qbus.metadata.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 - kazoo is optional

    session, connection = (
        config.zookeeper_session_timeout_ms,
        config.zookeeper_connection_timeout_ms,
    )
    return ZooKeeperStore(
        address,
        session_timeout_s=session / 1000,
        connection_timeout_s=(connection or session) / 1000,
        credentials=config.zookeeper_digest,
        protect=config.zookeeper_set_acl,
    )
