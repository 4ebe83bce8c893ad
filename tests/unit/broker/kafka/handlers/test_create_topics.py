"""CreateTopics: each topic for itself, told in full, in every version."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.controller import NewTopic
from qbus.config import TOPIC_CONFIG, ConfigSource
from qbus.errors import ErrorCode
from qbus.wire import API, ZERO_UUID, ApiKey
from qbus.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

ALL_VERSIONS = range(2, 8)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path) as plane:
        yield plane


async def create(
    plane: MetadataPlane, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    response = await plane.ask(ApiKey.CREATE_TOPICS, version, request)
    assert isinstance(response, CreateTopicsResponse)
    assert response.throttle_time_ms == 0
    return response.topics


def topic(name: str, partitions: int = 1, factor: int = 1, **config: str | None) -> CreatableTopic:
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=text) for key, text in config.items()
    ]
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=factor, configs=configs
    )


def assigned(name: str, *assignment: tuple[int, list[int]], partitions: int = -1) -> CreatableTopic:
    items = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in assignment
    ]
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=-1, assignments=items
    )


def test_serves_what_kafka_serves() -> None:
    api = API[ApiKey.CREATE_TOPICS]
    assert range(api.min_version, api.max_version + 1) == ALL_VERSIONS


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_creates_and_tells_what_was_made(plane: MetadataPlane, version: int) -> None:
    (result,) = await create(plane, topic("t", 3, 1, retention_ms="5"), version=version)
    made = plane.metadata.topics["t"]
    assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
    assert len(made.partitions) == 3
    assert made.config == {"retention.ms": "5"}
    assert result.topic_id == (made.id if version >= 7 else ZERO_UUID)
    if version < 5:
        assert result.num_partitions == result.replication_factor == -1
        return
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert result.topic_config_error_code == ErrorCode.NONE
    assert result.configs is not None
    configs = {config.name: config for config in result.configs}
    assert configs.keys() == TOPIC_CONFIG.keys()
    assert configs["retention.ms"].value == "5"
    assert configs["retention.ms"].config_source == ConfigSource.TOPIC
    assert configs["segment.bytes"].value == "1073741824"
    assert configs["segment.bytes"].config_source == ConfigSource.DEFAULT
    assert not any(config.read_only or config.is_sensitive for config in result.configs)


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_minus_one_is_the_brokers_default(plane: MetadataPlane, version: int) -> None:
    plane.config.set_dynamic({"num.partitions": "4"}, {})
    (result,) = await create(plane, topic("t", -1, -1), version=version)
    assert result.error_code == ErrorCode.NONE
    assert len(plane.metadata.topics["t"].partitions) == 4


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_validating_tells_and_creates_nothing(plane: MetadataPlane, version: int) -> None:
    good, bad = await create(
        plane, topic("t", 3), topic("u", 0), version=version, validate_only=True
    )
    assert good.error_code == ErrorCode.NONE
    assert good.topic_id == ZERO_UUID
    assert good.num_partitions == (3 if version >= 5 else -1)
    assert bad.error_code == ErrorCode.INVALID_PARTITIONS
    assert plane.metadata.topics == {}


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_refuses_each_for_itself_as_kafka_does(plane: MetadataPlane, version: int) -> None:
    await plane.controller.create_topics([NewTopic("exists"), NewTopic("with.dots")])
    expected = [
        (topic("exists"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("with_dots"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("p0", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("r0", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("r3", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("c1", no_such_key="1"), ErrorCode.INVALID_CONFIG),
        (topic("c2", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("c3", cleanup_policy="shred"), ErrorCode.INVALID_CONFIG),
        (topic("c4", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (assigned("a1", (0, [9])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a2", (1, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a3", (0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a4", (0, [1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a5", (0, [1]), (0, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a6", (0, [1]), partitions=1), ErrorCode.INVALID_REQUEST),
        (assigned("fine", (1, [1]), (0, [1])), ErrorCode.NONE),
    ]
    results = await create(plane, *(wanted for wanted, _ in expected), version=version)
    assert [(result.name, ErrorCode(result.error_code)) for result in results] == [
        (wanted.name, code) for wanted, code in expected
    ]
    for result in results:
        assert (result.error_message is None) == (result.error_code == 0)
    assert plane.metadata.topics.keys() == {"exists", "with.dots", "fine"}


async def test_a_name_that_comes_twice_is_answered_once_and_not_created(
    plane: MetadataPlane,
) -> None:
    results = await create(plane, topic("t"), topic("u"), topic("t", 5))
    assert [(result.name, result.error_code) for result in results] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
    ]
    assert plane.metadata.topics.keys() == {"u"}


async def test_a_configuration_that_comes_twice_is_refused(plane: MetadataPlane) -> None:
    wanted = topic("t", flush_ms="1")
    wanted.configs *= 2
    (result,) = await create(plane, wanted)
    assert result.error_code == ErrorCode.INVALID_CONFIG


async def test_creating_nothing_is_fine(plane: MetadataPlane) -> None:
    assert await create(plane) == []


async def test_who_created_what_is_logged_in_one_line(
    plane: MetadataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "qbus.broker.kafka"):
        await create(plane, topic("log-1", 3), topic("log-2"))
        await create(plane, topic("log-3", 2))
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("2 topics are created by client ")
    assert first.endswith(
        ": log-1 (partitions: 3, replicas of each: 1), log-2 (partitions: 1, replicas of each: 1)"
    )
    assert second.startswith(
        "topic log-3 is created, partitions: 2, replicas of each: 1, by client "
    )
