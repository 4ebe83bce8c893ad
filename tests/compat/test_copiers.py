"""Kafka's client copies records exactly once while brokers and the copiers themselves die."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from perf.peers import java, kafka
from tests.cluster.faults.targets import Cluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until
from tests.transactions.load import read_committed

from .whole_cluster import PATIENCE, Output, create, running

pytestmark = [pytest.mark.compat, pytest.mark.nightly, pytest.mark.timeout(600)]

PARTITIONS = 2
_SOURCE = Path(__file__).parent / "java" / "Copier.java"
# With the classic protocol the client says how soon it is missed.
_PROTOCOLS = {
    "classic": ("session.timeout.ms=6000", "heartbeat.interval.ms=500"),
    "consumer": ("group.protocol=consumer",),
}


@pytest.fixture
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers."""
    skip_because_of(kafka.missing())
    with running(request, tmp_path / "cluster") as started:
        yield started


def copier(whole: Cluster, number: int, *settings: str) -> Output:
    """A copier of the group, with a transactional id of its own."""
    where = (whole.bootstrap, "source", "target", "copiers", f"copier-{number}")
    return Output(java.command(str(_SOURCE), *where, *settings, options=java.SHORT_RUN_OPTIONS))


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_records_are_copied_exactly_once(whole: Cluster, protocol: str) -> None:
    for topic in ("source", "target"):
        create(whole, topic, PARTITIONS)
    producer = ck.Producer({"bootstrap.servers": whole.bootstrap, "enable.idempotence": True})
    sent: list[str] = []

    def send(count: int) -> None:
        values = [str(number) for number in range(len(sent), len(sent) + count)]
        for value in values:
            for partition in range(PARTITIONS):
                producer.produce("source", value, partition=partition)
        assert producer.flush(PATIENCE) == 0
        sent.extend(values)

    def copied() -> list[list[str]]:
        found = read_committed(whole.bootstrap, "target", range(PARTITIONS))
        return [[record.value for record in records] for records in found.values()]

    def wait_copied() -> None:
        said = f"{first.text()}\n{second.text()}"
        wait_until(
            lambda: min(map(len, copied())) >= len(sent), f"{len(sent)}\n{said}", PATIENCE, 0.5
        )
        assert copied() == [sent] * PARTITIONS

    send(500)
    settings = _PROTOCOLS[protocol]
    with copier(whole, 1, *settings) as first, copier(whole, 2, *settings) as second:
        wait_copied()
        for node in list(whole.brokers):
            send(300)
            whole.brokers[node].kill()
            send(300)
            wait_copied()
            whole.brokers[node].start()
        send(1_000)
        first.wait_for("copied")
    # One died while it copied: the other copies all.
    with copier(whole, 1, *settings) as first:
        second = first
        wait_copied()
