"""Replicas that compact for themselves, while their brokers are killed and one begins anew."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support import zookeeper_process
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

TOPIC = "table"
KEYS = 100


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QbusCluster]:
    skip_because_of(zookeeper_process.missing())
    with QbusCluster(tmp_path, "-o", "log.cleaner.backoff.ms=100") as cluster:
        yield cluster


class Table:
    """Writes to the topic, and knows what is to be read."""

    def __init__(self, cluster: QbusCluster, **policy: str) -> None:
        """``policy``: what the topic says of clean-up itself."""
        self.cluster = cluster
        self.address: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap}
        config = {
            **policy,
            "segment.bytes": "20000",
            "min.insync.replicas": "2",
            "min.cleanable.dirty.ratio": "0.1",
        }
        topic = NewTopic(TOPIC, 1, len(NODES), config=config)
        self.admin = AdminClient(self.address)
        for created in self.admin.create_topics([topic]).values():
            created.result(60)
        self.producer = Producer({**self.address, "enable.idempotence": True, "linger.ms": 2})
        self.expected: dict[bytes, bytes] = {}
        self._dice = random.Random(5)

    def write(self, count: int) -> None:
        """Write to keys at random, all of it acknowledged by two replicas."""
        failed: list[Any] = []
        for _ in range(count):
            key, value = b"%d" % self._dice.randrange(KEYS), self._dice.randbytes(60)
            self.expected[key] = value
            self.producer.produce(
                TOPIC, value, key, on_delivery=lambda e, _: failed.append(e) if e else None
            )
            if self._dice.random() < 0.02:
                self.producer.flush(60)
        assert self.producer.flush(60) == 0
        assert not failed

    def read(self) -> tuple[dict[bytes | None, bytes | None], int]:
        """The newest value of each key, and how many records there are."""
        consumer = Consumer({**self.address, "group.id": "g", "enable.auto.commit": False})
        place = TopicPartition(TOPIC, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([place])
        found: dict[bytes | None, bytes | None] = {}
        count = last = 0
        while consumer.position([place])[0].offset < end:
            for message in consumer.consume(500, 0.2):
                assert message.error() is None
                assert (message.offset() or 0) >= last
                last = message.offset() or 0
                found[message.key()] = message.value()
                count += 1
        consumer.close()
        return found, count

    def leader(self) -> int:
        """The broker that leads the partition now."""
        topics = self.admin.list_topics(TOPIC, timeout=30).topics
        leader: int = topics[TOPIC].partitions[0].leader
        return leader

    def in_sync(self) -> bool:
        """Whether all replicas are."""
        topics = self.admin.list_topics(TOPIC, timeout=30).topics
        return len(topics[TOPIC].partitions[0].isrs) == len(NODES)

    def size(self, node: int) -> int:
        """Bytes of a node's segments."""
        directory = self.cluster.log_dir(node) / f"{TOPIC}-0"
        return sum(path.stat().st_size for path in directory.glob("*.log"))


def test_every_replica_has_the_table_after_kills(cluster: QbusCluster) -> None:
    table = Table(cluster, **{"cleanup.policy": "compact"})
    table.write(3000)
    for number in range(3):
        leader = table.leader()
        cluster.brokers[leader].kill()
        if number == 1:  # it begins anew with what compaction has left elsewhere
            shutil.rmtree(cluster.log_dir(leader))
        table.write(1000)
        cluster.brokers[leader].start()
        wait_until(table.in_sync, "all replicas are in sync", timeout=90)
        assert table.read()[0] == table.expected
    wait_until(lambda: all(table.size(node) < 60_000 for node in NODES), "all compact", timeout=60)
    found, count = table.read()
    assert found == table.expected
    assert count < 1000
    dead: set[int] = set()
    while len(dead) < len(NODES) - 1:  # each has to serve what it has, the last one alone
        leader = table.leader()
        cluster.brokers[leader].kill()
        dead.add(leader)
        wait_until(lambda: table.leader() not in {-1, *dead}, "another one leads", timeout=60)
        assert table.read()[0] == table.expected
    for broker in cluster.brokers.values():
        assert "Traceback" not in broker.log_text()


def test_a_replica_begins_anew_after_the_default_policy_was_taken_back(tmp_path: Path) -> None:
    skip_because_of(zookeeper_process.missing())
    quick = ("-o", "log.cleaner.backoff.ms=100")
    with QbusCluster(tmp_path, *quick, "-o", "log.cleanup.policy=compact") as cluster:
        table = Table(cluster)
        table.write(3000)
        wait_until(lambda: all(table.size(node) < 90_000 for node in NODES), "all compact", 60)
        for broker in cluster.brokers.values():  # none lives long enough to write it down before
            broker.kill()
            broker.options = tuple(
                "log.cleanup.policy=delete" if word == "log.cleanup.policy=compact" else word
                for word in broker.options
            )
        shutil.rmtree(cluster.log_dir(2))
        for broker in cluster.brokers.values():
            broker.start()
        wait_until(table.in_sync, "all replicas are in sync", timeout=90)
        assert table.read()[0] == table.expected
