"""The layout: paths and JSON of Apache Kafka; anything else is refused."""

import json
from typing import Any

import pytest

from qbus.metadata.errors import MalformedNode
from qbus.metadata.ids import decode_id
from qbus.metadata.znodes import (
    ALL_BROKERS,
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETED,
    BrokerEpochNode,
    BrokerNode,
    ChangeNode,
    ClusterIdNode,
    ConfigNode,
    ControllerEpochNode,
    ControllerNode,
    EndpointNode,
    PartitionStateNode,
    TopicChange,
    TopicNode,
)
from qbus.names import TopicPartition

ID = "vPeOCWypqUOSepEvx0cbog"

# What Apache Kafka 3.x wrote to ZooKeeper.
KAFKAS = [
    (ClusterIdNode(ID), '{"version":"1","id":"vPeOCWypqUOSepEvx0cbog"}'),
    (
        TopicNode(decode_id(ID), {0: (1, 2), 1: (2, 1)}),
        '{"partitions":{"0":[1,2],"1":[2,1]},"topic_id":"vPeOCWypqUOSepEvx0cbog",'
        '"adding_replicas":{},"removing_replicas":{},"version":3}',
    ),
    (
        TopicNode(decode_id(ID), {0: (3, 1)}, {0: (3,)}, {0: (1,)}),
        '{"partitions":{"0":[3,1]},"topic_id":"vPeOCWypqUOSepEvx0cbog",'
        '"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]},"version":3}',
    ),
    (
        PartitionStateNode(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=7),
        '{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}',
    ),
    (
        ConfigNode({"retention.ms": "5", "cleanup.policy": "delete"}),
        '{"version":1,"config":{"retention.ms":"5","cleanup.policy":"delete"}}',
    ),
    (
        ControllerNode(3, 1_700_000_000_000),
        '{"version":2,"brokerid":3,"timestamp":"1700000000000","kraftControllerEpoch":-1}',
    ),
    (ControllerEpochNode(12), "12"),
]

OURS = [
    PartitionStateNode(-1, 5, (), 7, elr=(2, 3)),
    PartitionStateNode(-1, 6, (), 7, last_in_sync=2),
    BrokerNode("bus.example", 9092, epoch=3, rack="r1", timestamp_ms=5),
    BrokerNode("::1", 9092, epoch=0),
    BrokerNode("::1", 9092, epoch=0, disque=("::1", 7711)),
    BrokerNode("b", 9092, epoch=0, directory="d1", is_stopping=True),
    BrokerNode("b", 9092, epoch=0, directory="d1", is_full=True),
    BrokerNode("b", 9092, epoch=0, machine="m"),
    BrokerNode("b", 9092, 0, offline=frozenset({TopicPartition("t", 0), TopicPartition("a.b", 7)})),
    BrokerNode("::1", 9092, 0, listeners=(EndpointNode("SASL_SSL", "SASL_SSL", "::1", 9092),)),
    BrokerNode(
        "b",
        1,
        epoch=0,
        listeners=(
            EndpointNode("INSIDE", "SSL", "b", 1),
            EndpointNode("PLAINTEXT", "PLAINTEXT", "c", 2),
        ),
    ),
    ControllerNode(3, 5, broker_epoch=7),
    ChangeNode(),
    ChangeNode(states={"a": (0, 3), "b": (1,)}),
    ChangeNode(groups=("a/b", "c")),
    ChangeNode(users=("a/b", "c"), acls=("Topic/t",), quotas=("ips/<default>",)),
    ChangeNode(
        topics=("a", "b", "c"),
        details={
            "a": TopicChange(decode_id(ID), 0, 0, ((1, 2), (2, 1)), {"flush.ms": "7"}),
            "b": TopicChange(decode_id(ID), 5, 3, ((1, 2),)),
            "c": TopicChange(decode_id(ID), DELETED),
        },
    ),
    ChangeNode(topics=("a", "b"), configs=("c",), brokers=(ALL_BROKERS, "1"), cluster=True),
]


@pytest.mark.parametrize(("node", "text"), KAFKAS, ids=lambda item: type(item).__name__)
def test_speaks_kafkas_json(node: Any, text: str) -> None:
    assert type(node).decode(text.encode()) == node
    assert json.loads(node.encode()) == json.loads(text)


@pytest.mark.parametrize("node", OURS, ids=lambda item: type(item).__name__)
def test_reads_what_it_wrote(node: Any) -> None:
    assert type(node).decode(node.encode()) == node


def test_a_broker_is_registered_as_kafkas_tools_expect() -> None:
    node = json.loads(BrokerNode("::1", 9092, epoch=3, timestamp_ms=5).encode())
    assert node["endpoints"] == ["PLAINTEXT://[::1]:9092"]
    assert node["listener_security_protocol_map"] == {"PLAINTEXT": "PLAINTEXT"}
    assert (node["host"], node["port"], node["version"]) == ("::1", 9092, 5)
    assert "rack" not in node


def test_listeners_are_registered_as_kafkas_tools_expect() -> None:
    listeners = (
        EndpointNode("INSIDE", "SASL_SSL", "::1", 9093),
        EndpointNode("OPEN", "PLAINTEXT", "bus", 9092),
    )
    node = json.loads(BrokerNode("::1", 9093, epoch=3, listeners=listeners).encode())
    assert node["endpoints"] == ["INSIDE://[::1]:9093", "OPEN://bus:9092"]
    assert node["listener_security_protocol_map"] == {"INSIDE": "SASL_SSL", "OPEN": "PLAINTEXT"}
    assert (node["host"], node["port"]) == ("bus", 9092)  # for who does not encrypt
    node = json.loads(BrokerNode("::1", 9093, epoch=3, listeners=listeners[:1]).encode())
    assert (node["host"], node["port"]) == (None, -1)


def test_paths_are_kafkas() -> None:
    assert CLUSTER_ID == "/cluster/id"
    assert BrokerNode.path(1) == "/brokers/ids/1"
    assert BrokerEpochNode.path(1) == "/brokers/epochs/1"
    assert TopicNode.path("t") == "/brokers/topics/t"
    assert PartitionStateNode.path("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert ConfigNode.topic_path("t") == "/config/topics/t"
    assert ConfigNode.broker_path("1") == "/config/brokers/1"
    assert ConfigNode.broker_path(ALL_BROKERS) == "/config/brokers/<default>"
    assert CONTROLLER == "/controller"
    assert CONTROLLER_EPOCH == "/controller_epoch"


def test_a_registration_says_whose_it_is() -> None:
    assert BrokerNode.id_of(BrokerNode.path(17)) == 17
    for path in ("/brokers/ids/x", "/brokers/ids/-1", "/brokers/ids/"):
        with pytest.raises(MalformedNode):
            BrokerNode.id_of(path)


def test_details_that_a_newer_broker_wrote_are_left_to_reading() -> None:
    text = b'{"topics":["a","b"],"details":{"a":{"id":"?"},"b":{"id":"%s","version":-1}}}'
    change = ChangeNode.decode(text % ID.encode())
    assert change.topics == ("a", "b")
    assert change.details == {"b": TopicChange(decode_id(ID), DELETED)}


READABLE = [
    ClusterIdNode,
    BrokerNode,
    TopicNode,
    PartitionStateNode,
    ConfigNode,
    ControllerNode,
    ControllerEpochNode,
    ChangeNode,
]


@pytest.mark.parametrize("kind", READABLE)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"x"', b"null", b"\xff\xfe", b'{"topics":3}'])
def test_invalid_data_are_malformed(kind: Any, data: bytes) -> None:
    with pytest.raises(MalformedNode):
        kind.decode(data)


@pytest.mark.parametrize("kind", [kind for kind in READABLE if kind is not ChangeNode])
def test_missing_fields_are_malformed(kind: Any) -> None:
    with pytest.raises(MalformedNode):
        kind.decode(b'{"version":1}')


@pytest.mark.parametrize(
    "partitions",
    ['{"1":[1]}', '{"0":[1],"2":[1]}', '{"x":[1]}', '{"0":["x"]}', '{"0":1}', "[]"],
)
def test_partitions_are_numbered_without_a_gap(partitions: str) -> None:
    with pytest.raises(MalformedNode):
        TopicNode.decode(f'{{"topic_id":"{ID}","partitions":{partitions}}}'.encode())


def test_a_topic_has_an_id() -> None:
    with pytest.raises(MalformedNode):
        TopicNode.decode(b'{"topic_id":"short","partitions":{"0":[1]}}')


def test_changes_that_share_a_transaction_are_announced_once_each() -> None:
    changes = [
        ChangeNode(topics=("b", "a"), states={"t": (2, 1)}),
        ChangeNode(topics=("a",), configs=("c",), brokers=("7",)),
        ChangeNode(configs=("c", "d"), states={"t": (1, 3), "u": (0,)}, cluster=True),
        ChangeNode(groups=("g", "h")),
        ChangeNode(groups=("h", "g")),
        ChangeNode(users=("a", "b"), acls=("x",), quotas=("y",)),
        ChangeNode(users=("b", "c"), acls=("x", "y"), quotas=("z", "y")),
    ]
    merged = ChangeNode.merged(changes)
    states = {"t": (2, 1, 3), "u": (0,)}
    users, acls, quotas = ("a", "b", "c"), ("x", "y"), ("y", "z")
    assert merged == ChangeNode(
        ("b", "a"), ("c", "d"), ("7",), True, states, ("g", "h"), users, acls, quotas
    )
    assert ChangeNode.decode(merged.encode()) == merged
    assert ChangeNode.merged([]) == ChangeNode()


def test_what_a_users_node_holds_is_not_shown() -> None:
    for data in (b'{"config":"secret"}', b"secret", b'{"secret":1}'):
        with pytest.raises(MalformedNode) as raised:
            ConfigNode.decode_secret(data)
        assert "secret" not in str(raised.value)
        assert raised.value.__suppress_context__


def test_users_lie_where_kafkas_tools_look_for_them() -> None:
    assert ConfigNode.user_path("alice") == "/config/users/alice"
    assert ConfigNode.user_path("CN=a b,O=*~") == "/config/users/CN%3Da%20b%2CO%3D%2A%7E"
    assert ConfigNode.user_path("<default>") == "/config/users/<default>"
