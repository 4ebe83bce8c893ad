"""Share groups while brokers die: no record is lost, and none is given again once it is done.

The members are Kafka's in Java, and librdkafka's. They acknowledge each batch for itself, so the
test knows which acknowledgements were answered: such a record must never come again. What was given
out and not answered may come again.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from uuid import uuid4

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from qbus.broker.group.ownership import coordinator_of
from qbus.wire import ApiKey
from qbus.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from qbus.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.compat.clients import ClientError
from tests.compat.share_members import ConfluentShare, ShareDriver, ShareMember
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.raw_client import RawClient
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .faults.probe import create_topic

pytestmark = pytest.mark.integration

PARTITIONS = 3
_PATIENCE = 120.0


class Member(threading.Thread):
    """Acknowledges what it is given, and notes it."""

    def __init__(self, client: ShareDriver | ConfluentShare, topic: str) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._member: ShareMember = client.join(topic, topic, explicit=True)
        self._stopping = threading.Event()
        self.done: list[str] = []
        self.unanswered: list[str] = []  # acknowledged, perhaps
        self.given_after_done: list[str] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            with suppress(ck.KafkaException, ClientError):
                self._work()
        self._member.leave()
        self._client.close()

    def _work(self) -> None:
        taken: dict[int, list[str]] = {}
        for one in self._member.poll(0.2):
            if one.value in self.done:
                self.given_after_done.append(one.value)
            taken.setdefault(one.partition, []).append(one.value)
            self._member.acknowledge("ACCEPT", one.offset, partition=one.partition)
        answers = {}
        try:
            answers = self._member.commit() if taken else {}
        finally:
            for partition, some in taken.items():
                noted = self.done if answers.get(partition) == "NONE" else self.unanswered
                noted += some

    def stop(self) -> None:
        """Begin to leave the group."""
        self._stopping.set()

    def wait(self) -> None:
        """Wait until it has left: in Java that takes half a minute once a broker was killed."""
        self.join(_PATIENCE)
        assert not self.is_alive()


@contextmanager
def working(members: list[Member]) -> Iterator[None]:
    """Have members work until the block is over."""
    for member in members:
        member.start()
    try:
        yield
    finally:
        for member in members:
            member.stop()
        for member in members:
            member.wait()


def produce(bootstrap: str, topic: str, first: int, count: int) -> list[str]:
    """Numbers that are acknowledged."""
    producer = ck.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2}
    )
    sent = [str(number) for number in range(first, first + count)]
    failures: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    for number, value in enumerate(sent):
        producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=delivered)
    producer.flush(_PATIENCE)
    assert failures == []
    return sent


def are_done(members: list[Member], sent: list[str]) -> bool:
    """Whether all was done, as far as anybody can know."""
    return {value for one in members for value in one.done + one.unanswered} == set(sent)


def check(members: list[Member], sent: list[str]) -> None:
    """All were done, and nothing that was known to be done came again."""
    counts = [value for member in members for value in member.done]
    assert len(counts) > len(sent) / 2
    assert len(counts) == len(set(counts)), "acknowledged twice"
    assert [member.given_after_done for member in members] == [[]] * len(members)


@pytest.fixture
def topic(running: QbusCluster) -> str:
    """A topic, and a share group of its name that begins at the first record."""
    name = f"work-{uuid4()}"
    create_topic(running.bootstrap, name, PARTITIONS)
    earliest = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    group = AlterConfigsResource(resource_type=32, resource_name=name, configs=[earliest])
    request = IncrementalAlterConfigsRequest(resources=[group])
    with RawClient(running.brokers[1].port) as client:
        response = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert response.responses[0].error_code == 0
    return name


@pytest.mark.timeout(400)  # Java starts slowly on a busy machine
@pytest.mark.parametrize(
    "client",
    [pytest.param(ShareDriver, marks=pytest.mark.nightly), ConfluentShare],
    ids=lambda kind: kind.name,
)
def test_leaders_and_the_coordinator_die(
    running: QbusCluster, topic: str, client: type[ShareDriver | ConfluentShare]
) -> None:
    skip_because_of(client.missing())
    coordinator = coordinator_of(topic, NODES)
    members = [Member(client(running.bootstrap), topic) for _ in range(2)]
    with working(members):
        sent = produce(running.bootstrap, topic, 0, 300)
        wait_until(partial(are_done, members, sent), "the first records", _PATIENCE)
        for node in sorted(NODES, key=lambda node: node != coordinator):
            sent += produce(running.bootstrap, topic, len(sent), 300)
            running.brokers[node].kill()
            sent += produce(running.bootstrap, topic, len(sent), 300)
            wait_until(partial(are_done, members, sent), "records after a death", _PATIENCE)
            running.brokers[node].start()
            wait_until(lambda: all_in_sync(running, topic), "all replicas", _PATIENCE)
        check(members, sent)
    assert coordinator is not None
    wait_until(lambda: lag(running, coordinator, topic) == {0: 0, 1: 0, 2: 0}, "no lag")


def lag(cluster: QbusCluster, coordinator: int, group: str) -> dict[int, int]:
    """The lag of each partition, which the coordinator asks the leaders for; -1: an error."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[wanted])
    with RawClient(cluster.brokers[coordinator].port) as client:
        response = client.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, request)
    return {
        one.partition_index: -1 if one.error_code else one.lag
        for topic in response.groups[0].topics
        for one in topic.partitions
    }


def all_in_sync(cluster: QbusCluster, topic: str) -> bool:
    """Whether every partition has all its replicas in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
    return all(len(one.isrs) == len(NODES) for one in found)
