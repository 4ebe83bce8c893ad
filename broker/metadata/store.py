"""Chooses a broker's metadata store: ZooKeeper where configured, else a file, served or not."""

import logging
import socket
from pathlib import Path

from qbus.config import BrokerConfig
from qbus.metadata import EmbeddedStore, MetadataStore
from qbus.metadata.served import ServedStore

from ..log.foreign import check_unclaimed

_log = logging.getLogger(__name__)

STORE_FILE = "metadata.db"


def embedded_store(config: BrokerConfig) -> EmbeddedStore:
    """The store in a file beside the logs; it is not started.

    Raises:
        ConfigError: the file is missing, and a data directory holds another broker's data.
    """
    file = Path(config.log_dirs[0]) / STORE_FILE
    check_unclaimed(config.log_dirs, file)
    return EmbeddedStore(file)


def metadata_store(config: BrokerConfig, stream: socket.socket | None = None) -> MetadataStore:
    """Create the store of a broker with this configuration; it is not started.

    ``stream`` leads to another process that keeps the file for several brokers.

    Raises:
        ConfigError: ZooKeeper is configured, but kazoo is not installed.
    """
    address = config.zookeeper_address
    if address is None:
        if stream is None:
            return embedded_store(config)
        return ServedStore(stream, config.zookeeper_session_timeout_ms / 1000)
    from qbus.metadata.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 - kazoo is optional

    if config.authenticates and not config.zookeeper_set_acl:
        _log.warning(
            "whoever reaches ZooKeeper at %s can read and change users, rules and all other"
            " metadata: state zookeeper.digest and zookeeper.set.acl=true",
            address,
        )
    session, connection = (
        config.zookeeper_session_timeout_ms,
        config.zookeeper_connection_timeout_ms,
    )
    return ZooKeeperStore(
        address,
        session_timeout_s=session / 1000,
        connection_timeout_s=(connection or session) / 1000,
        security=config.zookeeper_security,
        protect=config.zookeeper_set_acl,
    )
