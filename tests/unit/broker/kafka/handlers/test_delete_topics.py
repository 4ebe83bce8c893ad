"""DeleteTopics: by name, by id, each for itself."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.controller import NewTopic
from qbus.errors import ErrorCode
from qbus.wire import API, ZERO_UUID, ApiKey
from qbus.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

ALL_VERSIONS = range(1, 7)
UNKNOWN = b"?" * 16


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path) as plane:
        await plane.controller.create_topics([NewTopic("t"), NewTopic("u"), NewTopic("v")])
        yield plane


async def delete(
    plane: MetadataPlane, version: int, *wanted: str | bytes | DeleteTopicState
) -> list[DeletableTopicResult]:
    if version < 6:
        request = DeleteTopicsRequest(topic_names=[str(name) for name in wanted])
    else:
        request = DeleteTopicsRequest(topics=[_state(topic) for topic in wanted])
    response = await plane.ask(ApiKey.DELETE_TOPICS, version, request)
    assert isinstance(response, DeleteTopicsResponse)
    return response.responses


def _state(wanted: str | bytes | DeleteTopicState) -> DeleteTopicState:
    if isinstance(wanted, str):
        return DeleteTopicState(name=wanted)
    return DeleteTopicState(topic_id=wanted) if isinstance(wanted, bytes) else wanted


def codes(results: list[DeletableTopicResult]) -> list[ErrorCode]:
    return [ErrorCode(result.error_code) for result in results]


def test_serves_what_kafka_serves() -> None:
    api = API[ApiKey.DELETE_TOPICS]
    assert range(api.min_version, api.max_version + 1) == ALL_VERSIONS


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_deletes_by_name_each_for_itself(plane: MetadataPlane, version: int) -> None:
    topic_id = plane.metadata.topics["t"].id
    results = await delete(plane, version, "t", "nothing", "u")
    assert [result.name for result in results] == ["t", "nothing", "u"]
    assert codes(results) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert results[0].topic_id == (topic_id if version >= 6 else ZERO_UUID)
    assert (results[1].error_message is not None) == (version >= 5)
    assert plane.metadata.topics.keys() == {"v"}


async def test_deletes_by_id_and_tells_the_name(plane: MetadataPlane) -> None:
    topic_id = plane.metadata.topics["t"].id
    known, unknown = await delete(plane, 6, topic_id, UNKNOWN)
    assert (known.name, known.topic_id, known.error_code) == ("t", topic_id, ErrorCode.NONE)
    assert (unknown.name, unknown.topic_id) == (None, UNKNOWN)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert plane.metadata.topics.keys() == {"u", "v"}


async def test_a_topic_is_named_one_way(plane: MetadataPlane) -> None:
    topic_id = plane.metadata.topics["t"].id
    both = DeleteTopicState(name="t", topic_id=topic_id)
    results = await delete(plane, 6, both, DeleteTopicState())
    assert codes(results) == [ErrorCode.INVALID_REQUEST] * 2
    assert "t" in plane.metadata.topics


async def test_a_topic_that_comes_twice_is_not_deleted(plane: MetadataPlane) -> None:
    results = await delete(plane, 5, "t", "t", "u")
    assert codes(results) == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    results = await delete(plane, 6, "t", plane.metadata.topics["t"].id)
    assert codes(results) == [ErrorCode.INVALID_REQUEST] * 2
    results = await delete(plane, 6, UNKNOWN, b"!" * 16)
    assert codes(results) == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
    assert plane.metadata.topics.keys() == {"t", "v"}


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_deletion_can_be_switched_off(tmp_path: Path, version: int) -> None:
    async with metadata_plane(tmp_path, {"delete.topic.enable": "false"}) as plane:
        await plane.controller.create_topics([NewTopic("t")])
        (result,) = await delete(plane, version, "t")
        expected = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        assert result.error_code == expected
        assert "t" in plane.metadata.topics


async def test_who_deleted_what_is_logged_in_one_line(
    plane: MetadataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "qbus.broker.kafka"):
        await delete(plane, 6, "t", "nothing", "u")
        await delete(plane, 6, "v")
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("2 topics are deleted by client ")
    assert first.endswith(": t, u")
    assert second.startswith("topic v is deleted by client ")
