"""The choice between the embedded store and ZooKeeper."""

from pathlib import Path

from qbus.broker.metadata.store import metadata_store
from qbus.config import BrokerConfig
from qbus.metadata import EmbeddedStore
from qbus.metadata.zookeeper.store import ZooKeeperStore


def test_without_a_zookeeper_a_file_in_the_first_directory_is_used(tmp_path: Path) -> None:
    store = metadata_store(BrokerConfig({"log.dirs": [str(tmp_path), "/elsewhere"]}))
    assert isinstance(store, EmbeddedStore)
    assert store.path == tmp_path / "metadata.db"


async def test_a_configured_zookeeper_is_used() -> None:
    store = metadata_store(
        BrokerConfig(
            {
                "log.dirs": "/data",
                "zookeeper.connect": "a:1,b:2/bus",
                "zookeeper.session.timeout.ms": "6000",
                "zookeeper.digest": "bus:secret",
                "zookeeper.set.acl": "true",
            }
        )
    )
    assert isinstance(store, ZooKeeperStore)
    assert str(store._session.address) == "a:1,b:2/bus"
    assert (store._session._timeout, store._timeout_s) == (6.0, 6.0)
    assert store._session._security.digest == "bus:secret"
    assert store._acl.startswith(b"\0\0\0\2")  # how many entries there are
