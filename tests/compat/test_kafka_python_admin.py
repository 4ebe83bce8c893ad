"""Administration that of all Python clients only kafka-python knows."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import kafka
import pytest

from qbus.errors import ErrorCode

from .clients import Client
from .records import START_MS, numbered

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[Any]:
    """Return kafka-python's administration client."""
    client = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def place(topic: str, partition: int = 0) -> Any:
    """Return kafka-python's name of a partition."""
    return kafka.TopicPartition(topic, partition)


def test_validates_without_creating(admin: Any, name: str, reference: Client) -> None:
    answer = admin.create_topics({name: {"num_partitions": 3}}, validate_only=True)
    (topic,) = answer["topics"]
    assert (topic["num_partitions"], topic["replication_factor"]) == (3, 1)
    assert name not in reference.topics()


def test_creates_with_the_brokers_defaults(admin: Any, name: str, reference: Client) -> None:
    answer = admin.create_topics({name: {}})
    (topic,) = answer["topics"]
    assert (topic["num_partitions"], topic["replication_factor"]) == (1, 1)
    assert topic["configs"]["segment.bytes"]["value"] == "1073741824"
    assert UUID(topic["topic_id"]).int != 0


def test_creates_with_an_assignment(admin: Any, name: str, reference: Client) -> None:
    (broker,) = admin.describe_cluster()["brokers"]
    admin.create_topics(
        {name: {"assignments": {0: [broker["broker_id"]], 1: [broker["broker_id"]]}}}
    )
    assert reference.partitions(name) == [0, 1]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"assignments": {0: [99]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {1: [1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_refuses_replicas_that_cannot_be(
    admin: Any, options: dict[str, Any], code: ErrorCode, name: str
) -> None:
    (topic,) = admin.create_topics({name: options}, raise_errors=False)["topics"]
    assert topic["error_code"] == code


def test_describes_partitions_page_by_page(admin: Any, name: str, reference: Client) -> None:
    reference.create_topic(name, 5)
    answer = admin.describe_topic_partitions([name], response_partition_limit=2)
    (topic,) = answer["topics"]
    assert [one["partition_index"] for one in topic["partitions"]] == [0, 1]
    assert (answer["next_cursor"]["topic_name"], answer["next_cursor"]["partition_index"]) == (
        name,
        2,
    )


def test_finds_offsets_by_what_they_are(admin: Any, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(5))
    spec = kafka.admin.OffsetSpec
    for wanted, offset in ((spec.EARLIEST, 0), (spec.LATEST, 5), (spec.MAX_TIMESTAMP, 4)):
        found = admin.list_partition_offsets({place(topic): wanted})[place(topic)]
        assert found.offset == offset
    assert found.timestamp == START_MS + 4_000


def test_describes_producers(admin: Any, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(3), idempotent=True)
    (producer,) = admin.describe_producers([place(topic)])[place(topic)].active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (0, 2)


def test_describes_log_dirs(admin: Any, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(1, size=1_000))
    (answer,) = admin.describe_log_dirs()
    sizes = {
        (one["name"], partition["partition_index"]): partition["partition_size"]
        for directory in answer["log_dirs"]
        for one in directory["topics"]
        for partition in one["partitions"]
    }
    assert 1_000 < sizes[topic, 0] < 1_200


def test_describes_the_broker(admin: Any) -> None:
    (broker,) = admin.describe_cluster()["brokers"]
    resource = kafka.admin.ConfigResource(
        kafka.admin.ConfigResourceType.BROKER, str(broker["broker_id"])
    )
    answer = admin.describe_configs([resource], config_filter="all")
    config = answer["broker"][str(broker["broker_id"])]
    assert config["message.max.bytes"]["value"] == "1048588"
    assert config["group.min.session.timeout.ms"]["value"] == "1000"
    assert config["group.min.session.timeout.ms"]["config_source"] == "STATIC_BROKER_CONFIG"


def test_deletes_offsets(admin: Any, name: str, reference: Client) -> None:
    reference.create_topic(name, 2)
    for partition in (0, 1):
        reference.commit(name, partition, name, 5)
    assert admin.delete_group_offsets(name, [place(name, 1)])[place(name, 1)].errno == 0
    assert reference.committed(name, 0, name) == 5
    assert reference.committed(name, 1, name) == -1


def test_keeps_offsets_of_a_subscribed_topic(admin: Any, topic: str, reference: Client) -> None:
    member = reference.member(topic, topic)
    try:
        member.wait_assigned(1)
        answer = admin.delete_group_offsets(topic, [place(topic)])
    finally:
        member.kill()
    assert answer[place(topic)].errno == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_resets_offsets(admin: Any, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(5))
    reference.commit(topic, 0, topic, 5)
    admin.reset_group_offsets(topic, {place(topic): kafka.admin.OffsetSpec.EARLIEST})
    assert reference.committed(topic, 0, topic) == 0


def test_removes_members(admin: Any, topic: str, reference: Client) -> None:
    member = reference.member(topic, topic)
    try:
        member.wait_assigned(1)
        (found,) = admin.describe_groups([topic])[topic]["members"]
        removed = kafka.admin.MemberToRemove(member_id=found["member_id"])
        (answer,) = admin.remove_group_members(topic, [removed]).values()
        assert answer.errno == 0
    finally:
        member.kill()
