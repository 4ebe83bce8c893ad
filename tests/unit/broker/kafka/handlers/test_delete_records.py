"""DeleteRecords: the log's start moves forward, for good."""

import asyncio
import errno
import os

import pytest

from qbus.broker.log import checkpoints
from qbus.broker.partition.partition import Partition
from qbus.errors import ErrorCode
from qbus.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from qbus.wire import ApiKey
from qbus.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.support.data_plane import DataPlane
from tests.support.following import OTHER, THIRD, Follower, at, lead, put, state
from tests.support.logs import batch


async def delete(
    plane: DataPlane,
    offset: int,
    *,
    version: int = 2,
    topic: str = "orders",
    index: int = 0,
    timeout_ms: int = 1000,
) -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=timeout_ms
    )
    response = await plane.call(ApiKey.DELETE_RECORDS, version, request)
    result: DeleteRecordsPartitionResult = response.topics[0].partitions[0]
    return result


@pytest.fixture
async def orders(plane: DataPlane) -> Partition:
    partition = await plane.create("orders", qbus_durability="memory")
    partition.append(batch(b"a", b"b", b"c", b"d"), 1)
    return partition


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_records_before_an_offset_are_gone(
    plane: DataPlane, orders: Partition, version: int
) -> None:
    result = await delete(plane, 2, version=version)
    assert (result.error_code, result.low_watermark) == (0, 2)
    assert orders.log.log_start_offset == 2


async def test_minus_one_deletes_up_to_the_high_watermark(
    plane: DataPlane, orders: Partition
) -> None:
    assert (await delete(plane, -1)).low_watermark == 4
    assert orders.append(batch(b"e"), 1).first_offset == 4


async def test_an_offset_before_the_start_changes_nothing(
    plane: DataPlane, orders: Partition
) -> None:
    await delete(plane, 3)
    result = await delete(plane, 1)
    assert (result.error_code, result.low_watermark) == (0, 3)


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
async def test_what_coordinators_need_stays(plane: DataPlane, topic: str) -> None:
    partition = await plane.create(topic, qbus_durability="memory")
    partition.append_own(bytearray(batch(b"a", b"b")), 2)
    result = await delete(plane, -1, topic=topic)
    assert ErrorCode(result.error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.low_watermark == -1
    assert partition.log.log_start_offset == 0


async def test_the_start_survives_a_restart(plane: DataPlane, orders: Partition) -> None:
    await delete(plane, 3)
    await plane.restart()
    assert plane.partition("orders").log.log_start_offset == 3


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
async def test_a_start_that_a_crash_would_undo_is_not_acknowledged(
    plane: DataPlane, orders: Partition, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(checkpoints, "write_offsets", fail)
    result = await delete(plane, 3)
    assert ErrorCode(result.error_code) is ErrorCode.KAFKA_STORAGE_ERROR
    assert result.low_watermark == -1
    monkeypatch.undo()
    repeated = await delete(plane, 3)
    assert (repeated.error_code == 0) is (error == errno.ENOSPC)


@pytest.mark.parametrize("offset", [5, -2])
async def test_offsets_that_are_not_acknowledged(
    plane: DataPlane, orders: Partition, offset: int
) -> None:
    result = await delete(plane, offset)
    assert ErrorCode(result.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert result.low_watermark == -1
    assert orders.log.log_start_offset == 0


async def test_what_is_not_on_stable_storage_cannot_be_deleted(plane: DataPlane) -> None:
    partition = await plane.create("safe")
    plane.disk.hold_syncs()
    partition.append(batch(b"a"), 1)
    result = await delete(plane, 1, topic="safe", timeout_ms=0)
    assert ErrorCode(result.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_minus_one_waits_for_the_flush_of_what_acks_1_acknowledged(plane: DataPlane) -> None:
    partition = await plane.create("safe")
    plane.disk.hold_syncs()
    partition.append(batch(b"a"), 1)
    deleting = asyncio.create_task(delete(plane, -1, topic="safe", timeout_ms=60_000))
    await asyncio.sleep(0)
    assert not deleting.done()
    plane.disk.release_syncs()
    result = await deleting
    assert (result.error_code, result.low_watermark) == (0, 1)


async def test_unknown_partitions(plane: DataPlane, orders: Partition) -> None:
    result = await delete(plane, 1, index=1)
    assert ErrorCode(result.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestFollowers:
    """Records are gone once they are gone everywhere."""

    @pytest.fixture
    async def followed(self, plane: DataPlane) -> tuple[Partition, list[Follower]]:
        partition = await lead(plane)
        partition.append(batch(b"a", b"b"), 1)
        followers = [Follower(plane, node) for node in (OTHER, THIRD)]
        for follower in followers:
            await follower.fetch(at(2))
        return partition, followers

    async def test_the_answer_waits_for_all_that_live(
        self, plane: DataPlane, followed: tuple[Partition, list[Follower]]
    ) -> None:
        _, (one, other) = followed
        deleting = asyncio.ensure_future(delete(plane, 2, timeout_ms=60_000))
        told = await one.fetch(wait_ms=60_000)
        assert told[0].log_start_offset == 2
        await one.fetch(at(2, log_start=2))
        assert not deleting.done()
        await other.fetch(at(2, log_start=2))
        result = await deleting
        assert (result.error_code, result.low_watermark) == (0, 2)

    async def test_who_is_gone_is_not_waited_for(
        self, plane: DataPlane, followed: tuple[Partition, list[Follower]]
    ) -> None:
        del plane.metadata.brokers[THIRD]
        deleting = asyncio.ensure_future(delete(plane, 2, timeout_ms=60_000))
        await followed[1][0].fetch(wait_ms=60_000)
        await followed[1][0].fetch(at(2, log_start=2))
        assert (await deleting).low_watermark == 2

    async def test_the_time_runs_out(
        self, plane: DataPlane, followed: tuple[Partition, list[Follower]]
    ) -> None:
        result = await delete(plane, 2, timeout_ms=1)
        assert ErrorCode(result.error_code) is ErrorCode.REQUEST_TIMED_OUT
        assert result.low_watermark == 0
        assert not followed[0].start_waiters

    async def test_another_leader_answers_it(
        self, plane: DataPlane, followed: tuple[Partition, list[Follower]]
    ) -> None:
        deleting = asyncio.ensure_future(delete(plane, 2, timeout_ms=60_000))
        await followed[1][0].fetch(wait_ms=60_000)
        await put(plane, state(leader=OTHER, leader_epoch=1, version=1))
        result = await deleting
        assert ErrorCode(result.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
