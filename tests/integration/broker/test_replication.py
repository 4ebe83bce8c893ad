"""Three brokers and a real ZooKeeper: what one of them acknowledges, the others have."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from tests.support import zookeeper_process
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

SESSION_MS = 4_000
PARTITIONS = 3

_numbers = itertools.count()


class Bus:
    """A cluster and its clients."""

    def __init__(self, cluster: QbusCluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def create(self) -> str:
        """A topic that two replicas at least have to keep."""
        topic = f"topic-{next(_numbers)}"
        new = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})

        def is_created() -> bool:
            try:
                self.admin.create_topics([new])[topic].result(30)
            except ck.KafkaException as error:  # a broker that was killed comes back in its time
                if error.args[0].code() != ck.KafkaError.INVALID_REPLICATION_FACTOR:
                    raise
                return False
            return True

        wait_until(is_created, "three brokers", 60, 0.1)
        return topic

    def produce(self, topic: str, values: list[str], partition: int = -1) -> None:
        """Everything is acknowledged by all in sync, once; -1 lets the producer choose."""
        failed: list[object] = []
        producer = ck.Producer(
            {"bootstrap.servers": self.cluster.bootstrap, "enable.idempotence": True}
        )
        for value in values:
            producer.produce(
                topic,
                value,
                partition=partition,
                on_delivery=lambda error, _: failed.append(error),
            )
        assert producer.flush(60) == 0
        assert failed == [None] * len(values)

    def consume(self, topic: str, count: int, **settings: object) -> list[str]:
        """The first ``count`` values of all partitions."""
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "none",
                "auto.offset.reset": "earliest",
                **settings,
            }
        )
        consumer.assign(
            [ck.TopicPartition(topic, i, ck.OFFSET_BEGINNING) for i in range(PARTITIONS)]
        )
        values: list[str] = []

        def read() -> bool:
            messages = consumer.consume(count, 0.2)
            values.extend(str(m.value() or b"", "utf-8") for m in messages if not m.error())
            return len(values) >= count

        try:
            wait_until(read, f"{count} records of {topic}", 60)
        finally:
            consumer.close()
        return values

    def in_sync(self, topic: str, *nodes: int) -> bool:
        """Whether exactly ``nodes`` are in sync in each partition, and one of them leads."""
        found = self.partitions(topic)
        return bool(found) and all(
            p.leader in nodes and sorted(p.isrs) == sorted(nodes) for p in found
        )

    def leader(self, topic: str) -> int:
        """The leader of partition 0."""
        return int(wait_until(lambda: self.partitions(topic), "metadata")[0].leader)

    def partitions(self, topic: str) -> list[Any]:
        """The partitions as a broker describes them; empty if it does not answer."""
        try:
            known = self.admin.list_topics(topic, timeout=2).topics[topic].partitions
        except ck.KafkaException:
            return []
        return [known[index] for index in sorted(known)]

    def earliest(self, topic: str) -> int | None:
        """The first offset of partition 0; None while its leader may not have heard that it is."""
        place = ck.TopicPartition(topic, 0)
        (found,) = self.admin.list_offsets(
            {place: OffsetSpec.earliest()}, request_timeout=30
        ).values()
        try:
            return int(found.result(60).offset)
        except ck.KafkaException as error:
            if error.args[0].code() != ck.KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            return None

    def files(self, topic: str, node: int) -> dict[str, bytes]:
        """The segments of a topic on a broker, by file name."""
        root = self.cluster.log_dir(node)
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.glob(f"{topic}-*/*.log"))
        }

    def is_equal_everywhere(self, topic: str) -> bool:
        """Whether all replicas have the same bytes, and at least one."""
        first, *others = (self.files(topic, node) for node in NODES)
        return any(first.values()) and all(other == first for other in others)


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    skip_because_of(zookeeper_process.missing())
    options = {
        "zookeeper.session.timeout.ms": SESSION_MS,
        "replica.lag.time.max.ms": 3_000,
        "replica.selector.class": "rack",
    }
    stated = [text for key, value in options.items() for text in ("-o", f"{key}={value}")]
    cluster = QbusCluster(Path(tmp_path_factory.mktemp("cluster")), *stated)
    for node, broker in cluster.brokers.items():
        broker.options = (*broker.options, "-o", f"broker.rack=rack-{node}")
    with cluster:
        yield Bus(cluster)


def test_deleted_records_are_gone_from_all_replicas(bus: Bus) -> None:
    topic = bus.create()
    bus.produce(topic, [str(number) for number in range(300)], partition=0)
    partition = ck.TopicPartition(topic, 0, ck.OFFSET_END)
    deleted = bus.admin.delete_records([partition])[partition].result(30)
    end = deleted.low_watermark
    assert end == 300
    leader = bus.leader(topic)
    bus.cluster.brokers[leader].kill()
    try:
        wait_until(lambda: bus.leader(topic) not in {leader, -1}, "another leader", 60)
        wait_until(lambda: bus.earliest(topic) is not None, "an answer of the leader", 60)
        assert bus.earliest(topic) == end
    finally:
        bus.cluster.brokers[leader].start()
    wait_until(lambda: bus.in_sync(topic, *NODES), "the replicas in sync", 60)


def test_a_replica_that_has_to_begin_within_a_batch_comes_in_sync(bus: Bus) -> None:
    topic = bus.create()
    producer = ck.Producer({"bootstrap.servers": bus.cluster.bootstrap, "linger.ms": 500})
    for number in range(10):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(60) == 0
    new = next(node for node in NODES if node != bus.leader(topic))
    others = [node for node in NODES if node != new]
    bus.cluster.brokers[new].kill()
    try:
        wait_until(lambda: bus.in_sync(topic, *others), "the replicas in sync", 60)
        partition = ck.TopicPartition(topic, 0, 5)
        assert bus.admin.delete_records([partition])[partition].result(30).low_watermark == 5
        shutil.rmtree(bus.cluster.brokers[new].data_dir / f"{topic}-0")
    finally:
        bus.cluster.brokers[new].start()
    wait_until(lambda: bus.in_sync(topic, *NODES), "the replicas in sync", 60)
    assert sorted(bus.consume(topic, 5)) == ["5", "6", "7", "8", "9"]
    wait_until(lambda: bus.is_equal_everywhere(topic), "the same bytes everywhere", 30)


def test_a_consumer_reads_from_the_replica_in_its_rack(bus: Bus) -> None:
    topic = bus.create()
    values = [f"value-{number}" for number in range(500)]
    bus.produce(topic, values)
    for node in NODES:
        assert sorted(bus.consume(topic, 500, **{"client.rack": f"rack-{node}"})) == sorted(values)


def test_a_follower_that_is_gone_is_out_of_sync_until_it_has_caught_up(bus: Bus) -> None:
    topic = bus.create()
    bus.produce(topic, ["before"] * 100)
    gone = next(node for node in NODES if node != bus.leader(topic))
    others = [node for node in NODES if node != gone]
    bus.cluster.brokers[gone].kill()
    try:
        wait_until(lambda: bus.in_sync(topic, *others), "the replicas in sync", 60)
        bus.produce(topic, ["meanwhile"] * 100)
    finally:
        bus.cluster.brokers[gone].start()
    wait_until(lambda: bus.in_sync(topic, *NODES), "the replicas in sync", 60)
    assert len(bus.consume(topic, 200)) == 200
