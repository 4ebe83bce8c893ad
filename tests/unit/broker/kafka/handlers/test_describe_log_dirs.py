"""DescribeLogDirs: directories, what is in them, and their space."""

import errno
from pathlib import Path
from typing import Any

import pytest

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tests.support.data_plane import DataPlane
from tests.support.logs import batch


async def describe(
    plane: DataPlane, *, version: int = 5, topics: list[Any] | None = None
) -> DescribeLogDirsResponse:
    response: DescribeLogDirsResponse = await plane.call(
        ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=topics)
    )
    return response


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
async def test_every_partition_with_its_size(
    plane: DataPlane, tmp_path: Path, version: int
) -> None:
    partition = await plane.create("orders", 2, qbus_durability="memory")
    data = batch(b"a")
    partition.append(data, 1)
    response = await describe(plane, version=version)
    assert response.error_code == 0
    (result,) = response.results
    assert (result.error_code, result.log_dir) == (0, str(tmp_path / "logs"))
    (topic,) = result.topics
    assert topic.name == "orders"
    sizes = {p.partition_index: (p.partition_size, p.offset_lag) for p in topic.partitions}
    assert sizes == {0: (len(data), 0), 1: (0, 0)}
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes
    else:
        assert (result.total_bytes, result.usable_bytes) == (-1, -1)


async def test_only_what_is_asked_for(plane: DataPlane) -> None:
    await plane.create("orders", 3)
    await plane.create("other")
    wanted = [DescribableLogDirTopic(topic="orders", partitions=[1, 9])]
    (result,) = (await describe(plane, topics=wanted)).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in result.topics] == [
        ("orders", [1])
    ]
    (result,) = (await describe(plane, topics=[])).results
    assert result.topics == []


async def test_several_directories_one_of_which_failed(tmp_path: Path) -> None:
    directories = [str(tmp_path / name) for name in ("one", "two")]
    plane = DataPlane(tmp_path, log_dirs=directories)
    await plane.start()
    await plane.create("orders", 4)
    failing = plane.logs.directories[0]
    failing.shared.health.fail("a test", OSError(5, "Input/output error"))
    response = await describe(plane)
    assert [result.log_dir for result in response.results] == directories
    assert [ErrorCode(result.error_code) for result in response.results] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NONE,
    ]
    assert [len(result.topics) for result in response.results] == [0, 1]
    failed, other = (result.problem for result in response.results)
    assert failed == "a test: [Errno 5] Input/output error"
    assert other == ""
    plane.logs.directories[1].shared.health.judge("append", OSError(errno.ENOSPC, "no space"))
    response = await describe(plane)
    assert response.results[1].problem == "the disk is full"
    assert [result.error_code for result in response.results][1] == ErrorCode.NONE
    await plane.stop()
