"""A cluster that `qbus cluster up` runs: a death, moves under load, a rolling restart, the end."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import zookeeper_process
from tests.support.local_cluster import PATIENCE, Up
from tests.support.numbered_load import Load, read_all
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

_SESSION_MS = 6000


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    skip_because_of(zookeeper_process.missing())
    options = (f"zookeeper.session.timeout.ms={_SESSION_MS}", "min.insync.replicas=2")
    with Up(tmp_path_factory.mktemp("local") / "cluster", *options) as up:
        yield up


@pytest.fixture
def load(up: Up, request: pytest.FixtureRequest) -> Iterator[Load]:
    """A topic under load; afterwards every acknowledged record is there once."""
    topic = request.node.name.removeprefix("test_")
    up.qbus("topic", "create", topic, "--partitions", "3", "--replication-factor", "3")
    load = Load(up.bootstrap, topic)
    load.start()
    wait_until(lambda: load.acknowledged, "a first record", PATIENCE)
    yield load
    load.stop()
    assert load.failed == []
    assert sorted(read_all(up.bootstrap, topic, len(load.acknowledged))) == sorted(
        load.acknowledged
    )


def test_a_dead_broker_is_reported_and_started_again(up: Up, load: Load) -> None:
    os.kill(up.pid("broker-2"), signal.SIGKILL)
    wait_until(lambda: "broker-2 has ended (SIGKILL)" in up.log.read_text(), "the report")
    assert not (up.directory / "broker-2.pid").exists()
    wait_until(
        lambda: up.status()["under_replicated"], "under-replicated partitions", PATIENCE, pause=0.2
    )
    assert [broker["up"] for broker in up.status()["brokers"]] == [True, False, True]
    up.start_node(2)
    up.wait_whole()


def test_a_rolling_restart_as_documented(up: Up, load: Load) -> None:
    for number in (1, 2, 3):
        up.wait_whole()
        name = f"broker-{number}"
        os.kill(up.pid(name), signal.SIGTERM)
        up.wait_gone(name)
        up.start_node(number)
    up.wait_whole()
    up.qbus("elect-leaders", "--all")

    def preferred_lead() -> bool:
        (topic,) = up.qbus("topic", "describe", "a_rolling_restart_as_documented")
        return all(p["leader"] == p["replicas"][0] for p in topic["partitions"])

    wait_until(preferred_lead, "the preferred leaders", PATIENCE, pause=0.2)


def test_partitions_move_under_load(up: Up, load: Load, tmp_path: Path) -> None:
    topic = "partitions_move_under_load"
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(up.qbus("reassign", "generate", topic, "--brokers", "1,2,3")))
    up.qbus("reassign", "execute", str(plan))
    moves = ("--move", f"{topic}:0=2,3", "--move", f"{topic}:1=3,1", "--move", f"{topic}:2=1,2")
    up.qbus("reassign", "execute", *moves, "--throttle", "100000000")

    def states() -> set[str]:
        verified = up.qbus("reassign", "verify", *moves, codes=(0, 3))
        return {p["state"] for p in verified["partitions"]}

    wait_until(lambda: states() == {"done"}, "the moves", PATIENCE, pause=0.2)
    assert up.qbus("reassign", "list") == []

    def has_moved() -> bool:
        (described,) = up.qbus("topic", "describe", topic)
        throttled = [name for name in described["config"] if "throttled" in name]
        replicas = [p["replicas"] for p in described["partitions"]]
        return not throttled and replicas == [[2, 3], [3, 1], [1, 2]]

    wait_until(has_moved, "that all brokers know of it", PATIENCE, pause=0.2)


def test_stopping_leaves_nothing_behind(up: Up) -> None:
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(PATIENCE) == 0, up.log.read_text()
    assert list(up.directory.glob("*.pid")) == []
    assert up.log.read_text().endswith("stopped\n")
    assert not any(broker["up"] for broker in up.status()["brokers"])
