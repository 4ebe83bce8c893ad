"""DeleteRecords: the log's start moves forward, for good."""

import errno
import os

import pytest

from qbus.broker.log import directory_checkpoints
from qbus.broker.replication import Partition
from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.support.data_plane import DataPlane
from tests.support.logs import batch


async def delete(
    plane: DataPlane, offset: int, *, version: int = 2, topic: str = "orders", index: int = 0
) -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=1000
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

    monkeypatch.setattr(directory_checkpoints, "write_offsets", fail)
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
    result = await delete(plane, 1, topic="safe")
    assert ErrorCode(result.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_unknown_partitions(plane: DataPlane, orders: Partition) -> None:
    result = await delete(plane, 1, index=1)
    assert ErrorCode(result.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
