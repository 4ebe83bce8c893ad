"""OffsetForLeaderEpoch: where a leader epoch ended."""

from typing import Any

import pytest

from qbus.broker.metadata.image import PartitionInfo, Topic
from qbus.broker.partition.partition import Partition
from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.data_plane import DataPlane
from tests.support.logs import batch


async def end_of(
    plane: DataPlane, epoch: int, *, version: int = 4, topic: str = "orders", **fields: Any
) -> EpochEndOffset:
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, **fields)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    response = await plane.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
    answer: EpochEndOffset = response.topics[0].partitions[0]
    return answer


@pytest.fixture
async def orders(plane: DataPlane) -> Partition:
    """Two records of epoch 0, one of epoch 3, which is the current one."""
    partition = await plane.create("orders")
    partition.append(batch(b"a", b"b"), 1)
    topic = plane.metadata.topics["orders"]
    await plane.metadata.put(Topic(topic.name, topic.id, (PartitionInfo(1, 3, (1,), (1,)),)))
    partition.append(batch(b"c"), 1)
    return partition


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(("epoch", "end"), [(0, (0, 2)), (1, (0, 2)), (3, (3, 3)), (4, (-1, -1))])
async def test_where_an_epoch_ended(
    plane: DataPlane, orders: Partition, version: int, epoch: int, end: tuple[int, int]
) -> None:
    answer = await end_of(plane, epoch, version=version)
    assert answer.error_code == 0
    assert (answer.leader_epoch, answer.end_offset) == end


@pytest.mark.parametrize(
    ("known", "code"), [(2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
async def test_who_takes_another_epoch_for_the_current_one(
    plane: DataPlane, orders: Partition, known: int, code: ErrorCode
) -> None:
    answer = await end_of(plane, 0, current_leader_epoch=known)
    assert ErrorCode(answer.error_code) is code
    assert (answer.leader_epoch, answer.end_offset) == (-1, -1)


async def test_unknown_topics(plane: DataPlane, orders: Partition) -> None:
    answer = await end_of(plane, 0, topic="none")
    assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
