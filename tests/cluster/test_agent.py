"""The agent while brokers die: every byte of a log arrives once and in order."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.agent_command.arrivals import Arrivals
from tests.support import zookeeper_process
from tests.support.agent_command import AgentCommand
from tests.support.cluster_view import View
from tests.support.qbus_cluster import QbusCluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until
from tests.support.web_log import access_log

from .faults.probe import create_topic

pytestmark = pytest.mark.integration

_TOPIC = "access"
_PARTITIONS = 2


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QbusCluster]:
    skip_because_of(zookeeper_process.missing())
    with QbusCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        create_topic(cluster.bootstrap, _TOPIC, _PARTITIONS)
        yield cluster


def test_an_access_log_arrives_byte_for_byte_while_each_broker_dies_in_turn(
    cluster: QbusCluster, tmp_path: Path
) -> None:
    view = View(cluster.brokers)
    wait_until(lambda: view.are_whole([_TOPIC], _PARTITIONS), "all replicas")
    lines = access_log(15_000, seed=7)
    path = tmp_path / "access.log"
    path.touch()
    arguments = ("--bootstrap", cluster.bootstrap, "--topic", _TOPIC, "--from-beginning")
    with (
        AgentCommand(tmp_path / "data", *arguments, str(path)),
        Arrivals(cluster.bootstrap, _TOPIC) as arrived,
        path.open("ab", buffering=0) as log,
    ):
        written = 0
        for victim in cluster.brokers.values():  # one of them is the leader
            for line in lines[written : written + 1_000]:  # one by one
                log.write(line + b"\n")
            victim.kill()
            for start in range(written + 1_000, written + 5_000, 2_000):  # in bursts
                log.write(b"".join(line + b"\n" for line in lines[start : start + 2_000]))
            written += 5_000
            arrived.until(partial(arrived.has, written))
            victim.start()
            wait_until(lambda: view.are_whole([_TOPIC], _PARTITIONS), "all replicas again")
        arrived.rest()
        assert arrived.values == lines
