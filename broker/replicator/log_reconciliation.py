"""Truncates a follower's log to where it agrees with its leader's (KIP-101, KIP-279).

This precedes the first fetch in each leader epoch. The log is cut where it diverges from the
leader's, by leader epochs and never by the high watermark. If the leader's log starts after the end
of ours, or ours is empty, ours restarts at the start of the leader's. No acknowledged record is
lost: an in-sync replica has everything below the high watermark, and no leader's log starts above.

A log that is damaged, and otherwise whole, is not dropped for that of a leader whose log is damaged
too: either may have what the other lost, and no follower gets past the leader's damage anyway.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
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
from ..peers.connection import PeerConnection
from .partition_fetch_state import NO_EPOCH, PartitionFetchState, error_of
from .truncation_offset import find_truncation

EPOCHS_VERSION = 4
OFFSETS_VERSION = 7
_LOG_DIRS_VERSION = 4
_EARLIEST = -2

_log = logging.getLogger(__name__)

OnFailed = Callable[[PartitionFetchState, ErrorCode], None]
OnReconciled = Callable[[PartitionFetchState], None]
_Responses = Mapping[tuple[str, int], Any]
_Damaged = Mapping[tuple[str, int], int]
"""The first damaged offsets of the leader's logs."""


class LogReconciliation:
    """Reconciles partitions with one leader, all of them in the same requests."""

    def __init__(
        self, node_id: int, timeout: float, on_reconciled: OnReconciled, on_failed: OnFailed
    ) -> None:
        """``timeout``, of a request, is in seconds.

        Of each partition ``on_reconciled`` or ``on_failed`` is called as soon as its outcome is
        known.
        """
        self._node_id = node_id
        self._timeout = timeout
        self._on_reconciled = on_reconciled
        self._on_failed = on_failed

    async def run(
        self, connection: PeerConnection, partitions: Iterable[PartitionFetchState]
    ) -> None:
        """Ask and truncate until all logs agree with the leader's. Raises PeerError."""
        remaining = list(partitions)
        while remaining:
            ends = await self._fetch_epoch_ends(
                connection, [state for state in remaining if state.latest_epoch != NO_EPOCH]
            )
            starts = await self._fetch_log_starts(
                connection, [state for state in remaining if state.needs_log_start]
            )
            damaged = await self._fetch_damage(
                connection,
                [state for state in remaining if state.replica.log.can_serve_around_damage],
            )
            must_ask_again = await asyncio.gather(
                *(
                    self._reconcile(
                        state, ends.get(_name(state)), starts.get(_name(state)), damaged
                    )
                    for state in remaining
                )
            )
            remaining = [
                state for state, again in zip(remaining, must_ask_again, strict=True) if again
            ]

    async def _reconcile(
        self, state: PartitionFetchState, end: Any, start: Any, damaged: _Damaged
    ) -> bool:
        """Truncate one log; return whether the leader must be asked again."""
        try:
            _check_whole(state, damaged)
            must_ask_again = await self._truncate(state, end, start)
        except ApiError as error:
            if state.is_current:
                self._on_failed(state, error.code)
            return False
        if not must_ask_again and state.is_current:
            self._on_reconciled(state)
        return must_ask_again and state.is_current

    async def _truncate(self, state: PartitionFetchState, end: Any, start: Any) -> bool:
        must_ask_again = False
        if end is not None and state.is_current:
            _check(end)
            must_ask_again = await _truncate_to(state, EpochEnd(end.leader_epoch, end.end_offset))
        elif state.latest_epoch != NO_EPOCH:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the leader did not answer")
        if not must_ask_again and start is not None and state.is_current:
            _check(start)
            await _restart_at(state, start.offset)
        return must_ask_again

    async def _fetch_epoch_ends(
        self, connection: PeerConnection, partitions: list[PartitionFetchState]
    ) -> _Responses:
        if not partitions:
            return {}
        topics: dict[str, OffsetForLeaderTopic] = {}
        for state in partitions:
            name = state.replica.topic
            topic = topics.setdefault(name, OffsetForLeaderTopic(topic=name, partitions=[]))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=state.replica.index,
                    current_leader_epoch=state.leader_epoch,
                    leader_epoch=state.latest_epoch,
                )
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._node_id, topics=list(topics.values())
        )
        response = await connection.request(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, EPOCHS_VERSION, request, self._timeout
        )
        return {
            (topic.topic, answer.partition): answer
            for topic in response.topics
            for answer in topic.partitions
        }

    async def _fetch_damage(
        self, connection: PeerConnection, partitions: list[PartitionFetchState]
    ) -> _Damaged:
        if not partitions:
            return {}
        topics: dict[str, DescribableLogDirTopic] = {}
        for state in partitions:
            name = state.replica.topic
            topic = topics.setdefault(name, DescribableLogDirTopic(topic=name, partitions=[]))
            topic.partitions.append(state.replica.index)
        request = DescribeLogDirsRequest(topics=list(topics.values()))
        response = await connection.request(
            ApiKey.DESCRIBE_LOG_DIRS, _LOG_DIRS_VERSION, request, self._timeout
        )
        return {
            (topic.name, answer.partition_index): answer.damage[0].first_offset
            for directory in response.results
            for topic in directory.topics
            for answer in topic.partitions
            if answer.damage
        }

    async def _fetch_log_starts(
        self, connection: PeerConnection, partitions: list[PartitionFetchState]
    ) -> _Responses:
        if not partitions:
            return {}
        topics: dict[str, ListOffsetsTopic] = {}
        for state in partitions:
            name = state.replica.topic
            topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=state.replica.index,
                    current_leader_epoch=state.leader_epoch,
                    timestamp=_EARLIEST,
                )
            )
        request = ListOffsetsRequest(replica_id=self._node_id, topics=list(topics.values()))
        response = await connection.request(
            ApiKey.LIST_OFFSETS, OFFSETS_VERSION, request, self._timeout
        )
        return {
            (topic.name, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }


async def _truncate_to(state: PartitionFetchState, answer: EpochEnd) -> bool:
    log = state.replica.log
    end = log.log_end_offset
    epochs = log.epoch_cache
    truncation = find_truncation(epochs, log.log_start_offset, end, answer)
    if truncation.end_offset < end or epochs.entries[-1].start_offset >= end:
        await state.replica.truncate(truncation.end_offset)
    return not truncation.is_final


async def _restart_at(state: PartitionFetchState, start: int) -> None:
    if start < 0:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the leader's log starts at {start}")
    log = state.replica.log
    end = log.log_end_offset
    is_empty = log.log_start_offset == end
    if state.is_corrupt or start > end or (is_empty and start != end):
        await state.replica.truncate_fully(start)
    state.is_out_of_range = False


def _check_whole(state: PartitionFetchState, damaged: _Damaged) -> None:
    """Raise ApiError if the log would be dropped for one that is damaged as well."""
    offset = damaged.get(_name(state))
    if offset is None or not state.is_corrupt:
        return
    if not state.backoff.failures:
        _log.error(
            "%s: the log here is damaged, and that of the leader is from offset %d on: it is not"
            " fetched anew, as each may have what the other lost",
            state,
            offset,
        )
    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the leader's log is damaged")


def _check(answer: Any) -> None:
    if answer.error_code:
        raise ApiError(error_of(answer.error_code))


def _name(state: PartitionFetchState) -> tuple[str, int]:
    return state.replica.topic, state.replica.index
