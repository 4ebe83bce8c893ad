"""Where a follower's log and its leader's part, and cutting the follower's there.

Before the first records of each leader epoch (KIP-101, KIP-279): what was written after the
leader's log took another course is cut away, by leader epochs, never by high watermarks. Where the
leader's log begins behind the end of ours, or ours has nothing, ours goes on where the leader's
begins. That loses nothing: who is in sync has all below the high watermark, and no leader's log
begins above it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from qbus.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from ..log import EpochEnd
from .partition_fetch_state import NO_EPOCH, PartitionFetchState, error_of
from .peer_connection import PeerConnection
from .truncation import agree

EPOCHS_VERSION = 4
OFFSETS_VERSION = 7
_EARLIEST = -2

Failed = Callable[[PartitionFetchState, ErrorCode], None]
Settled = Callable[[PartitionFetchState], None]
_Answers = Mapping[tuple[str, int], Any]


class LogReconciliation:
    """Settles partitions with one leader: as many at once as there are."""

    def __init__(self, node_id: int, timeout: float, settled: Settled, failed: Failed) -> None:
        """``settled`` and ``failed`` are told of each partition as soon as it is known."""
        self._node_id = node_id
        self._timeout = timeout
        self._settled = settled
        self._failed = failed

    async def settle(
        self, connection: PeerConnection, partitions: Iterable[PartitionFetchState]
    ) -> None:
        """Ask, cut and ask again until all agree with the leader. Raises PeerFailed."""
        unsettled = list(partitions)
        while unsettled:
            with_epochs = [one for one in unsettled if one.latest_epoch != NO_EPOCH]
            ends = await self._ask_ends(connection, with_epochs)
            without_start = [one for one in unsettled if one.needs_start]
            starts = await self._ask_starts(connection, without_start)
            again = await asyncio.gather(
                *(
                    self._settle(one, ends.get(_name(one)), starts.get(_name(one)))
                    for one in unsettled
                )
            )
            unsettled = [one for one, more in zip(unsettled, again, strict=True) if more]

    async def _settle(self, one: PartitionFetchState, end: Any, start: Any) -> bool:
        """Whether the leader must be asked again."""
        try:
            again = await self._cut(one, end, start)
        except ApiError as error:
            if one.is_current:
                self._failed(one, error.code)
            return False
        if not again and one.is_current:
            self._settled(one)
        return again and one.is_current

    async def _cut(self, one: PartitionFetchState, end: Any, start: Any) -> bool:
        again = False
        if end is not None and one.is_current:
            _check(end)
            again = await _cut_to(one, EpochEnd(end.leader_epoch, end.end_offset))
        elif one.latest_epoch != NO_EPOCH:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the leader did not answer")
        if not again and start is not None and one.is_current:
            _check(start)
            await _go_on_at(one, start.offset)
        return again

    async def _ask_ends(
        self, connection: PeerConnection, asked: list[PartitionFetchState]
    ) -> _Answers:
        if not asked:
            return {}
        topics: dict[str, OffsetForLeaderTopic] = {}
        for one in asked:
            name = one.replica.topic
            topic = topics.setdefault(name, OffsetForLeaderTopic(topic=name, partitions=[]))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=one.replica.index,
                    current_leader_epoch=one.leader_epoch,
                    leader_epoch=one.latest_epoch,
                )
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._node_id, topics=list(topics.values())
        )
        response = await connection.ask(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, EPOCHS_VERSION, request, self._timeout
        )
        return {
            (topic.topic, answer.partition): answer
            for topic in response.topics
            for answer in topic.partitions
        }

    async def _ask_starts(
        self, connection: PeerConnection, asked: list[PartitionFetchState]
    ) -> _Answers:
        if not asked:
            return {}
        topics: dict[str, ListOffsetsTopic] = {}
        for one in asked:
            name = one.replica.topic
            topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=one.replica.index,
                    current_leader_epoch=one.leader_epoch,
                    timestamp=_EARLIEST,
                )
            )
        request = ListOffsetsRequest(replica_id=self._node_id, topics=list(topics.values()))
        response = await connection.ask(
            ApiKey.LIST_OFFSETS, OFFSETS_VERSION, request, self._timeout
        )
        return {
            (topic.name, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }


async def _cut_to(one: PartitionFetchState, answer: EpochEnd) -> bool:
    log = one.replica.log
    end = log.log_end_offset
    epochs = log.epoch_cache
    cut = agree(epochs, log.log_start_offset, end, answer)
    if cut.end_offset < end or epochs.entries[-1].start_offset >= end:
        await one.replica.truncate(cut.end_offset)
    return not cut.is_final


async def _go_on_at(one: PartitionFetchState, start: int) -> None:
    if start < 0:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the leader's log starts at {start}")
    log = one.replica.log
    end = log.log_end_offset
    is_empty = log.log_start_offset == end
    if one.is_lost or start > end or (is_empty and start != end):
        await one.replica.truncate_fully(start)
    one.is_out_of_range = False


def _check(answer: Any) -> None:
    if answer.error_code:
        raise ApiError(error_of(answer.error_code))


def _name(one: PartitionFetchState) -> tuple[str, int]:
    return one.replica.topic, one.replica.index
