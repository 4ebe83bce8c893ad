"""IncrementalAlterConfigs: what is named changes, the rest stays."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from qbus.broker.controller import NewTopic
from qbus.errors import ErrorCode
from qbus.wire import API, ApiKey
from qbus.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

ALL_VERSIONS = range(2)
TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
BEFORE = {"retention.ms": "5", "flush.ms": "6"}


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path) as plane:
        await plane.controller.create_topics([NewTopic("t", config=BEFORE)])
        yield plane


async def alter(
    plane: MetadataPlane,
    *resources: AlterConfigsResource,
    version: int = 1,
    validate_only: bool = False,
) -> list[AlterConfigsResourceResponse]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response = await plane.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request)
    assert isinstance(response, IncrementalAlterConfigsResponse)
    answered = [(answer.resource_type, answer.resource_name) for answer in response.responses]
    assert answered == [(resource.resource_type, resource.resource_name) for resource in resources]
    return response.responses


def resource(kind: int, name: str, *edits: tuple[str, int, str | None]) -> AlterConfigsResource:
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in edits
    ]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


topic = partial(resource, TOPIC, "t")
broker = partial(resource, BROKER)


def test_serves_what_kafka_serves() -> None:
    api = API[ApiKey.INCREMENTAL_ALTER_CONFIGS]
    assert range(api.min_version, api.max_version + 1) == ALL_VERSIONS


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_sets_and_sets_back_and_leaves_the_rest(plane: MetadataPlane, version: int) -> None:
    edits = topic(("segment.ms", SET, "7"), ("retention.ms", DELETE, None))
    (answer,) = await alter(plane, edits, version=version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert plane.metadata.topics["t"].config == {"flush.ms": "6", "segment.ms": "7"}
    config = plane.metadata.topic_config(plane.metadata.topics["t"])
    assert (config.segment_ms, config.retention_ms) == (7, 604_800_000)


async def test_lists_are_extended_within_what_is_allowed(plane: MetadataPlane) -> None:
    for kind, value, policy in (
        (APPEND, "delete", "delete"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
    ):
        (answer,) = await alter(plane, topic(("cleanup.policy", kind, value)))
        assert answer.error_code == ErrorCode.NONE
        assert plane.metadata.topics["t"].config["cleanup.policy"] == policy
    for kind, value in ((APPEND, "shred"), (SUBTRACT, "compact")):
        (answer,) = await alter(plane, topic(("cleanup.policy", kind, value)))
        assert answer.error_code == ErrorCode.INVALID_CONFIG


async def test_a_topic_remembers_that_it_was_compacted(plane: MetadataPlane) -> None:
    await alter(plane, topic(("cleanup.policy", SET, "compact")))
    assert "qbus.compacted" not in plane.metadata.topics["t"].config
    await alter(plane, topic(("cleanup.policy", DELETE, None)))
    assert plane.metadata.topics["t"].config["qbus.compacted"] == "true"
    (answer,) = await alter(plane, topic(("qbus.compacted", SET, "false")))
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    await alter(plane, topic(("qbus.compacted", DELETE, None)))
    assert plane.metadata.topics["t"].config["qbus.compacted"] == "true"


async def test_a_broker_goes_by_its_own_settings_before_those_for_all(
    plane: MetadataPlane,
) -> None:
    await alter(
        plane,
        broker("", ("num.partitions", SET, "2"), ("message.max.bytes", SET, "20")),
        broker("1", ("num.partitions", SET, "3")),
    )
    assert (plane.config.num_partitions, plane.config.message_max_bytes) == (3, 20)
    await alter(plane, broker("1", ("num.partitions", DELETE, None)))
    assert plane.config.num_partitions == 2
    await alter(plane, broker("", ("num.partitions", DELETE, None)))
    assert (plane.config.num_partitions, plane.config.message_max_bytes) == (1, 20)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (topic(("flush.ms", SET, "x")), ErrorCode.INVALID_CONFIG),
        (topic(("no.such.key", SET, "1")), ErrorCode.INVALID_CONFIG),
        (topic(("segment.ms", SET, "1"), ("flush.ms", SET, "-1")), ErrorCode.INVALID_CONFIG),
        (topic(("flush.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (topic(("flush.ms", SET, None)), ErrorCode.INVALID_REQUEST),
        (topic(("flush.ms", SET, "1"), ("flush.ms", SET, "2")), ErrorCode.INVALID_REQUEST),
        (topic(("flush.ms", 9, "1")), ErrorCode.INVALID_REQUEST),
        (
            resource(TOPIC, "nothing", ("flush.ms", SET, "1")),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (broker("1", ("node.id", SET, "1")), ErrorCode.INVALID_REQUEST),
        (broker("", ("listeners", SET, "a:1")), ErrorCode.INVALID_REQUEST),
        (broker("1", ("durability", SET, "x")), ErrorCode.INVALID_REQUEST),
        (broker("7", ("num.partitions", SET, "1")), ErrorCode.INVALID_REQUEST),
        (resource(BROKER_LOGGER, "1"), ErrorCode.INVALID_REQUEST),
    ],
    ids=repr,
)
async def test_refuses_as_kafka_does_and_changes_nothing(
    plane: MetadataPlane, wanted: AlterConfigsResource, expected: ErrorCode
) -> None:
    before = await plane.store.tree("/config")
    for validate_only in (True, False):
        (answer,) = await alter(plane, wanted, validate_only=validate_only)
        assert answer.error_code == expected
        assert answer.error_message
    assert await plane.store.tree("/config") == before


async def test_a_resource_that_comes_twice_is_not_altered(plane: MetadataPlane) -> None:
    edit = topic(("flush.ms", SET, "1"))
    answers = await alter(plane, edit, broker("1", ("num.partitions", SET, "2")), edit)
    assert [answer.error_code for answer in answers] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert plane.metadata.topics["t"].config == BEFORE


async def test_validating_alters_nothing(plane: MetadataPlane) -> None:
    (answer,) = await alter(plane, topic(("flush.ms", SET, "1")), validate_only=True)
    assert answer.error_code == ErrorCode.NONE
    assert plane.metadata.topics["t"].config == BEFORE


async def test_a_mirror_ends_for_good(plane: MetadataPlane) -> None:
    await plane.controller.create_topics([NewTopic("a.t", config={"qbus.mirror.source": "a"})])
    (ended,) = await alter(plane, resource(TOPIC, "a.t", ("qbus.mirror.source", DELETE, None)))
    assert ended.error_code == ErrorCode.NONE
    assert plane.metadata.topics["a.t"].config == {"qbus.mirror.former.source": "a"}
    for again in ("qbus.mirror.source", SET, "a"), ("qbus.mirror.former.source", DELETE, None):
        (refused,) = await alter(plane, resource(TOPIC, "a.t", again))
        assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert plane.metadata.topics["a.t"].config == {"qbus.mirror.former.source": "a"}


# Share groups


group = partial(resource, GROUP, "g")


async def test_a_share_group_is_configured_before_it_exists(plane: MetadataPlane) -> None:
    (answer,) = await alter(plane, group(("share.record.lock.duration.ms", SET, "20000")))
    assert answer.error_code == 0
    assert plane.metadata.group_config("g").share_record_lock_duration_ms == 20_000
    await alter(plane, group(("share.auto.offset.reset", SET, "by_duration:PT1H30M")))
    config = plane.metadata.group_config("g")
    assert config.share_auto_offset_reset == "by_duration:PT1H30M"
    assert config.share_record_lock_duration_ms == 20_000
    await alter(plane, group(("share.record.lock.duration.ms", DELETE, None)))
    assert plane.metadata.group_config("g").share_record_lock_duration_ms == 30_000
    assert plane.metadata.group_config("other").share_auto_offset_reset == "latest"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.record.lock.duration.ms", "14999"),
        ("share.record.lock.duration.ms", "60001"),
        ("share.heartbeat.interval.ms", "1000"),
        ("share.session.timeout.ms", "44999"),
        ("share.delivery.count.limit", "1001"),
        ("share.partition.max.record.locks", "99"),
        ("share.auto.offset.reset", "none"),
        ("share.auto.offset.reset", "by_duration:"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.isolation.level", "serializable"),
        ("errors.deadletterqueue.topic.name", "no topic"),
        ("qbus.filter", "red"),
        ("qbus.filter", "any:"),
        ("qbus.retry.backoff.ms", "-1"),
        ("consumer.session.timeout.ms", "44999"),
        ("consumer.heartbeat.interval.ms", "15001"),
    ],
)
async def test_what_no_group_is_configured_with(
    plane: MetadataPlane, name: str, value: str
) -> None:
    (answer,) = await alter(plane, group((name, SET, value)))
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert name in (answer.error_message or "")


async def test_the_brokers_say_how_long_locks_may_be(plane: MetadataPlane) -> None:
    limit = ("group.share.max.record.lock.duration.ms", SET, "3600000")
    await alter(plane, broker("", limit))
    (answer,) = await alter(plane, group(("share.record.lock.duration.ms", SET, "3600000")))
    assert answer.error_code == 0


async def test_a_share_group_has_a_name(plane: MetadataPlane) -> None:
    (answer,) = await alter(plane, resource(GROUP, "", ("qbus.filter", SET, "any:a")))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_a_setting_without_effect_is_accepted_with_one_warning(
    plane: MetadataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    edits = broker("", ("sasl.kerberos.service.name", SET, "kafka"), ("num.partitions", SET, "4"))
    (answer,) = await alter(plane, edits, validate_only=True)
    assert answer.error_code == ErrorCode.NONE
    assert "no effect" not in caplog.text
    (answer,) = await alter(plane, edits)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    warnings = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "sasl.kerberos.service.name has no effect: Kerberos" in warnings[0]
    (answer,) = await alter(plane, broker("", ("sasl.kerbero.service.name", SET, "kafka")))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
