"""Detecting that a partition's log was truncated below the position (KIP-320)."""

import asyncio
from collections.abc import Iterable

from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.wire import ApiKey
from qbus.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from ..errors import LogTruncated, api_error
from ..net.cluster import Cluster
from ..net.trouble import USUAL_S
from ..types import TopicPartition, by_topic
from .assignment import Assignment, PartitionState
from .fetch_responses import FetchResponses

_RETRY_DELAY = 0.1
_UNDEFINED = -1


class TruncationCheck:
    """Asks each new leader where the epoch of the last record read ended.

    If that is before the position, the log was truncated, and holds other records there, or will.
    """

    def __init__(
        self,
        cluster: Cluster,
        assignment: Assignment,
        responses: FetchResponses,
        changed: asyncio.Event,
    ) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._cluster = cluster
        self._assignment = assignment
        self._responses = responses
        self._changed = changed
        self._asked: set[TopicPartition] = set()

    def is_sound(self, partition: TopicPartition, state: PartitionState) -> bool:
        """Whether the current leader is known to hold what was read; otherwise asks it."""
        epoch = self._cluster.metadata.leader_epoch(*partition)
        if state.leader_epoch >= epoch:
            return True
        if state.leader_epoch < 0 or state.epoch < 0:  # nothing was read yet
            state.leader_epoch = epoch
            return True
        if partition not in self._asked:
            self._asked.add(partition)
            task = asyncio.create_task(self._ask(partition, state, epoch))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        return False

    async def _ask(self, partition: TopicPartition, state: PartitionState, epoch: int) -> None:
        position = state.position
        try:
            leader = self._cluster.metadata.leader(*partition)
            response: OffsetForLeaderEpochResponse = await self._cluster.ask(
                leader, ApiKey.OFFSET_FOR_LEADER_EPOCH, _request([partition], state.epoch, epoch)
            )
            if state.position == position:  # else the epoch may differ: ask again
                self._told(partition, state, epoch, response)
        except ApiError as error:
            if not error.retriable and error.code is not ErrorCode.UNSUPPORTED_VERSION:
                self._responses.fail(error, state)
            elif error.code is ErrorCode.UNSUPPORTED_VERSION:
                state.leader_epoch = epoch  # the broker cannot tell
            else:
                self._cluster.metadata.forget([partition.topic])
                subject = f"{partition.topic}-{partition.partition}"
                self._cluster.troubles.met(subject, error, grace=USUAL_S)
                await asyncio.sleep(_RETRY_DELAY)
        except QbusError as error:
            self._responses.fail(error)
        finally:
            self._asked.discard(partition)
            self._changed.set()

    def _told(
        self,
        partition: TopicPartition,
        state: PartitionState,
        epoch: int,
        response: OffsetForLeaderEpochResponse,
    ) -> None:
        topic, index = partition
        found = [
            each
            for answer in response.topics
            if answer.topic == topic
            for each in answer.partitions
            if each.partition == index
        ]
        if not found:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer for {topic}-{index}")
        (end,) = found[:1]
        if end.error_code:
            raise api_error(end.error_code, of=f"{topic}-{index}")
        position = state.position
        if position is not None and _UNDEFINED < end.end_offset < position:
            state.drop()
            self._responses.fail(LogTruncated(topic, index, position, end.end_offset), state)
            return
        state.fetched.clear()  # unread records may have been truncated
        state.leader_epoch = epoch


def _request(
    partitions: Iterable[TopicPartition], epoch: int, leader_epoch: int
) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=index, current_leader_epoch=leader_epoch, leader_epoch=epoch
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(partitions).items()
        ],
    )
