"""A cluster that `qbus cluster up` runs: a death, moves under load, a rolling restart, the end."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from qbus.local_cluster.ports import is_free
from tests.support import zookeeper_process
from tests.support.ports import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

_PATIENCE = 120.0
_SESSION_MS = 6000


class Up:
    """`qbus cluster up` as a process, and the command beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.base_port = _base_port()
        options = (
            "-o",
            f"zookeeper.session.timeout.ms={_SESSION_MS}",
            "-o",
            "min.insync.replicas=2",
        )
        self.log = directory.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                _qbus(
                    *("cluster", "up", "--data-dir", str(directory)),
                    *("--base-port", str(self.base_port), *options),
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.base_port + number}" for number in range(3))

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return "the cluster is up" in self.log.read_text()

    def pid(self, name: str) -> int:
        return int((self.directory / f"{name}.pid").read_text())

    def qbus(self, *arguments: str) -> Any:
        done = subprocess.run(
            _qbus(*arguments, "--json"),
            env={**os.environ, "QBUS_BOOTSTRAP": self.bootstrap},
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def status(self) -> Any:
        return self.qbus("cluster", "status", "--data-dir", str(self.directory))

    def start_node(self, number: int) -> None:
        self.qbus("cluster", "start-node", str(number), "--data-dir", str(self.directory))

    def is_whole(self) -> bool:
        status = self.status()
        return all(broker["up"] for broker in status["brokers"]) and not (
            status["under_replicated"] or status["offline"]
        )

    def wait_whole(self) -> None:
        wait_until(self.is_whole, "a cluster that is whole", _PATIENCE, pause=0.2)

    def wait_gone(self, name: str) -> None:
        file = self.directory / f"{name}.pid"
        wait_until(lambda: not file.exists(), f"the end of {name}", _PATIENCE)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Load(threading.Thread):
    """Produces numbered records with acks=all, one after the other, and remembers what failed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": int(_PATIENCE * 1000),
                "log_level": 2,
            }
        )
        self._stopping = threading.Event()
        self.acknowledged: list[int] = []
        self.failed: list[str] = []

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(self._topic, str(number), on_delivery=self._delivered)
            self._producer.poll(0.005)
            number += 1
        self._producer.flush(_PATIENCE)

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is None:
            self.acknowledged.append(int(message.value() or b""))
        else:
            self.failed.append(str(error))

    def stop(self) -> None:
        self._stopping.set()
        self.join(2 * _PATIENCE)
        assert not self.is_alive()


def _qbus(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "qbus", *arguments]


def _base_port() -> int:
    """A port with two more after it on which nobody listens."""
    while True:
        port = free_port()
        if port + 2 <= 32_700 and is_free(port + 1) and is_free(port + 2):
            return port


def read_all(bootstrap: str, topic: str, count: int) -> list[int]:
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[int] = []

    def enough() -> bool:
        messages = consumer.consume(10_000, 0.2)
        found.extend(int(one.value() or b"") for one in messages if one.error() is None)
        return len(found) >= count

    try:
        wait_until(enough, "all records", _PATIENCE)
    finally:
        consumer.close()
    return found


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    if reason := zookeeper_process.missing():
        pytest.skip(reason)
    up = Up(tmp_path_factory.mktemp("local") / "cluster")
    try:
        wait_until(up.is_up, "the cluster", _PATIENCE)
        yield up
    finally:
        up.end()


@pytest.fixture
def load(up: Up, request: pytest.FixtureRequest) -> Iterator[Load]:
    """A topic under load; afterwards all that was acknowledged is there once."""
    topic = request.node.name.removeprefix("test_")
    up.qbus("topic", "create", topic, "--partitions", "3", "--replication-factor", "3")
    load = Load(up.bootstrap, topic)
    load.start()
    wait_until(lambda: load.acknowledged, "a first record", _PATIENCE)
    yield load
    load.stop()
    assert load.failed == []
    assert sorted(read_all(up.bootstrap, topic, len(load.acknowledged))) == sorted(
        load.acknowledged
    )


def test_a_broker_that_dies_is_told_and_started_again(up: Up, load: Load) -> None:
    os.kill(up.pid("broker-2"), signal.SIGKILL)
    wait_until(lambda: "broker-2 has ended (SIGKILL)" in up.log.read_text(), "that it is told")
    assert not (up.directory / "broker-2.pid").exists()
    wait_until(lambda: up.status()["under_replicated"], "what it misses", _PATIENCE, pause=0.2)
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

    wait_until(preferred_lead, "the preferred leaders", _PATIENCE, pause=0.2)


def test_partitions_move_under_load(up: Up, load: Load, tmp_path: Path) -> None:
    topic = "partitions_move_under_load"
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(up.qbus("reassign", "generate", topic, "--brokers", "1,2,3")))
    up.qbus("reassign", "execute", str(plan))
    moves = ("--move", f"{topic}:0=2,3", "--move", f"{topic}:1=3,1", "--move", f"{topic}:2=1,2")
    up.qbus("reassign", "execute", *moves, "--throttle", "100000000")

    def states() -> set[str]:
        return {p["state"] for p in up.qbus("reassign", "verify", *moves)["partitions"]}

    wait_until(lambda: states() == {"done"}, "the moves", _PATIENCE, pause=0.2)
    assert up.qbus("reassign", "list") == []

    def has_moved() -> bool:
        (described,) = up.qbus("topic", "describe", topic)
        throttled = [name for name in described["config"] if "throttled" in name]
        replicas = [p["replicas"] for p in described["partitions"]]
        return not throttled and replicas == [[2, 3], [3, 1], [1, 2]]

    wait_until(has_moved, "that all brokers know of it", _PATIENCE, pause=0.2)


def test_the_end_leaves_nothing_behind(up: Up) -> None:
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(_PATIENCE) == 0, up.log.read_text()
    assert list(up.directory.glob("*.pid")) == []
    assert up.log.read_text().endswith("stopped\n")
    assert not any(broker["up"] for broker in up.status()["brokers"])
