"""Committed offsets of three brokers on a ZooKeeper: a coordinator dies, and offsets move."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from qbus.broker.internal_logs.topic import partition_for
from tests.support.qbus_cluster import QbusCluster
from tests.support.waiting import wait_until

from .test_offset_storage import set_storage

pytestmark = pytest.mark.integration

GROUPS = ("a", "b", "c", "d")
LOG_PARTITIONS = 6


class Member:
    """A consumer that commits one offset after the other, and repeats what is refused."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.group = group
        self.acknowledged = 0
        self.assignments = 0
        self._is_over = threading.Event()
        self._client = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 30_000,
            }
        )
        self._client.subscribe(["t"], on_assign=self._assigned)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _assigned(self, *_: object) -> None:
        self.assignments += 1

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            self._client.poll(0.01)
            if not self.assignments:
                continue
            number += 1
            place = ck.TopicPartition("t", 0, number)
            try:
                (answer,) = self._client.commit(offsets=[place], asynchronous=False)
            except ck.KafkaException:
                continue
            if answer.error is None:
                self.acknowledged = number

    def stop(self) -> int:
        """The last offset that was acknowledged."""
        self._is_over.set()
        self._thread.join()
        self._client.close()
        return self.acknowledged


@contextmanager
def running(directory: Path, storage: str) -> Iterator[QbusCluster]:
    options = (
        *("-o", f"offsets.storage={storage}"),
        *("-o", f"offsets.topic.num.partitions={LOG_PARTITIONS}"),
        *("-o", "group.initial.rebalance.delay.ms=0"),
        *("-o", "zookeeper.session.timeout.ms=4000"),
    )
    with QbusCluster(directory, *options) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 2, 3)])["t"].result(30)
        yield cluster


@contextmanager
def members(cluster: QbusCluster) -> Iterator[list[Member]]:
    found = [Member(cluster.bootstrap, group) for group in GROUPS]
    try:
        wait_until(lambda: all(m.acknowledged > 3 for m in found), "all commit", timeout=60)
        yield found
    finally:
        for member in found:
            member.stop()


def committed(cluster: QbusCluster, group: str) -> int:
    client = ck.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        (place,) = client.committed([ck.TopicPartition("t", 0)], timeout=60)
        offset: int = place.offset
        return offset
    finally:
        client.close()


def wait_for_more(found: list[Member]) -> None:
    before = [member.acknowledged for member in found]
    wait_until(
        lambda: all(m.acknowledged > b + 5 for m, b in zip(found, before, strict=True)),
        "all commit again",
        timeout=60,
    )


def all_say(cluster: QbusCluster, said: str) -> bool:
    """Whether each broker's log has it."""
    return all(said in broker.log_text() for broker in cluster.brokers.values())


def check(cluster: QbusCluster, found: list[Member]) -> None:
    """Everything acknowledged is there; what was refused may be, too."""
    for member in found:
        last = member.stop()
        assert last <= committed(cluster, member.group) <= last + 1, member.group
        assert member.assignments == 1, f"{member.group}: no rebalance"


def test_a_coordinator_that_dies_loses_no_offset_and_no_member(tmp_path: Path) -> None:
    with running(tmp_path, "log") as cluster, members(cluster) as found:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = admin.list_topics("__consumer_offsets", timeout=30).topics["__consumer_offsets"]
        index = partition_for("a", LOG_PARTITIONS)
        victim = topic.partitions[index].leader

        cluster.brokers[victim].kill()

        wait_for_more(found)
        check(cluster, found)


def test_offsets_move_to_the_log_and_back_while_members_commit(tmp_path: Path) -> None:
    with running(tmp_path, "zookeeper") as cluster, members(cluster) as found:
        for storage, said in (
            ("log", "committed offsets: log"),
            ("zookeeper", "committed offsets: zookeeper"),
        ):
            set_storage(cluster.brokers[1], storage)
            wait_until(
                partial(all_say, cluster, said),
                f"all know of {storage}",
                timeout=60,
            )
            wait_for_more(found)
        check(cluster, found)
