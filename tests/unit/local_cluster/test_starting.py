"""Starting a node again, and who may run a cluster."""

import sys
import time
from pathlib import Path

import pytest

from qbus.local_cluster import (
    BROKER,
    SPARK_WORKER,
    ZOOKEEPER,
    ClusterSettings,
    Layout,
    LocalCluster,
    cluster,
)
from qbus.local_cluster.layout import LocalClusterError
from qbus.local_cluster.starting import is_running, start_node


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "cluster")
    layout.directory.mkdir()
    ClusterSettings(3, 9092, (2181,)).write(layout.settings)
    return layout


def test_a_directory_without_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="holds no cluster"):
        start_node(Layout(tmp_path / "absent"), BROKER, 1)


@pytest.mark.parametrize(("kind", "number"), [(BROKER, 4), (ZOOKEEPER, 2)])
def test_unknown_nodes_are_refused(layout: Layout, kind: str, number: int) -> None:
    with pytest.raises(LocalClusterError, match=f"there is no {kind}-{number}"):
        start_node(layout, kind, number)


def test_a_cluster_without_spark_has_no_workers(layout: Layout) -> None:
    with pytest.raises(LocalClusterError, match="no spark-worker-1: the cluster has no"):
        start_node(layout, SPARK_WORKER, 1)


def test_a_cluster_that_does_not_run_starts_no_node(layout: Layout) -> None:
    with pytest.raises(LocalClusterError, match="does not run"):
        start_node(layout, BROKER, 1)


def test_one_process_at_a_time_runs_a_cluster(layout: Layout) -> None:
    with LocalCluster(layout):
        assert is_running(layout)
        with pytest.raises(LocalClusterError, match="is in use"), LocalCluster(layout):
            pass
    assert not is_running(layout)


def test_what_a_killed_run_left_is_cleared(layout: Layout) -> None:
    layout.pid_file("broker-1").write_text("99999999\n")
    layout.request("broker-1").touch()
    with LocalCluster(layout):
        assert not layout.pid_file("broker-1").exists()
        assert not layout.request("broker-1").exists()


def test_a_broker_that_exits_before_it_knows_the_others_is_told_of_at_once(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import sys, time; time.sleep(0.2); sys.exit('out of luck')"
    monkeypatch.setattr(
        cluster, "commands", lambda *_: {"broker-1": [sys.executable, "-c", program]}
    )
    monkeypatch.setattr(cluster, "serves", lambda *_: True)
    monkeypatch.setattr(cluster, "known_brokers", lambda *_: 0)
    began = time.monotonic()
    with (
        LocalCluster(layout) as started,
        pytest.raises(LocalClusterError, match=r"broker-1 exited with 1; .*\n.*out of luck"),
    ):
        started.start(ClusterSettings(3, 9092, (2181,)), lambda _: None)
    assert time.monotonic() - began < 10
