"""Clients ride through restarts and through a leader's death: no error reaches their users."""

from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.history.reading import read_out
from tests.support import zookeeper_process
from tests.support.cluster_view import View
from tests.support.qbus_cluster import QbusCluster
from tests.support.waiting import wait_until

from .faults.probe import create_topic
from .faults.targets import cluster as new_cluster
from .riding import Riding

pytestmark = pytest.mark.integration

CLIENTS = ("Confluent", "KafkaPython", "Aiokafka", "Sdk")
PARTITIONS = 3
_ENOUGH = 50  # records of each client tell that it goes on
_PATIENCE = 150.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QbusCluster]:
    """Three brokers."""
    if reason := zookeeper_process.missing():
        pytest.skip(reason)
    with new_cluster("qbus", tmp_path_factory.mktemp("clients")) as whole:
        assert isinstance(whole, QbusCluster)
        yield whole


@pytest.fixture
def topics(running: QbusCluster) -> dict[str, str]:
    """A fresh topic for each client."""
    found = {client: f"{client}-{uuid4()}" for client in CLIENTS}
    for topic in found.values():
        create_topic(running.bootstrap, topic, PARTITIONS)
    _wait_whole(running, found)
    return found


@pytest.fixture
def riding(running: QbusCluster, topics: dict[str, str]) -> Iterator[Riding]:
    """All clients at work."""
    clients = Riding(running.bootstrap, topics)
    try:
        _wait_for_progress(clients)
        yield clients
    finally:
        clients.kill()
        for broker in running.brokers.values():
            if not broker.alive:
                broker.start()


def test_a_rolling_restart(running: QbusCluster, topics: dict[str, str], riding: Riding) -> None:
    for broker in running.brokers.values():
        broker.stop()
        _wait_for_progress(riding)
        broker.start()
        _wait_whole(running, topics)
    _wait_for_progress(riding)
    _judge(running, topics, riding)


def test_the_death_of_a_leader(
    running: QbusCluster, topics: dict[str, str], riding: Riding
) -> None:
    node = View(running.brokers).leader(topics[CLIENTS[0]])
    running.brokers[node].kill()
    _wait_for_progress(riding)
    running.brokers[node].start()
    _wait_whole(running, topics)
    _wait_for_progress(riding)
    _judge(running, topics, riding)


def _wait_whole(running: QbusCluster, topics: dict[str, str]) -> None:
    view, names = View(running.brokers), list(topics.values())
    wait_until(lambda: view.are_whole(names, PARTITIONS), "replicas in sync", _PATIENCE)


def _wait_for_progress(riding: Riding) -> None:
    """Wait until each client has sent and was handed more."""
    before = riding.progress()

    def go_on() -> bool:
        pairs = list(zip(before, riding.progress(), strict=True))
        assert not any(now.errors for _, now in pairs), [now.errors for _, now in pairs]
        return all(
            now.delivered >= then.delivered + _ENOUGH and now.seen >= then.seen + _ENOUGH
            for then, now in pairs
        )

    wait_until(go_on, f"clients that go on from {before}", _PATIENCE)


def _judge(running: QbusCluster, topics: dict[str, str], riding: Riding) -> None:
    """All that was sent is there once, was handed out, and nobody heard of any trouble."""
    riding.stop_sending()
    wait_until(
        lambda: all(one.seen == one.sent or one.errors for one in riding.progress()),
        "all to be read",
        _PATIENCE,
    )
    for client in riding.stop():
        assert client.errors == []
        assert client.delivered == client.sent
        stored = read_out(running.bootstrap, topics[client.name], range(PARTITIONS))
        values = Counter(value for poll in stored.polls for _, value in poll.records)
        assert values == Counter(b"%d" % number for number in range(client.sent))
