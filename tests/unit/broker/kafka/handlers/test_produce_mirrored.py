"""Produce from a mirror: what it may write, where, and what everyone else is told."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from qbus.broker.partition.partition import Partition
from qbus.errors import ApiError, ErrorCode
from qbus.records import iter_batches, set_base_offset
from qbus.wire import ApiKey
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from qbus.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.support.data_plane import DataPlane, values
from tests.support.following import OTHER, THIRD, Follower, at, put, state
from tests.support.logs import batch

TOPIC = "a.orders"
LATEST = 13
START, END = -2, -1


def placed(*offsets: int) -> bytes:
    """Batches of one record each, as they are at the source."""
    made = b""
    for offset in offsets:
        one = batch(b"%d" % offset)
        set_base_offset(one, offset, 99)
        made += one
    return made


def request(
    plane: DataPlane,
    records: bytes,
    *,
    follows: int = -1,
    source: str = "a",
    acks: int = -1,
    version: int = LATEST,
    **fields: Any,
) -> ProduceRequest:
    naming: dict[str, Any] = {"name": TOPIC}
    if version >= 13:
        naming = {"topic_id": plane.metadata.topics[TOPIC].id}
    data = PartitionProduceData(records=records, mirror_follows=follows, **fields)
    topic = TopicProduceData(partition_data=[data], mirror_source=source, **naming)
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])


async def mirror(
    plane: DataPlane, *offsets: int, version: int = LATEST, **options: Any
) -> PartitionProduceResponse:
    """Produce batches with these offsets; the answer."""
    asked = request(plane, placed(*offsets), version=version, **options)
    response = await plane.call(ApiKey.PRODUCE, version, asked)
    answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return answer


async def listed(plane: DataPlane, timestamp: int) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[asked])
    request = ListOffsetsRequest(replica_id=-1, topics=[topic])
    response = await plane.call(ApiKey.LIST_OFFSETS, 7, request)
    offset: int = response.topics[0].partitions[0].offset
    return offset


@pytest.fixture
async def partition(plane: DataPlane) -> Partition:
    """A mirror of IDC a."""
    return await plane.create(TOPIC, qbus_mirror_source="a")


@pytest.mark.parametrize("version", [9, 10, 12, 13])
async def test_offsets_stay_as_they_are(
    plane: DataPlane, partition: Partition, version: int
) -> None:
    answer = await mirror(plane, 0, 1, 7, follows=0, version=version)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert (answer.log_append_time_ms, answer.log_start_offset) == (-1, 0)
    assert (partition.high_watermark, partition.log.log_end_offset) == (8, 8)
    again = await mirror(plane, 7, follows=2, version=version)
    assert (again.error_code, again.base_offset) == (0, 7)
    assert partition.log.log_end_offset == 8
    assert partition.bytes_in == len(placed(0, 1, 7))
    await mirror(plane, 7, 90, follows=2, version=version)
    assert partition.bytes_in == len(placed(0, 1, 7, 90))
    assert partition.messages_in == 4


async def test_it_starts_where_the_source_does(plane: DataPlane, partition: Partition) -> None:
    answer = await mirror(plane, 5_000_003, follows=0, mirror_log_start_offset=5_000_000)
    assert (answer.error_code, answer.log_start_offset) == (0, 5_000_000)
    assert await listed(plane, START) == 5_000_000
    assert await listed(plane, END) == 5_000_004
    await plane.restart()
    assert await listed(plane, START) == 5_000_000
    assert await listed(plane, END) == 5_000_004


async def test_a_duplicate_is_acknowledged_when_what_it_repeats_is(
    plane: DataPlane, partition: Partition
) -> None:
    plane.disk.hold_syncs()
    first = plane.begin(ApiKey.PRODUCE, LATEST, request(plane, placed(0), follows=0))
    again = plane.begin(ApiKey.PRODUCE, LATEST, request(plane, placed(0), follows=0))
    await asyncio.sleep(0.02)
    assert not first.done()
    assert not again.done()
    plane.disk.release_syncs()
    for outcome in first, again:
        response = await outcome
        assert response.responses[0].partition_responses[0].error_code == 0
    assert partition.high_watermark == 1


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"source": "b", "follows": 1}, ErrorCode.INVALID_REQUEST),
        ({"source": "", "follows": 1}, ErrorCode.POLICY_VIOLATION),
        ({}, ErrorCode.INVALID_REQUEST),
        ({"acks": 1, "follows": 1}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"follows": 2}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
async def test_what_is_wrong_is_refused(
    plane: DataPlane, partition: Partition, wrong: dict[str, Any], code: ErrorCode
) -> None:
    await mirror(plane, 0, follows=0)
    answer = await mirror(plane, 2, **wrong)
    assert ErrorCode(answer.error_code) is code
    assert answer.error_message
    assert partition.log.log_end_offset == 1


async def test_ordinary_producers_are_told_whose_mirror_it_is(
    plane: DataPlane, partition: Partition
) -> None:
    for acks in -1, 1:
        answer = await mirror(plane, 0, source="", acks=acks)
        assert ErrorCode(answer.error_code) is ErrorCode.POLICY_VIOLATION
        assert "mirror of the one in a" in (answer.error_message or "")
    with pytest.raises(ApiError):
        plane.begin(ApiKey.PRODUCE, LATEST, request(plane, placed(0), source="", acks=0))
    assert partition.log.log_end_offset == 0


async def test_mirrors_do_not_write_to_ordinary_topics(plane: DataPlane) -> None:
    partition = await plane.create(TOPIC)
    answer = await mirror(plane, 0, follows=0)
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_REQUEST
    assert "no mirror" in (answer.error_message or "")
    assert partition.log.log_end_offset == 0


async def test_once_it_is_an_ordinary_topic_producers_go_on(
    plane: DataPlane, partition: Partition
) -> None:
    await mirror(plane, 0, 8, follows=0)
    topic = plane.metadata.topics[TOPIC]
    await plane.metadata.put(replace(topic, config={"qbus.mirror.former.source": "a"}))
    refused = await mirror(plane, 9, follows=9)
    assert ErrorCode(refused.error_code) is ErrorCode.INVALID_REQUEST
    assert (await mirror(plane, 0, source="")).base_offset == 9
    await plane.restart()
    assert (await mirror(plane, 0, source="")).base_offset == 10


class TestFollowers:
    async def test_they_are_given_gaps_and_all(self, plane: DataPlane) -> None:
        await put(plane, state(), topic=TOPIC, qbus_mirror_source="a", qbus_durability="memory")
        waiting = plane.begin(ApiKey.PRODUCE, LATEST, request(plane, placed(70, 80), follows=0))
        partition = plane.partition(TOPIC)
        follower = Follower(plane, OTHER)
        answer = (await follower.fetch(at(0), topic=TOPIC))[0]
        assert ErrorCode(answer.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
        answer = (await follower.fetch(at(70, log_start=70), topic=TOPIC))[0]
        assert values(answer.records) == [b"70", b"80"]
        assert [header.base_offset for header, _ in iter_batches(answer.records)] == [70, 80]
        for node in OTHER, THIRD:
            assert not waiting.done()
            await Follower(plane, node).fetch(at(81, log_start=70), topic=TOPIC)
        await waiting
        assert partition.high_watermark == 81

    async def test_acks_of_too_few_are_refused(self, plane: DataPlane) -> None:
        await put(plane, state((1,)), topic=TOPIC, qbus_mirror_source="a", min_insync_replicas=2)
        answer = await mirror(plane, 0, follows=0)
        assert ErrorCode(answer.error_code) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert plane.partition(TOPIC).log.log_end_offset == 0
