"""A mirror's topic in a cluster of three: its offsets are the source's, whoever leads."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from qbus.clients.blocking.admin import Admin
from qbus.clients.types import ConfigKind
from qbus.errors import ErrorCode
from qbus.records import build_batch, set_base_offset
from qbus.wire import ApiKey
from qbus.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.support import zookeeper_process
from tests.support.cluster_view import View
from tests.support.qbus_cluster import QbusCluster
from tests.support.raw_client import RawClient
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

TOPIC = "a.orders"
START = 5_000_000
FAR = START + 2**33
_PRODUCE = 12
_OPTIONS = ("-o", "zookeeper.session.timeout.ms=4000", "-o", "replica.lag.time.max.ms=4000")


def batches(*offsets: int) -> bytes:
    """Batches of one record each, its value the offset, as the source has them."""
    made = b""
    for offset in offsets:
        one = build_batch([(None, b"%d" % offset, (), offset)])
        set_base_offset(one, offset, 77)
        made += one
    return made


class Mirrored:
    """The topic, and what a mirror does."""

    def __init__(self, cluster: QbusCluster) -> None:
        self.cluster = cluster
        self.view = View(cluster.brokers)

    def produce(self, *offsets: int, follows: int, source: str = "a") -> PartitionProduceResponse:
        """Once, to whoever leads now."""
        data = PartitionProduceData(
            records=batches(*offsets), mirror_follows=follows, mirror_log_start_offset=START
        )
        topic = TopicProduceData(name=TOPIC, partition_data=[data], mirror_source=source)
        request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[topic])
        leader = wait_until(lambda: max(self.view.leader(TOPIC), 0), "a leader")
        with RawClient(self.cluster.brokers[leader].port) as client:
            response = client.ask(ApiKey.PRODUCE, _PRODUCE, request)
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return answer

    def files(self, node: int) -> dict[str, bytes]:
        """A replica's segments, by their names."""
        directory = self.cluster.log_dir(node) / f"{TOPIC}-0"
        return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}

    def wait_for_replicas(self) -> dict[str, bytes]:
        """Return when all have the same segments, and are in sync."""

        def are_equal() -> bool:
            one, *others = (self.files(node) for node in self.cluster.brokers)
            return bool(one) and all(other == one for other in others)

        wait_until(lambda: self.view.are_whole([TOPIC], 1), "replicas in sync", 60, 0.1)
        wait_until(are_equal, "equal replicas", 60, 0.1)
        return self.files(1)

    def consume(self, count: int, offset: int = ck.OFFSET_BEGINNING) -> list[int]:
        """The first offsets from one on, as a client sees them that nobody here wrote."""
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "readers",
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
            }
        )
        consumer.assign([ck.TopicPartition(TOPIC, 0, offset)])
        found: list[int] = []
        try:
            while len(found) < count:
                (message,) = consumer.consume(1, 30) or (None,)
                assert message is not None, f"no more than {found}"
                assert message.error() is None
                offset_of = message.offset()
                assert offset_of is not None
                found.append(offset_of)
        finally:
            consumer.close()
        return found


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirrored]:
    skip_because_of(zookeeper_process.missing())
    directory: Path = tmp_path_factory.mktemp("mirrored")
    with QbusCluster(directory, *_OPTIONS) as cluster:
        one = Mirrored(cluster)
        wait_until(one.view.are_all_there, "three brokers", 60, 0.1)
        with Admin(cluster.bootstrap) as admin:
            config = {"qbus.mirror.source": "a", "min.insync.replicas": "2"}
            admin.create_topic(TOPIC, partitions=1, replication_factor=3, config=config)
        wait_until(lambda: one.view.are_whole([TOPIC], 1), "the topic", 60, 0.1)
        yield one


def test_a_mirrored_topic_from_creation_to_takeover(mirrored: Mirrored) -> None:
    # It starts where the source does, on every replica, and has the source's gaps.
    assert mirrored.produce(START + 3, START + 9, follows=0).error_code == 0
    answer = mirrored.produce(FAR, follows=START + 10)
    assert (answer.error_code, answer.log_start_offset) == (0, START)
    assert next(iter(mirrored.wait_for_replicas())) == f"{START:020}.log"
    reached = [START + 3, START + 9, FAR]
    assert mirrored.consume(3) == reached
    assert mirrored.consume(2, START + 4) == reached[1:]

    # Another leader goes on, and who was away catches up.
    leader = mirrored.view.leader(TOPIC)
    mirrored.cluster.brokers[leader].kill()
    wait_until(lambda: mirrored.view.are_led([TOPIC], 1, without=leader), "another leader", 60, 0.1)
    assert mirrored.produce(FAR, follows=FAR).base_offset == FAR
    refused = mirrored.produce(FAR + 7, follows=FAR + 5)
    assert ErrorCode(refused.error_code) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert mirrored.produce(FAR + 5, FAR + 7, follows=FAR + 1).error_code == 0
    mirrored.cluster.brokers[leader].start()
    mirrored.wait_for_replicas()
    reached += [FAR + 5, FAR + 7]
    assert mirrored.consume(5) == reached

    # Nothing of it is forgotten when all start again.
    before = mirrored.files(1)
    for broker in mirrored.cluster.brokers.values():
        broker.restart()
    assert mirrored.wait_for_replicas() == before
    assert mirrored.consume(5) == reached

    # Until it is taken over, only the mirror writes.
    ordinary = mirrored.produce(0, follows=-1, source="")
    assert ErrorCode(ordinary.error_code) is ErrorCode.POLICY_VIOLATION
    with Admin(mirrored.cluster.bootstrap) as admin:
        admin.alter_config(ConfigKind.TOPIC, TOPIC, unset=["qbus.mirror.source"])

    def is_taken() -> bool:
        return mirrored.produce(0, follows=-1, source="").error_code == 0

    wait_until(is_taken, "an ordinary topic", 60, 0.1)
    refused = mirrored.produce(FAR + 8, follows=FAR + 8)
    assert ErrorCode(refused.error_code) is ErrorCode.INVALID_REQUEST
    for broker in mirrored.cluster.brokers.values():
        broker.kill()
    for broker in mirrored.cluster.brokers.values():
        broker.start()
    mirrored.wait_for_replicas()
    assert mirrored.consume(6) == [*reached, FAR + 8]
