"""ListOffsets (key 2): the offset of a point in time, or of a place in the log.

The places: -1 the end (the high watermark, or the last stable offset), -2 the start, -3 the
record with the greatest timestamp (version 7 on), -4 the start of what is kept locally, which is
all (8), -5 the end of what lies in tiered storage and -6 the first record that waits to be moved
there, of which there is nothing: -1 (9, 11). A place that a version does not know is
UNSUPPORTED_VERSION.

A timestamp finds the first record that is not older; when there is none, offset and timestamp are
-1, without an error. Version 2 adds the isolation level, 4 leader epochs. Clients see what lies
below the high watermark, consumers of committed records what lies below the last stable offset
(KIP-98); whoever asks as a replica or a debugger (replica id -2), all that is written. Behind the
last visible record there may be hidden batches: a tagged field of Qbus's own asks for the end
behind them.

Where a flush of the leader alone keeps the end back, the answer waits for it, up to
:data:`MAX_WAIT_S`: a record that ``acks=1`` has acknowledged lies before the end, as in Kafka.

A new leader whose high watermark is not yet where it was with the one before does not say where the
end is: OFFSET_NOT_AVAILABLE, before version 5 LEADER_NOT_AVAILABLE, have the client ask again
(KIP-207).
"""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from ...authorization import Operation
from ...authorization import topic as topic_resource
from ...partition.acknowledgement import flushed
from ...partition.partition import Partition
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6
_STARTS = (_EARLIEST, _EARLIEST_LOCAL)
_PLACE_SINCE = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_CONSUMER = -1
_FIRST_WITH_NOT_AVAILABLE = 5
_READ_COMMITTED = 1

MAX_WAIT_S: Final = 5.0
"""How long the ends in one answer may wait for flushes, all together."""


async def handle(
    broker: "Broker", context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Answer partition by partition; what has to be looked up in files, in a thread."""
    asked = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    deadline = context.deadline(MAX_WAIT_S)
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            try:
                context.authorize(Operation.DESCRIBE, topic_resource(topic.name))
                if asked[topic.name, wanted.partition_index] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "a partition is asked for twice")
                _check_place(wanted.timestamp, context.api_version)
                lead = (topic.name, wanted.partition_index, wanted.current_leader_epoch)
                partition = broker.replicas.leader_of(*lead)
                if request.replica_id == _CONSUMER and wanted.timestamp not in _STARTS:
                    await flushed(partition, deadline)
                    partition = broker.replicas.leader_of(*lead)
                end = partition.log.log_end_offset
                if request.replica_id == _CONSUMER:
                    end = _end(partition, request)
                    if wanted.timestamp not in _STARTS:
                        _check_high_watermark(partition, context.api_version)
                await _find(partition, wanted.timestamp, end, answer)
            except ApiError as error:
                answer.error_code = error.code
            answers.append(answer)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _end(partition: Partition, request: ListOffsetsRequest) -> int:
    """The offset before which a consumer sees records."""
    committed = request.isolation_level == _READ_COMMITTED
    if request.hidden:
        return partition.last_stable_offset if committed else partition.high_watermark
    return partition.committed_end if committed else partition.visible_end


def _check_place(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _PLACE_SINCE.get(timestamp, version + 1):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


def _check_high_watermark(partition: Partition, version: int) -> None:
    followers = partition.followers
    if followers is not None and not followers.is_high_watermark_current:
        is_known = version >= _FIRST_WITH_NOT_AVAILABLE
        raise ApiError(
            ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
        )


async def _find(
    partition: Partition, timestamp: int, end: int, answer: ListOffsetsPartitionResponse
) -> None:
    if timestamp == _LATEST:
        answer.offset = end
        answer.leader_epoch = partition.leader_epoch
    elif timestamp in _STARTS:
        answer.offset = partition.log.log_start_offset
        answer.leader_epoch = partition.log.epoch_cache.epoch_at(answer.offset)
    elif timestamp == _MAX_TIMESTAMP or timestamp >= 0:
        await _look_up(partition, timestamp, end, answer)


async def _look_up(
    partition: Partition, timestamp: int, end: int, answer: ListOffsetsPartitionResponse
) -> None:
    log = partition.log
    if timestamp == _MAX_TIMESTAMP:
        found = await asyncio.to_thread(log.offset_of_max_timestamp)
    else:
        found = await asyncio.to_thread(log.offset_for_timestamp, timestamp)
    if found is not None and found.offset < end:
        answer.timestamp, answer.offset, answer.leader_epoch = found
