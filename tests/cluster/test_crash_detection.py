"""Dead processes are detected by their ports: the sessions outlast the test."""

from collections.abc import Iterator

import pytest

from tests.support import zookeeper_process
from tests.support.cluster_view import View
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .faults.probe import create_topic, send_to_all

pytestmark = pytest.mark.integration

_SESSION_MS = 60_000
_TOPIC = "watched"


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QbusCluster]:
    skip_because_of(zookeeper_process.missing())
    session = f"zookeeper.session.timeout.ms={_SESSION_MS}"
    with QbusCluster(tmp_path_factory.mktemp("crash"), "-o", session) as cluster:
        yield cluster


def test_other_brokers_take_over_at_once_from_a_dead_one(
    cluster: QbusCluster,
) -> None:
    view = View(cluster.brokers)
    create_topic(cluster.bootstrap, _TOPIC, len(NODES))
    wait_until(lambda: view.are_whole([_TOPIC], len(NODES)), "all replicas")
    _kill_and_replace(cluster, view, view.controller())
    _kill_and_replace(cluster, view, view.controller())


def _kill_and_replace(cluster: QbusCluster, view: View, node: int) -> None:
    broker = cluster.brokers[node]
    broker.kill()
    wait_until(lambda: view.controller(without=node) not in {node, -1}, "another controller")
    wait_until(lambda: view.are_led([_TOPIC], len(NODES), without=node), "other leaders")
    send_to_all(cluster.bootstrap, _TOPIC, range(len(NODES)), 30.0)
    broker.start()
    wait_until(lambda: view.are_whole([_TOPIC], len(NODES)), "all replicas again")
