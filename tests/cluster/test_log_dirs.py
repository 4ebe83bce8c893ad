"""Replicas of a cluster move between the directories of their brokers while they are used."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbus.clients import Admin, TopicPartition
from tests.crash.audit import Load, audit, read_all
from tests.support import zookeeper_process
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

TOPIC = "moves"
PARTITIONS = 3
REPLICAS = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[QbusCluster]:
    """Three brokers, each with a second directory."""
    skip_because_of(zookeeper_process.missing())
    cluster = QbusCluster(tmp_path)
    for node, broker in cluster.brokers.items():
        broker.options = (*broker.options, "--data-dir", str(second(cluster, node)))
    with cluster:
        yield cluster


def second(cluster: QbusCluster, node: int) -> Path:
    return cluster.directory / f"second-{node}"


def move(cluster: QbusCluster, node: int, target: Path) -> None:
    async def ask() -> None:
        async with Admin(cluster.bootstrap) as admin:
            await admin.alter_replica_log_dirs(node, dict.fromkeys(REPLICAS, str(target)))

    asyncio.run(ask())
    wait_until(
        lambda: all((target / str(name)).is_dir() for name in ("moves-0", "moves-1", "moves-2")),
        f"all replicas of broker {node} are in {target}",
    )


def in_sync(cluster: QbusCluster) -> bool:
    async def ask() -> bool:
        async with Admin(cluster.bootstrap) as admin:
            found = await admin.describe_topics([TOPIC])
            return all(len(one.isr) == len(NODES) for one in found[TOPIC].partitions)

    return asyncio.run(ask())


def test_leaders_and_followers_move_and_go_on(running: QbusCluster) -> None:
    async def create() -> None:
        async with Admin(running.bootstrap) as admin:
            await admin.create_topic(
                TOPIC,
                partitions=PARTITIONS,
                replication_factor=3,
                config={"min.insync.replicas": "2", "segment.bytes": "1048576"},
            )

    asyncio.run(create())
    load = Load(running.bootstrap, TOPIC, PARTITIONS)
    load.start()
    try:
        for node in NODES:
            move(running, node, second(running, node))
        move(running, 2, running.log_dir(2))
        wait_until(lambda: in_sync(running), "all replicas are in sync")
    finally:
        acknowledged = load.finish()
    assert not acknowledged.failures
    assert acknowledged.count == load.sent > 1000
    audit(acknowledged, read_all(running.bootstrap, TOPIC, PARTITIONS))
    # What was moved is all that a broker has: it leads with it after the others are gone.
    for node in (1, 3):
        running.brokers[node].stop()
        running.brokers[node].start()
        wait_until(lambda: in_sync(running), "all replicas are in sync")
    audit(acknowledged, read_all(running.bootstrap, TOPIC, PARTITIONS))
