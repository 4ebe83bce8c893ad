"""Where the way to a cluster begins."""

import subprocess
import sys

import pytest

from qbus.clients.errors import ConnectionFailed
from qbus.clients.net import bootstrap
from qbus.clients.net.bootstrap import parse, parse_bootstrap
from qbus.clients.net.cluster import Cluster
from qbus.errors import ConfigError
from qbus.metadata import StoreUnavailable, zookeeper
from tests.support.fake_broker import FakeBroker


async def test_named_brokers() -> None:
    found = await bootstrap.parse("one:1, two").find(5.0)
    assert found == [("one", 1), ("two", 9092)]


@pytest.mark.parametrize("text", ["", ",", "zk://", "zk:///chroot", "zk://,/chroot", "host:port"])
def test_what_names_nothing(text: str) -> None:
    with pytest.raises(ConfigError):
        Cluster(text, "test", 5.0)


ZOOKEEPER = "zk://zk1:2181,zk2:2181/qbus"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Stands for what ZooKeeper knows; the test fills it."""
    brokers: list[tuple[str, int]] = []

    async def find_brokers(address: str, timeout: float, protocol: str) -> list[tuple[str, int]]:
        assert (address, protocol) == (ZOOKEEPER, "PLAINTEXT")
        assert timeout > 0
        return list(brokers)

    monkeypatch.setattr(zookeeper, "find_brokers", find_brokers)
    return brokers


async def test_brokers_are_found_in_zookeeper(registered: list[tuple[str, int]]) -> None:
    async with FakeBroker() as broker:
        registered.append(("127.0.0.1", broker.port))
        cluster = Cluster(f" {ZOOKEEPER}", "test", 5.0)
        await cluster.refresh(["t"])
        assert cluster.metadata.partition_counts(["t"]) == {"t": 1}
        await cluster.close()


async def test_bootstrap_is_asked_again_when_no_known_broker_answers(
    registered: list[tuple[str, int]],
) -> None:
    cluster = Cluster(ZOOKEEPER, "test", 5.0)
    async with FakeBroker() as first:
        registered.append(("127.0.0.1", first.port))
        await cluster.refresh(())
        first.hangup()
    async with FakeBroker() as second:
        registered[:] = [("127.0.0.1", second.port)]
        await cluster.refresh(())
        assert second.requests
        await cluster.close()


async def test_nobody_is_registered_yet(registered: list[tuple[str, int]]) -> None:
    with pytest.raises(ConnectionFailed, match=r"zk1:2181.*no broker is registered"):
        await bootstrap.parse(ZOOKEEPER).find(5.0)


async def test_zookeeper_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find_brokers(address: str, timeout: float, protocol: str) -> list[tuple[str, int]]:
        raise StoreUnavailable("no ZooKeeper answers")

    monkeypatch.setattr(zookeeper, "find_brokers", find_brokers)
    with pytest.raises(ConnectionFailed, match="no ZooKeeper answers") as caught:
        await bootstrap.parse(ZOOKEEPER).find(5.0)
    assert caught.value.retriable


async def test_listeners_that_speak_the_clients_protocol_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def find_brokers(address: str, timeout: float, protocol: str) -> list[tuple[str, int]]:
        return [("secure", 9093)] if protocol == "SASL_SSL" else []

    monkeypatch.setattr(zookeeper, "find_brokers", find_brokers)
    assert await bootstrap.parse(ZOOKEEPER, "SASL_SSL").find(5.0) == [("secure", 9093)]
    with pytest.raises(ConnectionFailed, match="there now with a listener for SSL"):
        await bootstrap.parse(ZOOKEEPER, "SSL").find(5.0)


def test_the_client_of_zookeeper_is_an_extra() -> None:
    code = """
import asyncio, sys
sys.modules["kazoo"] = None
from qbus.aio import Admin
from qbus import ConfigError
async def main():
    async with Admin("zk://zk1:2181") as admin:
        try:
            await admin.list_topics()
        except ConfigError as error:
            print(error)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install" in done.stdout
    assert "qbus[zookeeper]" in done.stdout


GOOD = [
    ("localhost:9092", [("localhost", 9092)]),
    ("a:1,b:2", [("a", 1), ("b", 2)]),
    (" a:1 , b:2 ,", [("a", 1), ("b", 2)]),
    ("broker", [("broker", 9092)]),
    ("[::1]:1234", [("::1", 1234)]),
    ("[::1]", [("::1", 9092)]),
]


@pytest.mark.parametrize(("text", "addresses"), GOOD)
def test_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a:",
        ":1",
        "a:0",
        "a:65536",
        "a:x",
        "a:-1",
        "a:\u0661",
        "::1",
        "a:b:1",
        "[]",
        "[]:1",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_bootstrap(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://bus.example:9092", "write bus.example:9092, without http://"),
        ("a:1,PLAINTEXT://b:2/path", "write b:2, without PLAINTEXT://"),
        ("localhost:70000", "with a port from 1 to 65535"),
    ],
)
def test_a_wrong_address_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert words in str(refused.value)
