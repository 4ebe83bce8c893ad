"""Groups of the consumer protocol (KIP-848) whose members come and go while brokers are killed."""

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, cycle

import confluent_kafka as ck
import pytest

from tests.history.reading import read_out
from tests.support import zookeeper_process
from tests.support.cluster_view import View
from tests.support.qbus_cluster import QbusCluster
from tests.support.steady_records import steady_records
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .faults.probe import create_topic
from .group_audit import (
    Crew,
    Story,
    commits_set_back,
    double_owners,
    foreign_reads,
    late_commits,
    lost_commits,
    python_crew,
    unread,
)

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.timeout(900)]

SEED = int(os.environ.get("QBUS_SEED", "0")) or time.time_ns() % 1_000_000
PARTITIONS = 6
_SECONDS = float(os.environ.get("QBUS_STORM_SECONDS", "150"))
_EVERY = 0.03  # seconds between two records of a partition
_PATIENCE = 120.0
_SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "12000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QbusCluster]:
    """Three brokers where members that die are noticed soon."""
    skip_because_of(zookeeper_process.missing())
    options = [word for pair in _SETTINGS.items() for word in ("-o", "=".join(pair))]
    with QbusCluster(tmp_path_factory.mktemp("running"), *options) as cluster:
        yield cluster


def test_one_owner_and_no_commit_lost_while_brokers_are_killed(running: QbusCluster) -> None:
    topic = f"coming-and-going-{SEED}"
    create_topic(running.bootstrap, topic, PARTITIONS)
    members = _Members(running.bootstrap, topic)
    try:
        with (
            steady_records(running.bootstrap, topic, PARTITIONS, _EVERY),
            _kills(running, topic) as killed,
        ):
            members.storm(_SECONDS)
        ends = read_out(running.bootstrap, topic, range(PARTITIONS)).ends
        members.come()
        wait_until(lambda: not unread(members.stories, ends), "all to be read", _PATIENCE)
        members.leave_all()
    finally:
        members.end()
    told = members.stories
    print(f"seed {SEED}: {_summary(told)}; {sum(ends.values())} records; killed {killed}")
    assert len(killed) > _SECONDS / 40
    assert double_owners(told) == []
    assert foreign_reads(told) == []
    assert lost_commits(told) == []
    assert commits_set_back(told) == []
    assert late_commits(told) == []
    assert _committed(running.bootstrap, topic) == ends


class _Members:
    """The members that there are, each in its process, and what all that there have been told."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._where = bootstrap, topic, topic
        self._random = random.Random(SEED)
        self._kinds = cycle(["librdkafka", "qbus"])
        self._numbers = count()
        self._living: list[Crew] = []
        self.stories: list[Story] = []

    def storm(self, seconds: float) -> None:
        """Have members come, leave and die for a while."""
        end = time.monotonic() + seconds
        self.come()
        self.come()
        while time.monotonic() < end:
            time.sleep(self._random.uniform(0.5, 5.0))
            assert all(member.lives for member in self._living)
            few, many = len(self._living) < 2, len(self._living) > 5
            what = "come" if few else self._random.choice(["come", "come", "leave", "die"])
            if what == "come" and not many:
                self.come()
            elif what != "come":
                member = self._living.pop(self._random.randrange(len(self._living)))
                member.leave_all(_PATIENCE) if what == "leave" else member.die()

    def come(self) -> None:
        """Have one more."""
        kind = next(self._kinds)
        member = python_crew(kind, *self._where)
        self._living.append(member)
        self.stories.append(member.join(f"{kind}-{next(self._numbers)}"))

    def leave_all(self) -> None:
        """Have all leave, with everything committed."""
        while self._living:
            self._living.pop().leave_all(_PATIENCE)

    def end(self) -> None:
        """Kill those that there are."""
        for member in self._living:
            member.end()


@contextmanager
def _kills(running: QbusCluster, topic: str) -> Iterator[list[int]]:
    """One broker after the other is killed, and started again; yields the ids of those killed."""
    ended = threading.Event()
    killed: list[int] = []
    failed: list[BaseException] = []
    view = View(running.brokers)

    def kill() -> None:
        for node, broker in cycle(running.brokers.items()):
            if ended.wait(4.0):
                return
            broker.kill()
            killed.append(node)
            ended.wait(8.0)
            broker.start()
            wait_until(lambda: view.are_whole([topic], PARTITIONS), "the replicas", _PATIENCE)

    def work() -> None:
        try:
            kill()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()
    assert failed == []


def _committed(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    places = [ck.TopicPartition(topic, index) for index in range(PARTITIONS)]
    found = {one.partition: one.offset for one in consumer.committed(places, timeout=60)}
    consumer.close()
    return found


def _summary(stories: list[Story]) -> str:
    counts = {
        what: sum(event.what == what for story in stories for event in story.events)
        for what in ("assigned", "revoked", "lost", "read", "committed")
    }
    died = sum(story.died_at is not None for story in stories)
    return f"{len(stories)} members, {died} of them died, {counts}"
