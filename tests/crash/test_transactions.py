"""Transactions over three brokers that are killed, one after the other, while they end.

Each transaction writes to all partitions. Whatever dies, in the end a reader of committed records
finds every transaction whole or not at all, those that were acknowledged among them, and nothing
stays open.
"""

import threading
import time
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.isolated_reading import read_to_end
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.waiting import wait_until
from tests.support.zookeeper_process import missing

pytestmark = [
    pytest.mark.crash,
    pytest.mark.integration,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

PARTITIONS = 3
_PATIENCE_S = 60


class Writer:
    """Runs transactions until it is stopped; ``committed`` are those that were acknowledged."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self.committed: list[str] = []
        self.failures: list[str] = []
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            producer = ck.Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": 20_000,
                }
            )
            try:
                producer.init_transactions(_PATIENCE_S)
                while not self._stop.is_set():
                    number += 1
                    self._transact(producer, f"{self.name}-{number}", commit=number % 5 != 0)
            except ck.KafkaException as error:  # a new producer goes on
                self.failures.append(str(error))
                number += 1

    def _transact(self, producer: ck.Producer, name: str, *, commit: bool) -> None:
        producer.begin_transaction()
        try:
            for partition in range(PARTITIONS):
                producer.produce("t", name.encode(), partition=partition)
            producer.flush(_PATIENCE_S)
            if commit:
                producer.commit_transaction(_PATIENCE_S)
                self.committed.append(name)
            else:
                producer.abort_transaction(_PATIENCE_S)
        except ck.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(_PATIENCE_S)


def is_stable(bootstrap: str) -> bool:
    """Whether nothing is open: readers of committed records get to the ends of the partitions."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "lookers",
            "isolation.level": "read_committed",
        }
    )
    other = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "lookers",
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        for index in range(PARTITIONS):
            place = ck.TopicPartition("t", index)
            stable = consumer.get_watermark_offsets(place, _PATIENCE_S)
            if stable != other.get_watermark_offsets(place, _PATIENCE_S):
                return False
    finally:
        consumer.close()
        other.close()
    return True


def run(directory: Path, kills: int, pause_s: float) -> None:
    options = "--option", "transaction.state.log.num.partitions=6"
    with QbusCluster(directory, *options) as cluster:
        bootstrap = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
        for made in admin.create_topics([new]).values():
            made.result(_PATIENCE_S)
        writers = [Writer(bootstrap, f"writer{number}") for number in range(4)]
        try:
            for number in range(kills):
                time.sleep(pause_s)
                victim = cluster.brokers[NODES[number % len(NODES)]]
                victim.kill()
                time.sleep(pause_s)
                victim.start()
            time.sleep(pause_s)
        finally:
            for writer in writers:
                writer.stop()
        wait_until(lambda: is_stable(bootstrap), "the ends of all transactions", _PATIENCE_S)
        found = read_to_end(bootstrap, "t", PARTITIONS, "read_committed", _PATIENCE_S)
    assert all(sorted(one) == sorted(found[0]) for one in found), "a transaction is not whole"
    names = set(found[0])
    assert len(names) == len(found[0]), "a record is there twice"
    for writer in writers:
        assert set(writer.committed) <= names, "an acknowledged transaction is lost"
        assert len(writer.committed) > 5, writer.failures


@pytest.mark.timeout(400)
def test_kills_leave_each_transaction_whole_or_not_at_all(tmp_path: Path) -> None:
    run(tmp_path, 2, 2.0)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_many_kills(tmp_path: Path) -> None:
    run(tmp_path, 60, 5.0)
