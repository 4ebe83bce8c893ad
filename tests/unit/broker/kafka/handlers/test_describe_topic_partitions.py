"""DescribeTopicPartitions: partitions a page at a time."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.controller import NewTopic
from qbus.errors import ApiError, ErrorCode
from qbus.wire import API, ApiKey
from qbus.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

Page = list[tuple[str | None, list[int]]]


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path) as plane:
        await plane.controller.create_topics([NewTopic("b", 3), NewTopic("a", 2), NewTopic("c")])
        yield plane


async def ask(
    plane: MetadataPlane, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    response = await plane.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
    assert isinstance(response, DescribeTopicPartitionsResponse)
    return response


def shown(response: DescribeTopicPartitionsResponse) -> Page:
    return [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]


def test_serves_what_kafka_serves() -> None:
    api = API[ApiKey.DESCRIBE_TOPIC_PARTITIONS]
    assert (api.min_version, api.max_version) == (0, 0)


async def test_tells_a_topic_whole(plane: MetadataPlane) -> None:
    (topic,) = (await ask(plane, "c")).topics
    assert (topic.error_code, topic.name, topic.is_internal) == (ErrorCode.NONE, "c", False)
    assert topic.topic_id == plane.metadata.topics["c"].id
    assert topic.topic_authorized_operations == 3576
    assert topic.partitions == [
        DescribeTopicPartitionsResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=1,
            leader_epoch=0,
            replica_nodes=[1],
            isr_nodes=[1],
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=[],
        )
    ]


async def test_topics_come_in_the_order_of_their_names(plane: MetadataPlane) -> None:
    everything: Page = [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
    response = await ask(plane)
    assert shown(response) == everything
    assert response.next_cursor is None
    assert shown(await ask(plane, "c", "a", "b", "a")) == everything


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7])
async def test_pages_hold_everything_once(plane: MetadataPlane, limit: int) -> None:
    cursor, seen = None, []
    for _ in range(10):
        response = await ask(plane, limit=limit, cursor=cursor)
        page = [(name, index) for name, indexes in shown(response) for index in indexes]
        assert 0 < len(page) <= limit
        seen += page
        cursor = response.next_cursor
        if cursor is None:
            break
    expected = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
    assert seen == expected


async def test_goes_on_from_the_cursor(plane: MetadataPlane) -> None:
    response = await ask(plane, limit=2, cursor=Cursor(topic_name="b", partition_index=1))
    assert shown(response) == [("b", [1, 2])]
    assert response.next_cursor == Cursor(topic_name="c", partition_index=0)


async def test_goes_on_after_a_topic_that_was_deleted_meanwhile(plane: MetadataPlane) -> None:
    cursor = Cursor(topic_name="b", partition_index=2)
    await plane.controller.delete_topics(["b"])
    assert shown(await ask(plane, cursor=cursor)) == [("c", [0])]


@pytest.mark.parametrize("limit", [0, -5])
async def test_a_page_holds_at_least_one(plane: MetadataPlane, limit: int) -> None:
    assert shown(await ask(plane, limit=limit)) == [("a", [0])]


async def test_a_page_is_bounded_whatever_is_asked_for(plane: MetadataPlane) -> None:
    await plane.controller.create_topics([NewTopic("large", 2_500)])
    response = await ask(plane, "large", limit=2**31 - 1)
    assert len(response.topics[0].partitions) == 2_000
    assert response.next_cursor == Cursor(topic_name="large", partition_index=2_000)


async def test_what_does_not_exist_is_said_and_not_created(plane: MetadataPlane) -> None:
    response = await ask(plane, "nothing", "a", "a/b", limit=2)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", ErrorCode.NONE),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert "nothing" not in plane.metadata.topics


async def test_a_cursor_that_points_nowhere_is_refused(plane: MetadataPlane) -> None:
    with pytest.raises(ApiError) as refused:
        await ask(plane, cursor=Cursor(topic_name="a", partition_index=-1))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
