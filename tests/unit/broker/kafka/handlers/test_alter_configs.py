"""AlterConfigs: what is named replaces everything that was set."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.controller import NewTopic
from qbus.errors import ErrorCode
from qbus.wire import API, ApiKey
from qbus.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

ALL_VERSIONS = range(3)
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path) as plane:
        await plane.controller.create_topics([NewTopic("t", config={"retention.ms": "5"})])
        yield plane


async def alter(
    plane: MetadataPlane,
    *resources: AlterConfigsResource,
    version: int = 2,
    validate_only: bool = False,
) -> list[AlterConfigsResourceResponse]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response = await plane.ask(ApiKey.ALTER_CONFIGS, version, request)
    assert isinstance(response, AlterConfigsResponse)
    answered = [(answer.resource_type, answer.resource_name) for answer in response.responses]
    assert answered == [(resource.resource_type, resource.resource_name) for resource in resources]
    return response.responses


def resource(kind: int, name: str, **config: str | None) -> AlterConfigsResource:
    configs = [
        AlterableConfig(name=key.replace("_", "."), value=value) for key, value in config.items()
    ]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def test_serves_what_kafka_serves() -> None:
    api = API[ApiKey.ALTER_CONFIGS]
    assert range(api.min_version, api.max_version + 1) == ALL_VERSIONS


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_replaces_a_topics_configuration(plane: MetadataPlane, version: int) -> None:
    (answer,) = await alter(plane, resource(TOPIC, "t", flush_ms="7"), version=version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert plane.metadata.topics["t"].config == {"flush.ms": "7"}
    await alter(plane, resource(TOPIC, "t"), version=version)
    assert plane.metadata.topics["t"].config == {}


async def test_a_mirror_stays_one_unless_the_request_says_otherwise(plane: MetadataPlane) -> None:
    mirror = {"qbus.mirror.source": "a", "qbus.mirror.topic.id": "x", "qbus.mirror.path": "a"}
    await plane.controller.create_topics([NewTopic("a.t", config=mirror | {"flush.ms": "7"})])
    await alter(plane, resource(TOPIC, "a.t"))
    assert plane.metadata.topics["a.t"].config == mirror
    await alter(plane, resource(TOPIC, "a.t", qbus_mirror_source=""))
    ended = plane.metadata.topics["a.t"].config
    assert ended["qbus.mirror.former.source"] == "a"
    assert "qbus.mirror.source" not in ended
    await alter(plane, resource(TOPIC, "a.t"))
    assert plane.metadata.topics["a.t"].config == ended


@pytest.mark.parametrize("name", ["1", ""])
async def test_replaces_a_brokers_configuration(plane: MetadataPlane, name: str) -> None:
    await alter(plane, resource(BROKER, name, num_partitions="3"))
    assert plane.config.num_partitions == 3
    await alter(plane, resource(BROKER, name, message_max_bytes="4"))
    assert (plane.config.num_partitions, plane.config.message_max_bytes) == (1, 4)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (resource(TOPIC, "nothing", flush_ms="1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resource(TOPIC, "t", flush_ms="x"), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "t", no_such_key="1"), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "t", cleanup_policy="shred"), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "t", qbus_mirror_source="a"), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "t", flush_ms=None), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "1", node_id="2"), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "1", num_partitions="0"), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "2", num_partitions="2"), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "one"), ErrorCode.INVALID_REQUEST),
        (resource(BROKER_LOGGER, "1", root="DEBUG"), ErrorCode.INVALID_REQUEST),
        (resource(77, "x"), ErrorCode.INVALID_REQUEST),
    ],
    ids=repr,
)
async def test_refuses_as_kafka_does(
    plane: MetadataPlane, wanted: AlterConfigsResource, expected: ErrorCode
) -> None:
    (answer,) = await alter(plane, wanted)
    assert answer.error_code == expected
    assert answer.error_message
    assert plane.metadata.topics["t"].config == {"retention.ms": "5"}


async def test_each_resource_stands_for_itself(plane: MetadataPlane) -> None:
    answers = await alter(
        plane,
        resource(TOPIC, "nothing"),
        resource(BROKER, "1", num_partitions="2"),
        resource(TOPIC, "t", flush_ms="1"),
        resource(BROKER_LOGGER, "1"),
    )
    assert [answer.error_code for answer in answers] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert plane.config.num_partitions == 2
    assert plane.metadata.topics["t"].config == {"flush.ms": "1"}


async def test_a_resource_that_comes_twice_is_not_altered(plane: MetadataPlane) -> None:
    answers = await alter(plane, resource(TOPIC, "t", flush_ms="1"), resource(TOPIC, "t"))
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST] * 2
    assert plane.metadata.topics["t"].config == {"retention.ms": "5"}


async def test_validating_alters_nothing(plane: MetadataPlane) -> None:
    good, bad = await alter(
        plane,
        resource(TOPIC, "t", flush_ms="1"),
        resource(BROKER, "", num_partitions="x"),
        validate_only=True,
    )
    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
    assert plane.metadata.topics["t"].config == {"retention.ms": "5"}
