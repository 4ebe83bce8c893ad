"""Clients survive restarts and the death of a leader without an error for their users."""

from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.history.reading import read_out
from tests.support.cluster_view import View
from tests.support.qbus_cluster import QbusCluster
from tests.support.server_process import StartupTimeout
from tests.support.waiting import StillWaiting, wait_until

from .faults.probe import create_topic
from .workload_process import WorkloadProcess

pytestmark = pytest.mark.integration

CLIENTS = ("Confluent", "KafkaPython", "Aiokafka", "Sdk")
PARTITIONS = 3
_ENOUGH = 50  # records of each client show that it makes progress
_PATIENCE = 150.0


@pytest.fixture
def topics(running: QbusCluster) -> dict[str, str]:
    """A fresh topic for each client."""
    found = {client: f"{client}-{uuid4()}" for client in CLIENTS}
    for topic in found.values():
        create_topic(running.bootstrap, topic, PARTITIONS)
    _wait_whole(running, found)
    return found


@pytest.fixture
def workloads(running: QbusCluster, topics: dict[str, str]) -> Iterator[WorkloadProcess]:
    """All clients, sending and reading."""
    clients = WorkloadProcess(running.bootstrap, topics)
    try:
        _wait_for_start(clients)
        yield clients
    finally:
        clients.kill()
        for broker in running.brokers.values():
            if not broker.alive:
                broker.start()


def test_a_rolling_restart(
    running: QbusCluster, topics: dict[str, str], workloads: WorkloadProcess
) -> None:
    for broker in running.brokers.values():
        broker.stop()
        _wait_for_progress(workloads)
        broker.start()
        _wait_whole(running, topics)
    _wait_for_progress(workloads)
    _check_all(running, topics, workloads)


def test_the_death_of_a_leader(
    running: QbusCluster, topics: dict[str, str], workloads: WorkloadProcess
) -> None:
    node = View(running.brokers).leader(topics[CLIENTS[0]])
    running.brokers[node].kill()
    _wait_for_progress(workloads)
    running.brokers[node].start()
    _wait_whole(running, topics)
    _wait_for_progress(workloads)
    _check_all(running, topics, workloads)


def _wait_for_start(workloads: WorkloadProcess) -> None:
    """Wait until each client sends and reads. Nothing is audited yet."""
    try:
        _wait_for_progress(workloads)
    except StillWaiting as error:
        raise StartupTimeout(str(error)) from error


def _wait_whole(running: QbusCluster, topics: dict[str, str]) -> None:
    view, names = View(running.brokers), list(topics.values())
    wait_until(lambda: view.are_whole(names, PARTITIONS), "replicas in sync", _PATIENCE)


def _wait_for_progress(workloads: WorkloadProcess) -> None:
    """Wait until each client has sent and read more."""
    before = workloads.progress()

    def make_progress() -> bool:
        pairs = list(zip(before, workloads.progress(), strict=True))
        assert not any(now.errors for _, now in pairs), [now.errors for _, now in pairs]
        return all(
            now.delivered >= then.delivered + _ENOUGH and now.seen >= then.seen + _ENOUGH
            for then, now in pairs
        )

    try:
        wait_until(make_progress, f"progress of all clients from {before}", _PATIENCE)
    except StillWaiting as error:
        raise StillWaiting(f"{error}; now {workloads.progress()}") from None


def _check_all(running: QbusCluster, topics: dict[str, str], workloads: WorkloadProcess) -> None:
    """Check that every record is stored once and was read, and that no client saw an error."""
    workloads.stop_sending()
    wait_until(
        lambda: all(now.seen == now.sent or now.errors for now in workloads.progress()),
        "all to be read",
        _PATIENCE,
    )
    for client in workloads.stop():
        assert client.errors == []
        assert client.delivered == client.sent
        stored = read_out(running.bootstrap, topics[client.name], range(PARTITIONS))
        values = Counter(value for poll in stored.polls for _, value in poll.records)
        assert values == Counter(b"%d" % number for number in range(client.sent))
