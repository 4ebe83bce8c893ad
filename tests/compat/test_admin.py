"""Every client administers topics and groups, and is told what it does wrong as Kafka tells it."""

import pytest

from qbus.errors import ErrorCode
from tests.support.waiting import wait_until

from .clients import Client, ClientError
from .records import numbered
from .selection import clients_with

pytestmark = pytest.mark.compat


def refused(code: ErrorCode) -> "pytest.RaisesExc[ClientError]":
    """Expect the broker's refusal with that code."""
    return pytest.RaisesExc(ClientError, check=lambda error: error.code == code)


@clients_with("create_topic")
def test_creates_a_topic(client: Client, name: str, reference: Client) -> None:
    client.create_topic(name, 3, {"retention.ms": "3600000"})
    assert wait_until(lambda: name in reference.topics(), "the topic")
    assert reference.partitions(name) == [0, 1, 2]
    assert reference.config(name)["retention.ms"] == "3600000"


@clients_with("create_topic")
def test_a_topic_exists_once(client: Client, topic: str) -> None:
    with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
        client.create_topic(topic)


@pytest.mark.parametrize("wrong", ["no spaces", "ünicode", "a/b", ".", "..", "x" * 250])
@clients_with("create_topic")
def test_a_topic_name_is_checked(client: Client, wrong: str) -> None:
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        client.create_topic(wrong)


@clients_with("create_topic")
def test_names_that_differ_in_dots_collide(client: Client, name: str) -> None:
    client.create_topic(f"{name}.a")
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        client.create_topic(f"{name}_a")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no.such.key", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("segment.bytes", "0"),
        ("message.timestamp.type", "Whenever"),
        ("cleanup.policy", "shred"),
    ],
)
@clients_with("create_topic")
def test_a_topic_configuration_is_checked(
    client: Client, key: str, value: str, name: str, reference: Client
) -> None:
    with refused(ErrorCode.INVALID_CONFIG):
        client.create_topic(name, config={key: value})
    assert name not in reference.topics()


@clients_with("create_topic")
def test_a_topic_needs_partitions(client: Client, name: str) -> None:
    with refused(ErrorCode.INVALID_PARTITIONS):
        client.create_topic(name, 0)


@clients_with("topics", "partitions")
def test_lists_and_describes_topics(client: Client, name: str, reference: Client) -> None:
    reference.create_topic(name, 3)
    assert name in client.topics()
    assert client.partitions(name) == [0, 1, 2]


# These two ask for metadata in the way that creates the topic.
@clients_with("partitions", but_not=("aiokafka", "kcat"))
def test_an_unknown_topic_is_not_described(client: Client, name: str, reference: Client) -> None:
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        client.partitions(name)
    assert name not in reference.topics()


@clients_with("delete_topic")
def test_deletes_a_topic(client: Client, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(3))
    client.delete_topic(topic)
    wait_until(lambda: topic not in reference.topics(), "the topic to be gone")
    reference.create_topic(topic)
    assert reference.bounds(topic, 0) == (0, 0)


@clients_with("delete_topic")
def test_an_unknown_topic_is_not_deleted(client: Client, name: str) -> None:
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        client.delete_topic(name)


@clients_with("grow")
def test_grows_a_topic(client: Client, topic: str, reference: Client) -> None:
    client.grow(topic, 3)
    wait_until(lambda: reference.partitions(topic) == [0, 1, 2], "three partitions")
    reference.produce(topic, numbered(2), partition=2)
    assert reference.bounds(topic, 2) == (0, 2)


@clients_with("grow")
def test_a_topic_does_not_shrink(client: Client, name: str, reference: Client) -> None:
    reference.create_topic(name, 2)
    with refused(ErrorCode.INVALID_PARTITIONS):
        client.grow(name, 1)


@clients_with("config")
def test_describes_a_configuration_with_its_defaults(
    client: Client, name: str, reference: Client
) -> None:
    reference.create_topic(name, config={"retention.ms": "3600000"})
    config = client.config(name)
    expected = {
        "retention.ms": "3600000",
        "retention.bytes": "-1",
        "segment.bytes": "1073741824",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "cleanup.policy": "delete",
        "min.insync.replicas": "1",
        "compression.type": "producer",
    }
    assert {key: config[key] for key in expected} == expected


@clients_with("set_config")
def test_changes_one_key(client: Client, name: str, reference: Client) -> None:
    reference.create_topic(name, config={"retention.ms": "3600000"})
    client.set_config(name, "max.message.bytes", "500")
    wait_until(lambda: reference.config(name)["max.message.bytes"] == "500", "the change")
    assert reference.config(name)["retention.ms"] == "3600000"
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        reference.produce(name, numbered(1, size=1_000))


@clients_with("set_config")
def test_a_changed_key_is_checked(client: Client, topic: str) -> None:
    with refused(ErrorCode.INVALID_CONFIG):
        client.set_config(topic, "no.such.key", "1")
    with refused(ErrorCode.INVALID_CONFIG):
        client.set_config(topic, "retention.ms", "soon")


@clients_with("replace_config")
def test_replaces_a_configuration(client: Client, name: str, reference: Client) -> None:
    reference.create_topic(name, config={"retention.ms": "3600000"})
    client.replace_config(name, {"segment.ms": "60000"})
    wait_until(lambda: reference.config(name)["segment.ms"] == "60000", "the change")
    assert reference.config(name)["retention.ms"] == "604800000"
    with refused(ErrorCode.INVALID_CONFIG):
        client.replace_config(name, {"segment.ms": "-1"})


@clients_with("delete_records")
def test_deletes_records(client: Client, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(10))
    assert client.delete_records(topic, 0, 4) == 4
    assert reference.bounds(topic, 0) == (4, 10)
    assert client.delete_records(topic, 0, -1) == 10
    assert reference.bounds(topic, 0) == (10, 10)
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        client.delete_records(topic, 0, 11)


@clients_with("groups", "describe_group")
def test_lists_and_describes_groups(client: Client, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(1))
    reference.consume_group(topic, topic, 1)
    assert topic in client.groups()
    wait_until(lambda: client.describe_group(topic).state == "EMPTY", "an empty group")


@clients_with("delete_group")
def test_deletes_a_group(client: Client, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(1))
    reference.consume_group(topic, topic, 1)
    client.delete_group(topic)
    assert topic not in reference.groups()
    assert reference.committed(topic, 0, topic) == -1
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        client.delete_group(topic)


@clients_with("delete_group")
def test_a_group_with_members_is_not_deleted(client: Client, topic: str, reference: Client) -> None:
    member = reference.member(topic, topic)
    try:
        member.wait_assigned(1)
        assert client.describe_group(topic).state == "STABLE"
        with refused(ErrorCode.NON_EMPTY_GROUP):
            client.delete_group(topic)
    finally:
        member.kill()


@clients_with("brokers")
def test_describes_the_cluster(client: Client, bootstrap: str) -> None:
    assert client.brokers() == [bootstrap]
