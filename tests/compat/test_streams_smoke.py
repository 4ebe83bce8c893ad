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
_STARTED = "SMOKE-TEST-CLIENT-STARTED"
_MAIN = "org.apache.kafka.streams.tests.StreamsSmokeTest"
_DRIVER = Path(__file__).parent / "java" / "SmokeDriver.java"
_ARTIFACTS = (
    Artifact("org.apache.kafka", "kafka-streams", java.KAFKA_VERSION),
    Artifact("org.apache.kafka", "kafka-streams", java.KAFKA_VERSION, classifier="test"),
    Artifact("org.apache.kafka", "kafka-clients", java.KAFKA_VERSION, classifier="test"),
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

    def driver(self, seconds: int) -> Output:
        """Sends for so long, and in the end judges."""
        return self._part(str(_DRIVER), self._whole.bootstrap, str(seconds))

    def application(self) -> Output:
        """One instance of the application."""
        self._count += 1
        settings = {
            **_SETTINGS,
            "bootstrap.servers": self._whole.bootstrap,
            "state.dir": str(self._directory / f"state-{self._count}"),
        }
        path = self._directory / f"{self._count}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return self._part(_MAIN, str(path), "process")

    def _part(self, *arguments: str) -> Output:
        options = java.SHORT_RUN_OPTIONS
        return Output(java.command(*arguments, heap="512M", options=options, jars=self._jars))


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
        first, second = (parts.enter_context(smoke.application()) for _ in range(2))
        first.wait_for(_STARTED, anywhere=True)
        second.wait_for(_STARTED, anywhere=True)
        driver = parts.enter_context(smoke.driver(90))
        driver.wait_for("100 records produced", anywhere=True)
        kill_each_broker(whole)
        first.kill()
        third = parts.enter_context(smoke.application())
        third.wait_for(_STARTED, anywhere=True)
        kill_each_broker(whole)
        assert driver.ended(600) == 0, driver.text()
        print(driver.text())
        for application in (second, third):
            assert not [line for line in application.lines if "FATAL" in line], application.text()
    assert "ALL-RECORDS-DELIVERED" in driver.lines
    assert "SUCCESS" in driver.lines
    assert not [line for line in driver.lines if line.startswith("PROCESSED-")]
