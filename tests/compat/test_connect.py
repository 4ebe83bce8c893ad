"""Kafka Connect, distributed: its connectors go on while a broker and a worker die."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.cluster.faults.targets import Cluster
from tests.support.waiting import wait_until
from tests.transactions.load import read_committed

from .connect import Worker
from .records import numbered
from .whole_cluster import PATIENCE, create, kill_leader, running

pytestmark = [pytest.mark.compat, pytest.mark.nightly, pytest.mark.timeout(600)]

_FILES = "org.apache.kafka.connect.file.FileStream{}Connector"
_MIRROR = "org.apache.kafka.connect.mirror.MirrorSourceConnector"


@pytest.fixture(scope="module")
def whole(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three brokers."""
    with running(request, tmp_path_factory.mktemp("cluster")) as started:
        yield started


def write(path: Path, first: int, last: int) -> list[str]:
    """Append numbered lines, and return them."""
    lines = [f"line {number}" for number in range(first, last)]
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    return lines


def values(whole: Cluster, topic: str, partitions: int = 1) -> list[str]:
    """The committed values of a topic."""
    found = read_committed(whole.bootstrap, topic, range(partitions))
    return [record.value for records in found.values() for record in records]


def test_lines_of_a_file_are_carried_exactly_once(whole: Cluster, tmp_path: Path) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    create(whole, "lines", 1)
    lines = write(source, 0, 1_000)
    with Worker(whole.bootstrap, tmp_path, "first") as first:
        first.wait_ready()
        first.put(
            "source",
            {
                "connector.class": _FILES.format("Source"),
                "exactly.once.support": "required",
                "transaction.boundary": "poll",
                "file": str(source),
                "topic": "lines",
                "batch.size": "5000",  # what is beyond a full batch waits until the file grows
            },
        )
        first.put(
            "sink",
            {"connector.class": _FILES.format("Sink"), "file": str(sink), "topics": "lines"},
        )
        first.wait_running("source")
        first.wait_running("sink")
        wait_until(lambda: values(whole, "lines") == lines, "the first lines", PATIENCE, 0.5)
        killed = kill_leader(whole, "lines")
        lines += write(source, 1_000, 2_000)
        wait_until(lambda: values(whole, "lines") == lines, "the second lines", PATIENCE, 0.5)
        lines += write(source, 2_000, 4_000)  # the worker is killed while it reads them
    whole.brokers[killed].start()
    with Worker(whole.bootstrap, tmp_path, "second") as second:
        second.wait_ready()
        second.wait_running("source")
        second.wait_running("sink")
        wait_until(lambda: len(values(whole, "lines")) >= len(lines), "the lines", PATIENCE, 0.5)
        assert values(whole, "lines") == lines
        # The sink writes what its worker had not committed the offsets of once more, and no less.
        wait_until(lambda: set(sink.read_text().splitlines()) == set(lines), "the sink", PATIENCE)
        lines += write(source, 4_000, 4_100)
        wait_until(lambda: values(whole, "lines") == lines, "the last lines", PATIENCE, 0.5)
        wait_until(lambda: set(sink.read_text().splitlines()) == set(lines), "the sink", PATIENCE)


def test_a_topic_is_mirrored_exactly_once(whole: Cluster, tmp_path: Path) -> None:
    create(whole, "origin", 2)
    producer = ck.Producer({"bootstrap.servers": whole.bootstrap, "enable.idempotence": True})

    def send(count: int) -> None:
        for partition in range(2):
            for record in numbered(count):
                producer.produce("origin", record.value, partition=partition)
        assert producer.flush(PATIENCE) == 0

    def is_mirrored(count: int) -> bool:
        expected = [(record.value or b"").decode() for record in numbered(1_000)] * 5
        found = read_committed(whole.bootstrap, "a.origin", range(2))
        assert all(len(records) <= count for records in found.values())
        return all(
            [record.value for record in records] == expected[:count] for records in found.values()
        )

    send(1_000)
    settings = {
        "connector.class": _MIRROR,
        "exactly.once.support": "required",
        "source.cluster.alias": "a",
        "target.cluster.alias": "b",
        "source.cluster.bootstrap.servers": whole.bootstrap,
        "target.cluster.bootstrap.servers": whole.bootstrap,
        "source.consumer.isolation.level": "read_committed",
        "topics": "origin",
        "tasks.max": "2",
        "replication.factor": "3",
        "offset-syncs.topic.replication.factor": "3",
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    }
    with Worker(whole.bootstrap, tmp_path, "third") as third:
        third.wait_ready()
        third.put("mirror", settings)
        third.wait_running("mirror")
        wait_until(lambda: is_mirrored(1_000), "the first thousand", PATIENCE, 0.5)
        send(1_000)  # the worker is killed while it copies them
    with Worker(whole.bootstrap, tmp_path, "fourth") as fourth:
        fourth.wait_ready()
        killed = kill_leader(whole, "a.origin")
        send(1_000)
        wait_until(lambda: is_mirrored(3_000), "three thousand", PATIENCE, 0.5)
        whole.brokers[killed].start()
        send(1_000)
        wait_until(lambda: is_mirrored(4_000), "four thousand", PATIENCE, 0.5)
