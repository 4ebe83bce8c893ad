"""Bits that change on a disk while its broker is down: put right out of the other replicas."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support import zookeeper_process
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

PARTITIONS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QbusCluster]:
    skip_because_of(zookeeper_process.missing())
    with QbusCluster(tmp_path) as cluster:
        yield cluster


def fill(cluster: QbusCluster) -> None:
    """Three partitions on all brokers, with some batches each."""
    address: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap}
    admin = AdminClient(address)
    topic = NewTopic("orders", PARTITIONS, len(NODES), config={"min.insync.replicas": "2"})
    for created in admin.create_topics([topic]).values():
        created.result(60)
    producer = Producer({**address, "acks": "all", "linger.ms": 0})
    for number in range(60):
        producer.produce("orders", b"%03d" % number * 100, partition=number % PARTITIONS)
        producer.flush(60)


def content(cluster: QbusCluster, node: int, partition: int) -> bytes:
    directory = cluster.log_dir(node) / f"orders-{partition}"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def test_every_damaged_replica_is_repaired(cluster: QbusCluster) -> None:
    """The damaged replica may lead or follow when the damage is found."""
    fill(cluster)

    def are_equal() -> bool:
        return all(
            content(cluster, node, index) == content(cluster, NODES[0], index) != b""
            for node in NODES
            for index in range(PARTITIONS)
        )

    wait_until(are_equal, "followers have everything", timeout=60)
    good = [content(cluster, NODES[0], index) for index in range(PARTITIONS)]
    for broker in cluster.brokers.values():
        broker.stop()
    for index in range(PARTITIONS):
        path = min((cluster.log_dir(2) / f"orders-{index}").glob("*.log"))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    for broker in cluster.brokers.values():
        broker.start(wait=False)

    def is_repaired() -> bool:
        return [content(cluster, 2, index) for index in range(PARTITIONS)] == good

    wait_until(is_repaired, "it is repaired", timeout=90)
    assert are_equal()
    for broker in cluster.brokers.values():
        assert "Traceback" not in broker.log_text()
