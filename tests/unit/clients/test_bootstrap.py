"""Where the way to a cluster begins."""

import sys
from types import ModuleType

import pytest

from qbus.clients import bootstrap
from qbus.clients.cluster import Cluster
from qbus.errors import ConfigError
from tests.unit.clients.fake_broker import FakeBroker


async def test_named_brokers() -> None:
    found = await bootstrap.parse("one:1, two").find(5.0)
    assert found == [("one", 1), ("two", 9092)]


@pytest.mark.parametrize("text", ["", ",", "zk://", "zk:///chroot", "zk://,/chroot", "host:port"])
def test_what_names_nothing(text: str) -> None:
    with pytest.raises(ConfigError):
        Cluster(text, "test", 5.0)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Stands for what ZooKeeper knows; the test fills it."""
    brokers: list[tuple[str, int]] = []

    async def find_brokers(address: str, timeout: float) -> list[tuple[str, int]]:
        assert address == "zk://zk1:2181,zk2:2181/qbus"
        assert timeout > 0
        return list(brokers)

    module = ModuleType("qbus.metadata.zookeeper")
    module.find_brokers = find_brokers  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "qbus.metadata.zookeeper", module)
    return brokers


async def test_brokers_are_found_in_zookeeper(registered: list[tuple[str, int]]) -> None:
    async with FakeBroker() as broker:
        registered.append(("127.0.0.1", broker.port))
        cluster = Cluster(" zk://zk1:2181,zk2:2181/qbus", "test", 5.0)
        await cluster.refresh(["t"])
        assert cluster.metadata.partition_counts(["t"]) == {"t": 1}
        await cluster.close()


async def test_and_looked_for_again_when_those_known_are_gone(
    registered: list[tuple[str, int]],
) -> None:
    cluster = Cluster("zk://zk1:2181,zk2:2181/qbus", "test", 5.0)
    async with FakeBroker() as first:
        registered.append(("127.0.0.1", first.port))
        await cluster.refresh(())
        first.hangup()
    async with FakeBroker() as second:
        registered[:] = [("127.0.0.1", second.port)]
        await cluster.refresh(())
        assert second.requests
        await cluster.close()


async def test_the_client_of_zookeeper_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    for name in [name for name in sys.modules if name.startswith("qbus.metadata.zookeeper")]:
        monkeypatch.delitem(sys.modules, name)
    cluster = Cluster("zk://zk1:2181", "test", 5.0)
    with pytest.raises(ConfigError, match=r"pip install '?qbus\[zookeeper\]"):
        await cluster.refresh(())
    await cluster.close()
