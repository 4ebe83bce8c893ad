"""Metadata: brokers, topics and leaders, in every version; being asked for makes topics."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.controller import NewTopic
from qbus.broker.metadata.image import BrokerInfo
from qbus.broker.net.connection import CloseConnection
from qbus.config import Address, ListenerInfo, SecurityProtocol
from qbus.errors import ErrorCode
from qbus.metadata import Set
from qbus.metadata.feed import announce, sequence_of
from qbus.metadata.znodes import ChangeNode, PartitionStateNode
from qbus.names import TopicPartition
from qbus.wire import API, ZERO_UUID, ApiKey
from qbus.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

ALL_VERSIONS = range(14)
NOT_ASKED = -(2**31)
ON_TOPIC, ON_CLUSTER = 3576, 8096  # what Apache Kafka answers when nobody is denied anything


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path) as plane:
        await plane.controller.create_topics([NewTopic("t", 2), NewTopic("u")])
        yield plane


async def ask(plane: MetadataPlane, version: int, request: MetadataRequest) -> MetadataResponse:
    response = await plane.ask(ApiKey.METADATA, version, request)
    assert isinstance(response, MetadataResponse)
    return response


def named(*names: str, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def by_id(*ids: bytes) -> MetadataRequest:
    topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
    return MetadataRequest(topics=topics)


async def refusal(plane: MetadataPlane, version: int, request: MetadataRequest) -> ErrorCode:
    (topic,) = (await ask(plane, version, request)).topics
    assert topic.partitions == []
    return ErrorCode(topic.error_code)


@pytest.mark.parametrize("in_doubt", ["all", "none", "its name", "its id"])
async def test_who_may_not_lead_any_more_does_not_tell_of_the_past(
    plane: MetadataPlane, in_doubt: str
) -> None:
    """The client asks another broker, and is told."""
    topic_id = plane.metadata.topics["t"].id
    request = {
        "all": MetadataRequest(topics=None),
        "none": MetadataRequest(topics=[]),
        "its name": named("u", "t"),
        "its id": by_id(topic_id),
    }[in_doubt]
    await ask(plane, 12, request)
    plane.metadata.suspected.add(("t", 1))
    with pytest.raises(CloseConnection):
        await ask(plane, 12, request)
    assert [topic.name for topic in (await ask(plane, 12, named("u"))).topics] == ["u"]


def test_serves_what_kafka_serves() -> None:
    api = API[ApiKey.METADATA]
    assert range(api.min_version, api.max_version + 1) == ALL_VERSIONS


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_tells_of_brokers_topics_and_leaders(plane: MetadataPlane, version: int) -> None:
    request = MetadataRequest(topics=None if version else [])
    response = await ask(plane, version, request)
    assert response.throttle_time_ms == 0
    assert response.error_code == ErrorCode.NONE
    rack = "rack-1" if version >= 1 else None
    assert response.brokers == [
        MetadataResponseBroker(node_id=1, host="bus.example", port=9092, rack=rack)
    ]
    assert response.cluster_id == (plane.cluster_id if version >= 2 else None)
    assert response.controller_id == (1 if version >= 1 else -1)
    assert [topic.name for topic in response.topics] == ["t", "u"]
    topic = response.topics[0]
    assert topic == MetadataResponseTopic(
        error_code=0,
        name="t",
        topic_id=plane.metadata.topics["t"].id if version >= 10 else ZERO_UUID,
        is_internal=False,
        partitions=[
            MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=1,
                leader_epoch=0 if version >= 7 else -1,
                replica_nodes=[1],
                isr_nodes=[1],
                offline_replicas=[],
            )
            for index in range(2)
        ],
        topic_authorized_operations=NOT_ASKED,
    )


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_no_topics_means_all_in_version_0_and_none_after_it(
    plane: MetadataPlane, version: int
) -> None:
    response = await ask(plane, version, MetadataRequest(topics=[]))
    assert len(response.topics) == (2 if version == 0 else 0)


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_finds_topics_by_name(plane: MetadataPlane, version: int) -> None:
    request = named("u", "nothing", "a/b", "")
    request.allow_auto_topic_creation = version < 4
    if version < 4:
        plane.config.set_dynamic({"auto.create.topics.enable": "false"}, {})
    response = await ask(plane, version, request)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("u", ErrorCode.NONE),
        ("nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


@pytest.mark.parametrize("version", [12, 13])
async def test_finds_topics_by_id(plane: MetadataPlane, version: int) -> None:
    known, unknown = plane.metadata.topics["u"].id, b"?" * 16
    first, second = (await ask(plane, version, by_id(known, unknown))).topics
    assert (first.name, first.topic_id, first.error_code) == ("u", known, ErrorCode.NONE)
    assert (second.name, second.topic_id) == (None, unknown)
    assert second.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_an_empty_name_beside_an_id_is_none(plane: MetadataPlane) -> None:
    """Kafka's client asks so for what a group of the consumer protocol assigns it."""
    known = plane.metadata.topics["u"].id
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=known, name="")])
    (found,) = (await ask(plane, 12, request)).topics
    assert (found.name, found.error_code) == ("u", ErrorCode.NONE)


async def test_a_topic_is_named_one_way_and_by_id_only_where_that_works(
    plane: MetadataPlane,
) -> None:
    known = plane.metadata.topics["u"].id
    both = MetadataRequest(topics=[MetadataRequestTopic(topic_id=known, name="u")])
    assert await refusal(plane, 12, both) is ErrorCode.INVALID_REQUEST
    neither = by_id(ZERO_UUID)
    assert await refusal(plane, 12, neither) is ErrorCode.UNKNOWN_TOPIC_ID
    for version in (10, 11):
        for request in (both, by_id(known), neither):
            assert await refusal(plane, version, request) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_a_topic_that_is_asked_for_is_created_and_can_be_used_at_once(
    plane: MetadataPlane, version: int
) -> None:
    plane.config.set_dynamic({"num.partitions": "3"}, {})
    response = await ask(plane, version, named("new", "t", "new2", create=True))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("new", ErrorCode.NONE),
        ("t", ErrorCode.NONE),
        ("new2", ErrorCode.NONE),
    ]
    assert [partition.leader_id for partition in response.topics[0].partitions] == [1, 1, 1]
    assert plane.metadata.topics.keys() == {"t", "u", "new", "new2"}


async def test_nobody_creates_a_topic_by_accident(plane: MetadataPlane) -> None:
    code = await refusal(plane, 4, named("new", create=False))
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await refusal(plane, 12, by_id(b"?" * 16)) is ErrorCode.UNKNOWN_TOPIC_ID
    code = await refusal(plane, 12, named("../x", create=True))
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    await ask(plane, 12, MetadataRequest(topics=None, allow_auto_topic_creation=True))
    plane.config.set_dynamic({"auto.create.topics.enable": "false"}, {})
    code = await refusal(plane, 12, named("new", create=True))
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert plane.metadata.topics.keys() == {"t", "u"}


async def test_a_topic_that_cannot_be_created_says_so(plane: MetadataPlane) -> None:
    await plane.controller.create_topics([NewTopic("with.dots")])
    code = await refusal(plane, 12, named("with_dots", create=True))
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    plane.config.set_dynamic({"default.replication.factor": "2"}, {})
    code = await refusal(plane, 12, named("new", create=True))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    plane.config.set_dynamic({}, {})
    await plane.store.close()
    code = await refusal(plane, 12, named("later", create=True))
    assert code.retriable


async def test_a_topic_asked_for_twice_is_created_once_and_told_twice(
    plane: MetadataPlane,
) -> None:
    response = await ask(plane, 12, named("new", "new", create=True))
    assert [topic.error_code for topic in response.topics] == [0, 0]


@pytest.mark.parametrize("version", [8, 9, 10, 11, 13])
async def test_tells_on_request_what_the_client_may_do(plane: MetadataPlane, version: int) -> None:
    request = named("t", "nothing")
    request.include_topic_authorized_operations = True
    request.include_cluster_authorized_operations = version <= 10
    response = await ask(plane, version, request)
    assert [t.topic_authorized_operations for t in response.topics] == [ON_TOPIC, ON_TOPIC]
    expected = ON_CLUSTER if version <= 10 else NOT_ASKED
    assert response.cluster_authorized_operations == expected


OUTSIDE = ListenerInfo("OUTSIDE", SecurityProtocol.SSL, Address("bus", 19092))
BOTH = (ListenerInfo.plaintext("b2", 9092), OUTSIDE)


async def test_brokers_are_where_the_clients_listener_has_them(tmp_path: Path) -> None:
    other = BrokerInfo(2, "b2", 9092, listeners=BOTH)
    async with metadata_plane(tmp_path, others=(other,)) as plane:
        assert plane.metadata.brokers[2].listeners == BOTH
        for listener, expected in (
            ("PLAINTEXT", {(1, "bus.example", 9092), (2, "b2", 9092)}),
            ("OUTSIDE", {(2, "bus", 19092)}),
            ("NOWHERE", set()),
        ):
            response = await plane.ask(ApiKey.METADATA, 13, MetadataRequest(), listener)
            assert {(one.node_id, one.host, one.port) for one in response.brokers} == expected


@pytest.mark.parametrize(
    ("version", "code"),
    [(5, ErrorCode.LEADER_NOT_AVAILABLE), (13, ErrorCode.LISTENER_NOT_FOUND)],
)
async def test_a_leader_without_the_clients_listener_is_none_for_it(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    other = BrokerInfo(2, "b2", 9092, listeners=BOTH)
    async with metadata_plane(tmp_path, others=(other,)) as plane:
        await plane.controller.create_topics([NewTopic("t", assignment={0: [2], 1: [1]})])
        response = await plane.ask(ApiKey.METADATA, version, named("t"), "OUTSIDE")
        assert [(one.error_code, one.leader_id) for one in response.topics[0].partitions] == [
            (ErrorCode.NONE, 2),
            (code, -1),
        ]


@pytest.mark.parametrize("version", [5, 13])
async def test_a_replica_that_its_broker_cannot_use_is_offline(
    tmp_path: Path, version: int
) -> None:
    """Kafka answers the same where the log directory of the only replica failed."""
    lost = frozenset({TopicPartition("t", 0), TopicPartition("u", 0)})
    other = BrokerInfo(2, "b2", 9092, offline=lost)
    async with metadata_plane(tmp_path, others=(other,)) as plane:
        alone, shared = {0: [2], 1: [2]}, {0: [1, 2]}
        await plane.controller.create_topics(
            [NewTopic("t", assignment=alone), NewTopic("u", assignment=shared)]
        )
        topics = (await ask(plane, version, named("t", "u"))).topics
        assert [topic.error_code for topic in topics] == [ErrorCode.NONE, ErrorCode.NONE]
        assert [
            (p.error_code, p.leader_id, p.offline_replicas, p.replica_nodes)
            for topic in topics
            for p in topic.partitions
        ] == [
            (ErrorCode.LEADER_NOT_AVAILABLE, -1, [2], [2]),
            (ErrorCode.NONE, 2, [], [2]),
            (ErrorCode.NONE, 1, [2], [1, 2]),
        ]


@pytest.mark.parametrize("version", [5, 13])
async def test_a_partition_whose_leader_is_gone_has_none(tmp_path: Path, version: int) -> None:
    other = BrokerInfo(2, "b2", 9092)
    async with metadata_plane(tmp_path, others=(other,)) as plane:
        await plane.controller.create_topics([NewTopic("t", assignment={0: [2], 1: [1]})])
    async with metadata_plane(tmp_path) as plane:
        (topic,) = (await ask(plane, version, named("t"))).topics
        assert [
            (p.error_code, p.leader_id, p.replica_nodes, p.isr_nodes, p.offline_replicas)
            for p in topic.partitions
        ] == [
            (ErrorCode.LEADER_NOT_AVAILABLE, -1, [2], [], [2]),
            (ErrorCode.NONE, 1, [1], [1], []),
        ]
        state = PartitionStateNode(-1, 9, (2,), 1).encode()
        results = await plane.store.transaction(
            [
                Set(PartitionStateNode.path("t", 1), state),
                announce(ChangeNode(topics=("t",)).encode()),
            ]
        )
        await plane.metadata.applied(sequence_of(str(results[-1])))
        (topic,) = (await ask(plane, version, named("t"))).topics
        assert topic.error_code == ErrorCode.NONE
        assert topic.partitions[1].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert topic.partitions[1].leader_id == -1


async def test_knows_the_names_of_internal_topics(plane: MetadataPlane) -> None:
    response = await ask(plane, 13, named("__consumer_offsets", "t"))
    assert [topic.is_internal for topic in response.topics] == [True, False]
