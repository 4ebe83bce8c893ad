"""DescribeConfigs: every key, its value, who set it, what else was said of it, what it means."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.controller import NewTopic
from qbus.config import (
    BROKER_CONFIG,
    SHARE_GROUP_CONFIG,
    TOPIC_CONFIG,
    ConfigSource,
    ConfigType,
)
from qbus.errors import ErrorCode
from qbus.metadata import Create
from qbus.metadata.feed import announce, sequence_of
from qbus.metadata.znodes import ALL_BROKERS, ChangeNode, ConfigNode
from qbus.wire import API, ApiKey
from qbus.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

ALL_VERSIONS = range(1, 5)
TOPIC, BROKER, GROUP = 2, 4, 32


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path, {"log.retention.hours": "1"}) as plane:
        await plane.controller.create_topics([NewTopic("t", config={"retention.ms": "5"})])
        results = await plane.store.transaction(
            [
                Create(ConfigNode.broker_path("1"), ConfigNode({"log.roll.ms": "9"}).encode()),
                Create(
                    ConfigNode.broker_path(ALL_BROKERS),
                    ConfigNode({"log.roll.ms": "8", "num.partitions": "2"}).encode(),
                ),
                announce(ChangeNode(brokers=("1", ALL_BROKERS)).encode()),
            ]
        )
        await plane.metadata.applied(sequence_of(str(results[-1])))
        yield plane


async def describe(
    plane: MetadataPlane,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    response = await plane.ask(ApiKey.DESCRIBE_CONFIGS, version, request)
    assert isinstance(response, DescribeConfigsResponse)
    (result,) = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def by_name(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    return {config.name: config for config in result.configs}


def test_serves_what_kafka_serves() -> None:
    api = API[ApiKey.DESCRIBE_CONFIGS]
    assert range(api.min_version, api.max_version + 1) == ALL_VERSIONS


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_tells_every_key_of_a_topic(plane: MetadataPlane, version: int) -> None:
    configs = by_name(await describe(plane, TOPIC, "t", version=version))
    assert configs.keys() == TOPIC_CONFIG.keys()
    assert not any(config.read_only or config.is_sensitive for config in configs.values())
    told = {
        name: (configs[name].value, ConfigSource(configs[name].config_source))
        for name in ("retention.ms", "segment.ms", "max.message.bytes")
    }
    assert told == {
        "retention.ms": ("5", ConfigSource.TOPIC),
        "segment.ms": ("9", ConfigSource.BROKER),
        "max.message.bytes": ("1048588", ConfigSource.DEFAULT),
    }
    assert all(config.synonyms == [] for config in configs.values())
    retention = configs["retention.ms"]
    assert retention.config_type == (ConfigType.LONG if version >= 3 else 0)
    assert not retention.documentation


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_tells_every_key_of_this_broker(plane: MetadataPlane, version: int) -> None:
    configs = by_name(await describe(plane, BROKER, "1", version=version))
    assert configs.keys() == BROKER_CONFIG.keys()
    told = {
        name: (configs[name].value, ConfigSource(configs[name].config_source))
        for name in ("log.roll.ms", "num.partitions", "log.retention.hours", "node.id")
    }
    assert told == {
        "log.roll.ms": ("9", ConfigSource.BROKER),
        "num.partitions": ("2", ConfigSource.DEFAULT_BROKER),
        "log.retention.hours": ("1", ConfigSource.STATIC_BROKER),
        "node.id": ("1", ConfigSource.DEFAULT),
    }
    assert configs["node.id"].read_only
    assert not configs["log.roll.ms"].read_only
    assert configs["broker.rack"].value is None


async def test_tells_what_is_set_for_all_brokers(plane: MetadataPlane) -> None:
    configs = by_name(await describe(plane, BROKER, "", synonyms=True))
    assert {name: config.value for name, config in configs.items()} == {
        "log.roll.ms": "8",
        "num.partitions": "2",
    }
    assert {config.config_source for config in configs.values()} == {ConfigSource.DEFAULT_BROKER}


async def test_tells_on_request_what_else_was_said(plane: MetadataPlane) -> None:
    configs = by_name(await describe(plane, TOPIC, "t", ["retention.ms"], synonyms=True))
    assert [(s.name, s.value, s.source) for s in configs["retention.ms"].synonyms] == [
        ("retention.ms", "5", ConfigSource.TOPIC),
        ("log.retention.hours", "1", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    configs = by_name(await describe(plane, BROKER, "1", ["log.roll.ms"], synonyms=True))
    assert [(s.name, s.value, s.source) for s in configs["log.roll.ms"].synonyms] == [
        ("log.roll.ms", "9", ConfigSource.BROKER),
        ("log.roll.ms", "8", ConfigSource.DEFAULT_BROKER),
        ("log.roll.hours", "168", ConfigSource.DEFAULT),
    ]


@pytest.mark.parametrize("version", [3, 4])
async def test_tells_on_request_what_keys_mean(plane: MetadataPlane, version: int) -> None:
    for kind, name in ((TOPIC, "t"), (BROKER, "1")):
        result = await describe(plane, kind, name, version=version, documentation=True)
        assert all(config.documentation for config in by_name(result).values())
    configs = by_name(await describe(plane, TOPIC, "t", ["retention.ms"], documentation=True))
    assert "at least -1" in (configs["retention.ms"].documentation or "")


async def test_tells_only_the_keys_that_are_asked_for(plane: MetadataPlane) -> None:
    wanted = ["flush.ms", "no.such.key", "retention.ms"]
    assert by_name(await describe(plane, TOPIC, "t", wanted)).keys() == {
        "flush.ms",
        "retention.ms",
    }
    assert by_name(await describe(plane, TOPIC, "t", [])).keys() == TOPIC_CONFIG.keys()
    assert by_name(await describe(plane, BROKER, "", ["log.roll.ms"])).keys() == {"log.roll.ms"}


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (TOPIC, "nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
        (0, "t", ErrorCode.INVALID_REQUEST),
        (99, "t", ErrorCode.INVALID_REQUEST),
        (-1, "t", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_refuses_what_has_no_configuration_here(
    plane: MetadataPlane, kind: int, name: str, expected: ErrorCode
) -> None:
    result = await describe(plane, kind, name)
    assert result.error_code == expected
    assert result.error_message
    assert result.configs == []


async def test_each_resource_stands_for_itself(plane: MetadataPlane) -> None:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name="t", configuration_keys=None)
        for kind in (8, TOPIC)
    ]
    request = DescribeConfigsRequest(resources=resources)
    response = await plane.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)
    assert [result.error_code for result in response.results] == [ErrorCode.INVALID_REQUEST, 0]


async def test_a_share_group_says_what_it_sets_and_what_brokers_do(plane: MetadataPlane) -> None:
    path = ConfigNode.group_path("g")
    results = await plane.store.transaction(
        [
            Create(path, ConfigNode({"share.record.lock.duration.ms": "20000"}).encode()),
            announce(ChangeNode(groups=("g",)).encode()),
        ]
    )
    await plane.metadata.applied(sequence_of(str(results[-1])))
    configs = {c.name: c for c in (await describe(plane, GROUP, "g", synonyms=True)).configs}
    assert configs.keys() == SHARE_GROUP_CONFIG.keys()
    lock = configs["share.record.lock.duration.ms"]
    assert (lock.value, lock.config_source) == ("20000", ConfigSource.GROUP)
    assert [(one.name, one.value) for one in lock.synonyms] == [
        ("share.record.lock.duration.ms", "20000"),
        ("group.share.record.lock.duration.ms", "30000"),
    ]
    limit = configs["share.delivery.count.limit"]
    assert (limit.value, limit.config_source) == ("5", ConfigSource.DEFAULT)


async def test_jobs_begin_at_the_earliest_record(plane: MetadataPlane) -> None:
    result = await describe(plane, GROUP, "disque", ["share.auto.offset.reset"])
    assert [one.value for one in result.configs] == ["earliest"]
