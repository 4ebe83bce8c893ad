"""The choice between the embedded store and ZooKeeper."""

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("stated", "warns"),
    [
        ({}, False),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:9092"}, True),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:9092", "zookeeper.set.acl": "true"}, False),
    ],
)
def test_users_in_an_open_zookeeper_are_warned_of(
    stated: dict[str, str], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    metadata_store(
        BrokerConfig(
            {
                "zookeeper.connect": "a:1",
                "zookeeper.digest": "bus:secret",
                "sasl.inter.broker.username": "brokers",
                "sasl.inter.broker.password": "secret",
                **stated,
            }
        )
    )
    assert ("zookeeper.set.acl=true" in caplog.text) is warns
    assert "bus:secret" not in caplog.text
