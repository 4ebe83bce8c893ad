"""What was read is compared with the log of each new leader."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qbus.clients.consumer.assignment import Assignment, PartitionState
from qbus.clients.consumer.fetch_responses import FetchResponses
from qbus.clients.consumer.truncation import TruncationCheck
from qbus.clients.errors import LogTruncated
from qbus.clients.types import TopicPartition
from qbus.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

P = TopicPartition("t", 0)
OLD, NEW = 3, 5


class Leader:
    """A new leader, which answers when it is told to."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.end_offset: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.metadata = SimpleNamespace(leader=lambda *_: 1, leader_epoch=lambda *_: NEW)

    async def ask(self, *_: object) -> OffsetForLeaderEpochResponse:
        self.is_asked.set()
        end = EpochEndOffset(partition=0, leader_epoch=OLD, end_offset=await self.end_offset)
        topic = OffsetForLeaderTopicResult(topic="t", partitions=[end])
        return OffsetForLeaderEpochResponse(topics=[topic])


class Reader:
    """A partition of which everything before ``position`` was read."""

    def __init__(self, position: int) -> None:
        self.leader = Leader()
        assignment = Assignment()
        assignment.replace([P])
        self.state: PartitionState = assignment.states[P]
        self.state.position, self.state.epoch, self.state.leader_epoch = position, OLD, OLD
        cluster = cast("Any", self.leader)
        self.responses = FetchResponses(cluster, assignment, cast("Any", None))
        self.check = TruncationCheck(cluster, assignment, self.responses, asyncio.Event())

    def is_sound(self) -> bool:
        """Whether the log is known to have what was read; else the leader is asked."""
        return self.check.is_sound(P, self.state)

    async def answered(self, end_offset: int) -> None:
        """The epoch of what was read ended at ``end_offset``, says the leader."""
        self.leader.end_offset.set_result(end_offset)
        await asyncio.gather(*self.check.tasks)


@pytest.mark.parametrize("end_offset", [10, 12])
async def test_a_leader_that_has_what_was_read_is_asked_once(end_offset: int) -> None:
    reader = Reader(position=10)
    assert not reader.is_sound()
    await reader.answered(end_offset)
    assert reader.is_sound()
    assert reader.responses.failure is None


async def test_a_log_that_was_cut_is_told_of() -> None:
    reader = Reader(position=10)
    assert not reader.is_sound()
    await reader.answered(9)
    assert isinstance(reader.responses.failure, LogTruncated)
    assert not reader.is_sound()


async def test_a_position_that_moved_is_validated_again() -> None:
    reader = Reader(position=10)
    assert not reader.is_sound()
    await reader.leader.is_asked.wait()
    reader.state.position, reader.state.epoch = 20, OLD + 1
    await reader.answered(12)
    assert reader.responses.failure is None
    assert not reader.is_sound()
