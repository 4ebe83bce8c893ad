"""The death of a group's coordinator: no rebalance, and no commit is lost or goes back."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from uuid import uuid4

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from tests.support.qbus_cluster import QbusCluster
from tests.support.waiting import wait_until

from .faults.probe import create_topic

pytestmark = pytest.mark.integration

PARTITIONS = 6
_PATIENCE = 120.0


class Member(threading.Thread):
    """Commits increasing positions of its assigned partitions, one commit at a time."""

    def __init__(self, bootstrap: str, group: str, topic: str, positions: Iterator[int]) -> None:
        super().__init__(daemon=True)
        self._positions = positions
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._topic = topic
        self._stopping = threading.Event()
        self.partitions: list[int] = []
        self.rebalances = 0
        self.acknowledged: dict[int, int] = {}

    def _assigned(self, _: object, partitions: list[ck.TopicPartition]) -> None:
        self.partitions = [one.partition for one in partitions]
        self.rebalances += 1

    def _revoked(self, *_: object) -> None:
        self.partitions = []
        self.rebalances += 1

    def run(self) -> None:
        while not self._stopping.is_set():
            self._consumer.poll(0.01)
            position = next(self._positions)
            wanted = [ck.TopicPartition(self._topic, one, position) for one in self.partitions]
            if not wanted:
                continue
            with suppress(ck.KafkaException):  # then the commit is not acknowledged
                told = self._consumer.commit(offsets=wanted, asynchronous=False)
                for one in told or ():
                    if one.error is None:
                        self.acknowledged[one.partition] = position
        self._consumer.close()

    def stop(self) -> None:
        """Leave the group and stop."""
        self._stopping.set()
        self.join(_PATIENCE)
        assert not self.is_alive()


class Watch(threading.Thread):
    """Reads the group's committed offsets all the time."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._consumer = ck.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2}
        )
        self._places = [ck.TopicPartition(topic, one) for one in range(PARTITIONS)]
        self._stopping = threading.Event()
        self.seen: list[dict[int, int]] = []

    def run(self) -> None:
        while not self._stopping.wait(0.05):
            with suppress(ck.KafkaException):
                found = self._consumer.committed(self._places, timeout=5)
                self.seen.append({one.partition: one.offset for one in found})
        self._consumer.close()

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        self.join(_PATIENCE)


def coordinator(bootstrap: str, group: str) -> int:
    """The coordinator of the group; -1 if it is unknown."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    try:
        described = admin.describe_consumer_groups([group], request_timeout=5)[group].result(10)
    except ck.KafkaException:
        return -1
    return -1 if described.coordinator is None else int(described.coordinator.id)


def test_another_coordinator_takes_over_without_a_rebalance(running: QbusCluster) -> None:
    topic = group = f"workers-{uuid4()}"
    create_topic(running.bootstrap, topic, PARTITIONS)
    positions = count()
    members = [Member(running.bootstrap, group, topic, positions) for _ in range(3)]
    watch = Watch(running.bootstrap, group, topic)
    for member in members:
        member.start()
    wait_until(lambda: _are_stable(members), "a stable group", _PATIENCE)
    watch.start()
    before = [member.rebalances for member in members]

    def node() -> int:
        return coordinator(running.bootstrap, group)

    killed = wait_until(lambda: max(0, node()), "a coordinator", _PATIENCE)
    running.brokers[killed].kill()
    _wait_for_commits(members)
    assert node() != killed
    running.brokers[killed].start()
    wait_until(lambda: node() == killed, "the first coordinator", _PATIENCE)
    _wait_for_commits(members)

    assert [member.rebalances for member in members] == before
    watch.stop()
    acknowledged: dict[int, int] = {}
    for partition, position in (pair for one in members for pair in one.acknowledged.items()):
        acknowledged[partition] = max(position, acknowledged.get(partition, 0))
    last = _committed(running.bootstrap, group, topic)
    for member in members:
        member.stop()
    assert set(acknowledged) == set(range(PARTITIONS))
    for partition, position in acknowledged.items():
        assert last[partition] >= position
        seen = [one[partition] for one in watch.seen]
        assert seen == sorted(seen), "positions only increase"


def _are_stable(members: list[Member]) -> bool:
    owned = [partition for member in members for partition in member.partitions]
    all_have = all(member.partitions and member.acknowledged for member in members)
    return all_have and sorted(owned) == list(range(PARTITIONS))


def _wait_for_commits(members: list[Member]) -> None:
    """Wait until every partition has a further commit."""
    known = [dict(member.acknowledged) for member in members]

    def have_all() -> bool:
        return all(
            member.acknowledged.get(partition, 0) > before.get(partition, 0)
            for member, before in zip(members, known, strict=True)
            for partition in member.partitions
        )

    wait_until(have_all, "commits", _PATIENCE)


def _committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [ck.TopicPartition(topic, one) for one in range(PARTITIONS)]
    try:
        return {one.partition: one.offset for one in consumer.committed(places, timeout=30)}
    finally:
        consumer.close()
