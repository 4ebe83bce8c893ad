"""A group of the consumer protocol (KIP-848) whose 100 members come, leave and die at random.

They are of Java's, librdkafka's and Qbus's own client, ten to a process, and read from three
brokers. Every partition has one owner at all times, no commit is lost, and no record is read again
but what a member that was killed had not committed.
"""

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import count, cycle
from pathlib import Path
from statistics import median

import confluent_kafka as ck
import pytest

from perf.peers import java, kafka
from tests.cluster import group_audit
from tests.cluster.faults.targets import Cluster
from tests.cluster.group_audit import Crew, Sighting, Story, python_crew
from tests.history.history import History
from tests.history.reading import read_out
from tests.support.steady_records import steady_records
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from . import whole_cluster

pytestmark = [pytest.mark.compat, pytest.mark.nightly, pytest.mark.timeout(1800)]

SEED = int(os.environ.get("QBUS_SEED", "0")) or time.time_ns() % 1_000_000
MEMBERS = int(os.environ.get("QBUS_STORM_MEMBERS", "100"))
PARTITIONS = MEMBERS * 6 // 5
_SECONDS = float(os.environ.get("QBUS_STORM_SECONDS", "180"))
_CREW = 10
"""Members of a process, which are killed together."""
_EVERY_S = 1.0
"""Seconds between two records of a partition."""
_DEATHS_S = 30.0
_ASK_S = 1.0
_PATIENCE_S = 300.0
_SESSION_S = 45.0
_HEARTBEAT_S = 3.0
_SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": f"{_SESSION_S * 1000:.0f}",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": f"{_HEARTBEAT_S * 1000:.0f}",
}
_FEW = 20
"""One of so many members may be expelled because the machine was too busy for its heartbeats."""
_UNNOTICED_S = _SESSION_S - 4 * _HEARTBEAT_S
"""How long nobody may be given what a killed member had: its last heartbeat was not long before.

Nor what a member has that was told of partitions, as an answer to a heartbeat.
"""
_JAVA = Path(__file__).parent / "java" / "GroupMembers.java"


@pytest.mark.parametrize(
    ("kinds", "storage"),
    [
        pytest.param(("java", "librdkafka"), "zookeeper", id="java and librdkafka"),
        pytest.param(("java", "librdkafka", "qbus"), "log", id="all clients, offsets in a log"),
    ],
)
def test_a_hundred_members_come_and_go(
    kinds: Sequence[str], storage: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    skip_because_of(kafka.missing())
    settings = _SETTINGS
    if request.config.getoption("--target") == "qbus":
        settings = {**_SETTINGS, "offsets.storage": storage}
    with whole_cluster.running(request, tmp_path, settings) as cluster:
        topic = f"a-hundred-{SEED}"
        whole_cluster.create(cluster, topic, PARTITIONS)
        storm = _Storm(cluster, topic, kinds)
        with storm.ended(), _watched(cluster.bootstrap, topic) as sightings:
            with steady_records(cluster.bootstrap, topic, PARTITIONS, _EVERY_S):
                storm.assemble()
                storm.rage(_SECONDS)
            told = storm.stories
            history = read_out(cluster.bootstrap, topic, range(PARTITIONS))
            wait_until(
                lambda: not group_audit.unread(told, history.ends), "all read", _PATIENCE_S, 1.0
            )
            storm.leave_all()
        print(f"seed {SEED}: {_summary(told)}; {sum(history.ends.values())} records")
        (tmp_path / "stories.json").write_text(json.dumps([asdict(story) for story in told]))
        assert _values(history) == {index: _numbers(end) for index, end in history.ends.items()}
        wrong = {
            "two owners": group_audit.double_owners(told, _UNNOTICED_S),
            "reads of what it had not": group_audit.foreign_reads(told),
            "read again": group_audit.read_again(told),
            "not read in a row": group_audit.gaps(told),
            "began before a commit": group_audit.lost_commits(told),
            "commits set back": group_audit.commits_set_back(told),
            "commits of what another one had": group_audit.late_commits(told),
            "commits that the broker forgot": group_audit.forgotten(told, sightings),
        }
        if request.config.getoption("--target") == "qbus":  # others fence who misses two answers
            wrong["expelled early"] = group_audit.expelled_early(told, _UNNOTICED_S)
        assert not any(wrong.values()), {what: found[:20] for what, found in wrong.items() if found}
        with _asking(cluster.bootstrap, topic) as ask:
            assert ask() == history.ends
        lost = group_audit.expelled(told)
        assert len(lost) <= len(told) / _FEW, f"members that lived were expelled: {lost}"


class _Storm:
    """The members that there are, and what all that there have been have told."""

    def __init__(self, cluster: Cluster, topic: str, kinds: Sequence[str]) -> None:
        self._where = cluster.bootstrap, topic, topic
        self._random = random.Random(SEED)
        self._kinds = cycle(kinds)
        self._numbers = count()
        self._crews: list[tuple[str, Crew]] = []
        self._idle: list[tuple[Crew, str]] = []
        self.stories: list[Story] = []

    def assemble(self) -> None:
        """Have all members join, and wait until all have their share."""
        while len(self._crews) * _CREW < MEMBERS:
            self._start(next(self._kinds))
        wait_until(
            lambda: self._owned() == PARTITIONS, "all partitions to be owned", _PATIENCE_S, 0.5
        )

    def rage(self, seconds: float) -> None:
        """Have members come, leave, unsubscribe and die for a while."""
        end = time.monotonic() + seconds
        kill_at = time.monotonic() + _DEATHS_S / 2
        while time.monotonic() < end:
            time.sleep(self._random.uniform(0.1, 1.0))
            assert all(crew.lives for _, crew in self._crews)
            if time.monotonic() > kill_at:
                kill_at += _DEATHS_S
                self._kill()
            else:
                self._random.choice([self._leave, self._unsubscribe, self._come, self._come])()

    def leave_all(self) -> None:
        """Have all leave, with everything committed."""
        while self._crews:
            self._crews.pop()[1].leave_all(_PATIENCE_S)

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Have no process left at the end."""
        try:
            yield
        finally:
            for _, crew in self._crews:
                crew.end()

    def _start(self, kind: str) -> None:
        crew = _crew(kind, *self._where)
        self._crews.append((kind, crew))
        for _ in range(_CREW):
            self._join(kind, crew)

    def _join(self, kind: str, crew: Crew) -> None:
        self.stories.append(crew.join(f"{kind}-{next(self._numbers)}"))

    def _kill(self) -> None:
        kind, crew = self._crews.pop(self._random.randrange(len(self._crews)))
        crew.die()
        self._idle = [(other, name) for other, name in self._idle if other is not crew]
        self._start(kind)

    def _leave(self) -> None:
        crew, name = self._any_subscribed()
        crew.leave(name)

    def _unsubscribe(self) -> None:
        crew, name = self._any_subscribed()
        crew.unsubscribe(name)
        self._idle.append((crew, name))

    def _come(self) -> None:
        """One that unsubscribed comes again, or a new one comes, if there are fewer than all."""
        kind, crew = min(self._crews, key=lambda one: len(one[1].living))
        if self._idle and self._random.random() < 0.5:
            idle, name = self._idle.pop(self._random.randrange(len(self._idle)))
            idle.subscribe(name)
        elif len(crew.living) < _CREW:
            self._join(kind, crew)

    def _any_subscribed(self) -> tuple[Crew, str]:
        idle = {name for _, name in self._idle}
        found = [
            (crew, name) for _, crew in self._crews for name in crew.living if name not in idle
        ]
        return self._random.choice(found)

    def _owned(self) -> int:
        assert all(crew.lives for _, crew in self._crews)
        return sum(len(story.holds) for story in self.stories)


def _crew(kind: str, bootstrap: str, topic: str, group: str) -> Crew:
    if kind != "java":
        return python_crew(kind, bootstrap, topic, group)
    return Crew(java.command(str(_JAVA), bootstrap, topic, group, options=java.SHORT_RUN_OPTIONS))


@contextmanager
def _watched(bootstrap: str, group: str) -> Iterator[list[Sighting]]:
    """Ask again and again what the group has committed; yields what was answered."""
    ended = threading.Event()
    seen: list[Sighting] = []
    failed: list[Exception] = []

    def watch() -> None:
        try:
            with _asking(bootstrap, group) as ask:
                while not ended.wait(_ASK_S):
                    now = time.monotonic()
                    with suppress(ck.KafkaException):  # the coordinator moves: it asks again
                        seen.append(Sighting(now, ask()))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
    assert not failed, failed
    assert seen, "nobody could be asked what is committed"


@contextmanager
def _asking(bootstrap: str, topic: str) -> Iterator[Callable[[], dict[int, int]]]:
    """Yield what returns the offsets that the group of that name has committed."""
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    places = [ck.TopicPartition(topic, index) for index in range(PARTITIONS)]

    def ask() -> dict[int, int]:
        found = consumer.committed(places, timeout=60)
        return {one.partition: max(one.offset, 0) for one in found}

    try:
        yield ask
    finally:
        consumer.close()


def _values(history: History) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {index: [] for index in history.ends}
    for poll in history.polls:
        found[poll.partition] += [value for _, value in poll.records]
    return found


def _numbers(end: int) -> list[bytes]:
    return [b"%d" % number for number in range(end)]


def _summary(stories: Sequence[Story]) -> str:
    counts = Counter(event.what for story in stories for event in story.events)
    died = sum(story.died_at is not None for story in stories)
    waits = [
        f"{len(found)} partitions changed hands after {end}: {median(found):.2f} s, at most"
        f" {max(found):.2f} s"
        for end, found in sorted(group_audit.pauses(stories).items())
    ]
    return f"{len(stories)} members, {died} of them died; {dict(counts)}; {'; '.join(waits)}"
