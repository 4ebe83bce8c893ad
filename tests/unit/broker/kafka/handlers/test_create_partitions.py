"""CreatePartitions: topics grow, each for itself, and every one is echoed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.controller import NewTopic
from qbus.errors import ErrorCode
from qbus.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from qbus.wire import API, ApiKey
from qbus.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

ALL_VERSIONS = range(4)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path) as plane:
        await plane.controller.create_topics([NewTopic("t", 2), NewTopic("u", 2)])
        yield plane


async def grow(
    plane: MetadataPlane,
    *topics: CreatePartitionsTopic,
    version: int = 3,
    validate_only: bool = False,
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)
    response = await plane.ask(ApiKey.CREATE_PARTITIONS, version, request)
    assert isinstance(response, CreatePartitionsResponse)
    return response.results


def topic(name: str, count: int, *assigned: list[int]) -> CreatePartitionsTopic:
    items = (
        [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assigned]
        if assigned
        else None
    )
    return CreatePartitionsTopic(name=name, count=count, assignments=items)


def test_serves_what_kafka_serves() -> None:
    api = API[ApiKey.CREATE_PARTITIONS]
    assert range(api.min_version, api.max_version + 1) == ALL_VERSIONS


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_grows_each_for_itself(plane: MetadataPlane, version: int) -> None:
    results = await grow(
        plane,
        topic("t", 4),
        topic("nothing", 4),
        topic("u", 3, [1]),
        version=version,
    )
    assert [(result.name, result.error_code) for result in results] == [
        ("t", ErrorCode.NONE),
        ("nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", ErrorCode.NONE),
    ]
    assert [result.error_message is None for result in results] == [True, False, True]
    assert [len(plane.metadata.topics[name].partitions) for name in ("t", "u")] == [4, 3]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (topic("t", 2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 3, [9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 4, [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            CreatePartitionsTopic(name="t", count=3, assignments=[]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
    ids=repr,
)
async def test_refuses_as_kafka_does(
    plane: MetadataPlane, wanted: CreatePartitionsTopic, expected: ErrorCode
) -> None:
    (result,) = await grow(plane, wanted)
    assert result.error_code == expected
    assert len(plane.metadata.topics["t"].partitions) == 2


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
async def test_topics_of_coordinators_do_not_grow(plane: MetadataPlane, name: str) -> None:
    """Groups and transactional ids would be looked for in other partitions than they are in."""
    await plane.controller.create_topics([NewTopic(name, 2)])
    (result,) = await grow(plane, topic(name, 3))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(plane.metadata.topics[name].partitions) == 2


async def test_a_topic_that_comes_twice_is_echoed_once_and_does_not_grow(
    plane: MetadataPlane,
) -> None:
    results = await grow(plane, topic("t", 3), topic("u", 3), topic("t", 4))
    assert [(result.name, result.error_code) for result in results] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
    ]
    assert len(plane.metadata.topics["t"].partitions) == 2


async def test_validating_grows_nothing(plane: MetadataPlane) -> None:
    good, bad = await grow(plane, topic("t", 3), topic("u", 1), validate_only=True)
    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)
    assert len(plane.metadata.topics["t"].partitions) == 2


async def test_who_made_topics_grow_is_logged_in_one_line(
    plane: MetadataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "qbus.broker.kafka"):
        await grow(plane, topic("t", 3), topic("u", 4), topic("nothing", 2))
        await grow(plane, topic("t", 5))
        await grow(plane, topic("t", 6), validate_only=True)
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("2 topics have more partitions now, by client ")
    assert first.endswith(": t (3), u (4)")
    assert second.startswith("topic t has 5 partitions now, by client ")
