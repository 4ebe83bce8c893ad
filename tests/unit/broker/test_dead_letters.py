"""Dead letter topics: batches come to whoever leads a partition, on all in-sync replicas."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.dead_letters import DeadLetters
from qbus.broker.metadata.image import BrokerInfo, PartitionInfo
from qbus.broker.partition.partition import ACKS_ALL
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.records import iter_batches, iter_records
from qbus.wire import ApiKey
from qbus.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.data_plane import NODE, DataPlane
from tests.support.fake_broker import FakeBroker
from tests.support.following import EPOCH, OTHER, Follower, at, lead, put, state
from tests.support.logs import batch
from tests.support.waiting import eventually

THERE = PartitionInfo(OTHER, 0, (OTHER,), (OTHER,))
HERE = PartitionInfo(NODE, 0, (NODE,), (NODE,))
NOWHERE = PartitionInfo(-1, 0, (OTHER,), (OTHER,))


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(tmp_path)
    await plane.start()
    yield plane
    await plane.stop()


@pytest.fixture
async def letters(plane: DataPlane) -> AsyncIterator[DeadLetters]:
    letters = DeadLetters(plane.config, plane.metadata, plane.replicas)  # type: ignore[arg-type]
    yield letters
    letters.close()


def letter(value: bytes = b"v") -> bytearray:
    return bytearray(batch(value))


def values(plane: DataPlane, index: int) -> list[bytes | None]:
    """What a partition of the topic has here."""
    records = plane.partition("orders", index).log.read(0, 1 << 20, wait=True)
    if records is None:
        return []
    with records:
        batches = records.read()
    return [record.value for _, one in iter_batches(batches) for record in iter_records(one)]


async def test_a_batch_goes_to_the_partitions_that_are_led_here_in_turn(
    plane: DataPlane, letters: DeadLetters
) -> None:
    await put(plane, HERE, THERE, HERE)
    for number in range(4):
        await letters.write("orders", letter(b"%d" % number))
    assert (values(plane, 0), values(plane, 2)) == ([b"0", b"2"], [b"1", b"3"])


async def test_a_batch_is_stored_when_all_in_sync_replicas_have_it(
    plane: DataPlane, letters: DeadLetters
) -> None:
    partition = await lead(plane)
    writing = asyncio.ensure_future(letters.write("orders", letter()))
    await eventually(lambda: partition.log.log_end_offset == 1)
    await asyncio.sleep(0.05)
    assert not writing.done()
    for node in (2, 3):
        await Follower(plane, node).fetch(at(0))
        await Follower(plane, node).fetch(at(1))
    await writing


async def test_a_batch_whose_leader_steps_down_may_not_be_stored(
    plane: DataPlane, letters: DeadLetters
) -> None:
    partition = await lead(plane)
    writing = asyncio.ensure_future(letters.write("orders", letter()))
    await eventually(lambda: partition.log.log_end_offset == 1)
    await put(plane, state(leader=OTHER, leader_epoch=1))
    with pytest.raises(ApiError) as refused:
        await writing
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@pytest.mark.parametrize(
    ("partitions", "code", "why"),
    [
        ((), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the dead letter topic orders is missing"),
        ((NOWHERE,), ErrorCode.LEADER_NOT_AVAILABLE, "no partition of orders has a leader"),
    ],
)
async def test_a_topic_that_cannot_take_a_batch(
    plane: DataPlane,
    letters: DeadLetters,
    partitions: tuple[PartitionInfo, ...],
    code: ErrorCode,
    why: str,
) -> None:
    if partitions:
        await put(plane, *partitions)
    with pytest.raises(ApiError, match=why) as refused:
        await letters.write("orders", letter())
    assert refused.value.code is code


async def test_what_is_larger_than_the_topic_allows_is_refused(
    plane: DataPlane, letters: DeadLetters
) -> None:
    await put(plane, HERE, max_message_bytes=1_000)
    with pytest.raises(ApiError) as refused:
        await letters.write("orders", letter(bytes(1_000)))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert values(plane, 0) == []


# Partitions that another broker leads


@pytest.fixture
async def other(plane: DataPlane) -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"orders": 1}, node_id=OTHER) as other:
        plane.metadata.brokers[OTHER] = BrokerInfo(OTHER, "127.0.0.1", other.port, "", EPOCH)
        await put(plane, THERE)
        yield other


async def test_another_leader_gets_it_for_all_in_sync_replicas(
    letters: DeadLetters, other: FakeBroker
) -> None:
    await letters.write("orders", letter(b"far"))
    (request,) = other.asked(ApiKey.PRODUCE)
    assert request.acks == ACKS_ALL
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    assert (topic.name, data.index) == ("orders", 0)
    assert [record.value for record in iter_records(bytes(data.records))] == [b"far"]


async def test_what_another_leader_refuses_it_with_is_raised(
    letters: DeadLetters, other: FakeBroker
) -> None:
    answer = PartitionProduceResponse(index=0, error_code=ErrorCode.MESSAGE_TOO_LARGE)
    other.handlers[ApiKey.PRODUCE] = lambda _: ProduceResponse(
        responses=[TopicProduceResponse(name="orders", partition_responses=[answer])]
    )
    with pytest.raises(ApiError) as refused:
        await letters.write("orders", letter())
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_what_fits_into_no_request_is_too_large_and_not_sent(
    tmp_path: Path, plane: DataPlane, other: FakeBroker
) -> None:
    small = DataPlane(tmp_path / "small", socket_request_max_bytes=10_000).config
    letters = DeadLetters(small, plane.metadata, plane.replicas)  # type: ignore[arg-type]
    with pytest.raises(ApiError) as refused:
        await letters.write("orders", letter(bytes(10_000)))
    letters.close()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert other.asked(ApiKey.PRODUCE) == []


async def test_another_leader_that_is_gone(letters: DeadLetters, other: FakeBroker) -> None:
    await other.stop()
    with pytest.raises(QbusError):
        await letters.write("orders", letter())
