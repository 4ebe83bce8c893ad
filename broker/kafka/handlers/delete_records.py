"""DeleteRecords (key 21): move the start of logs forward, up to the high watermark.

Offset -1 stands for the high watermark. An offset below the log's start changes nothing. The
answer's low watermark is where the logs start now of all replicas that live: for good, also after a
crash, and whoever leads. If a follower does not do as its leader within the request's time, that is
REQUEST_TIMED_OUT, and will be done later. A mirrored log starts with the delayed records that it
holds back at the latest. The system's own topics keep their records, which coordinators need:
INVALID_TOPIC_EXCEPTION. Versions differ only in their encoding.
"""

import asyncio
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.names import INTERNAL_TOPICS
from qbus.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from ...authorization import Operation
from ...authorization import topic as topic_resource
from ...partition.acknowledgement import flushed
from ...partition.partition import Partition
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_HIGH_WATERMARK = -1
_UNKNOWN = -1


async def handle(
    broker: "Broker", context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Move the starts, and answer once that is on stable storage."""
    deadline = context.deadline(max(request.timeout_ms, 0) / 1000)
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    await _delete(broker, context, topic.name, wanted, deadline)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    failed = await asyncio.to_thread(broker.logs.checkpoint_log_starts)
    for directory in failed:
        _refuse(response, {(log.topic, log.partition) for log in dict(directory.logs)})
    for topic in response.topics:
        for result in topic.partitions:
            if not result.error_code:
                await _await_followers(broker, topic.name, result, deadline)
    return response


async def _await_followers(
    broker: "Broker", topic: str, result: DeleteRecordsPartitionResult, deadline: float
) -> None:
    """Wait until the logs of all replicas that live start no earlier than the leader's."""
    told = asyncio.Event()
    try:
        partition = broker.replicas.leader_of(topic, result.partition_index)
        wanted = result.low_watermark
        partition.start_waiters.add(told)
        try:
            async with asyncio.timeout_at(deadline):
                while (start := _least_start(broker, partition, wanted)) < wanted:
                    told.clear()
                    await told.wait()
                    broker.replicas.leader_of(topic, result.partition_index)
        except TimeoutError:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
            start = _least_start(broker, partition, wanted)
        finally:
            partition.start_waiters.discard(told)
        result.low_watermark = start
    except ApiError as error:
        result.error_code = error.code
        result.low_watermark = _UNKNOWN


def _least_start(broker: "Broker", partition: Partition, own: int) -> int:
    if partition.followers is None:
        return own
    return min(own, partition.followers.least_start(broker.metadata.brokers, own))


def _refuse(response: DeleteRecordsResponse, unstable: set[tuple[str, int]]) -> None:
    """Acknowledge no start that a crash would undo."""
    for topic in response.topics:
        for result in topic.partitions:
            if not result.error_code and (topic.name, result.partition_index) in unstable:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                result.low_watermark = _UNKNOWN


async def _delete(
    broker: "Broker",
    context: RequestContext,
    topic: str,
    wanted: DeleteRecordsPartition,
    deadline: float,
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index)
    try:
        context.authorize(Operation.DELETE, topic_resource(topic))
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is the system's own")
        partition = broker.replicas.leader_of(topic, wanted.partition_index)
        await flushed(partition, deadline)
        partition = broker.replicas.leader_of(topic, wanted.partition_index)
        offset = _offset_to_start_with(partition, wanted.offset)
        start = await broker.delays.clear_before(partition, offset)
        result.low_watermark = partition.delete_records_before(start)
    except ApiError as error:
        result.error_code = error.code
        result.low_watermark = _UNKNOWN
    return result


def _offset_to_start_with(partition: Partition, offset: int) -> int:
    """Where the log is to start.

    Raises:
        ApiError: OFFSET_OUT_OF_RANGE.
    """
    high_watermark = partition.high_watermark
    if offset == _HIGH_WATERMARK:
        offset = high_watermark
    if not 0 <= offset <= high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} can be deleted up to {high_watermark}"
        )
    return offset
