"""Kafka Streams: words counted exactly once while brokers and the application die."""

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import confluent_kafka as ck
import pytest

from perf.peers import java
from perf.peers.maven import Artifact
from tests.cluster.faults.targets import Cluster
from tests.support.waiting import wait_until
from tests.transactions.load import read_committed

from .whole_cluster import PATIENCE, Output, create, jars_or_skip, kill_leader, running

pytestmark = [pytest.mark.compat, pytest.mark.nightly, pytest.mark.timeout(600)]

PARTITIONS = 2
_ARTIFACTS = (
    Artifact("org.apache.kafka", "kafka-streams", java.KAFKA_VERSION),
    Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
)
_SOURCE = Path(__file__).parent / "java" / "WordCount.java"
_WORDS = [f"word-{number}" for number in range(20)]


@pytest.fixture
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers."""
    with running(request, tmp_path / "cluster") as started:
        yield started


class Words:
    """Sends lines of random words, and knows how often each was sent."""

    def __init__(self, bootstrap: str) -> None:
        self.sent: Counter[str] = Counter()
        self._random = Random(1)
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def send(self, lines: int) -> None:
        """Send so many lines of five words."""
        for _ in range(lines):
            words = self._random.choices(_WORDS, k=5)
            self.sent.update(words)
            partition = self._random.randrange(PARTITIONS)
            self._producer.produce("lines", " ".join(words), partition=partition)
        assert self._producer.flush(PATIENCE) == 0


def counts(bootstrap: str) -> dict[str, list[int]]:
    """The counts of each word, one after the other, that are committed."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for records in read_committed(bootstrap, "counts", range(PARTITIONS)).values():
        for record in records:
            assert record.key is not None
            found[record.key].append(int(record.value))
    return dict(found)


def application(whole: Cluster, state: Path) -> Output:
    """The application, over a directory for its state."""
    jars = jars_or_skip(f"kafka-streams-{java.KAFKA_VERSION}", _ARTIFACTS)
    arguments = [str(_SOURCE), whole.bootstrap, "lines", "counts", str(state)]
    return Output(java.command(*arguments, options=java.SHORT_RUN_OPTIONS, jars=jars))


def wait_counted(whole: Cluster, words: Words) -> None:
    """Wait until every word has been counted."""

    def is_counted() -> bool:
        found = counts(whole.bootstrap)
        return {word: found.get(word, [0])[-1] for word in words.sent} == words.sent

    wait_until(is_counted, "the counts", PATIENCE, 1.0)


def test_words_are_counted_exactly_once(whole: Cluster, tmp_path: Path) -> None:
    for topic in ("lines", "counts"):
        create(whole, topic, PARTITIONS)
    words, state = Words(whole.bootstrap), tmp_path / "state"
    words.send(100)
    with application(whole, state) as first:
        first.wait_for("state RUNNING")
        words.send(100)
        wait_counted(whole, words)
        words.send(100)  # it is killed while it counts them
    shutil.rmtree(state)
    with application(whole, state) as second:
        second.wait_for("restored")
        killed = kill_leader(whole, "counts")
        words.send(100)
        wait_counted(whole, words)
        whole.brokers[killed].start()
        words.send(50)
        wait_counted(whole, words)
        restored = [line for line in second.lines if line.startswith("restored ")]
        assert sum(int(line.split()[1]) for line in restored) > 0
    # No count is left out, and none is there twice.
    assert counts(whole.bootstrap) == {
        word: [*range(1, count + 1)] for word, count in words.sent.items()
    }
