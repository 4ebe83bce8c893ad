"""Kafka's own smoke test of Streams, exactly once, while brokers and an application die."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from perf.peers import java
from perf.peers.maven import Artifact
from tests.cluster.faults.targets import Cluster
from tests.support.cluster_view import View
from tests.support.waiting import wait_until

from .whole_cluster import PATIENCE, Output, create, jars_or_skip, running

pytestmark = [pytest.mark.compat, pytest.mark.nightly, pytest.mark.timeout(1200)]

PARTITIONS = 2
_MAIN = "org.apache.kafka.streams.tests.StreamsSmokeTest"
_ARTIFACTS = (
    Artifact("org.apache.kafka", "kafka-streams", java.KAFKA_VERSION),
    Artifact("org.apache.kafka", "kafka-streams", java.KAFKA_VERSION, classifier="test"),
    Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
)
# As the test's driver names them.
_TOPICS = (
    *("data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum"),
    *("sws-raw", "sws-suppressed", "cnt", "avg", "tagg"),
)
_SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "replication.factor": "3",
    "num.stream.threads": "2",
    "commit.interval.ms": "200",
    "acceptable.recovery.lag": "9223372036854775807",  # no warm-up replicas
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "auto.offset.reset": "earliest",
}


@pytest.fixture
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers with the topics of the test."""
    with running(request, tmp_path / "cluster") as started:
        for topic in _TOPICS:
            create(started, topic, PARTITIONS)
        yield started


class Smoke:
    """The parts of the test, each a process; ``directory`` is for their settings and states."""

    def __init__(self, whole: Cluster, directory: Path) -> None:
        self._whole = whole
        self._directory = directory
        self._jars = jars_or_skip(f"streams-smoke-{java.KAFKA_VERSION}", _ARTIFACTS)
        self._count = 0

    def part(self, what: str) -> Output:
        """``run``: the driver, which sends and in the end judges; ``process``: an application."""
        self._count += 1
        settings = {
            **_SETTINGS,
            "bootstrap.servers": self._whole.bootstrap,
            "state.dir": str(self._directory / f"state-{self._count}"),
        }
        path = self._directory / f"{self._count}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        options = java.SHORT_RUN_OPTIONS
        arguments = [_MAIN, str(path), what]
        return Output(java.command(*arguments, heap="512M", options=options, jars=self._jars))


def wait_started(application: Output) -> None:
    """Wait until an application has its partitions."""
    wait_until(
        lambda: any("SMOKE-TEST-CLIENT-STARTED" in line for line in application.lines),
        "an application",
        PATIENCE,
    )


def kill_each_broker(whole: Cluster) -> None:
    """One after the other; the next one when all are in sync again."""
    view = View(whole.brokers)
    for broker in whole.brokers.values():
        time.sleep(3)
        broker.kill()
        time.sleep(8)
        broker.start()
        wait_until(lambda: view.are_whole(_TOPICS, PARTITIONS), "replicas in sync", PATIENCE)


def test_results_are_exact(whole: Cluster, tmp_path: Path) -> None:
    smoke = Smoke(whole, tmp_path)
    with ExitStack() as parts:
        first, second = (parts.enter_context(smoke.part("process")) for _ in range(2))
        wait_started(first)
        wait_started(second)
        driver = parts.enter_context(smoke.part("run"))
        driver.wait_for("", PATIENCE)
        kill_each_broker(whole)
        first.kill()
        third = parts.enter_context(smoke.part("process"))
        wait_started(third)
        kill_each_broker(whole)
        assert driver.ended(600) == 0, driver.text()
        print(driver.text())
        for application in (second, third):
            trouble = [line for line in application.lines if "CLIENT-EXCEPTION" in line]
            assert not trouble, application.text()
    assert "ALL-RECORDS-DELIVERED" in driver.lines
    assert "SUCCESS" in driver.lines
    assert not [line for line in driver.lines if line.startswith("PROCESSED-")]
