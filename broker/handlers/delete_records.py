"""DeleteRecords (key 21): move the start of logs forward, up to the high watermark.

Offset -1 stands for the high watermark. An offset below the log's start changes nothing. The
answer's low watermark is where the log starts now: for good, also after a crash. Versions differ
only in their encoding.
"""

import asyncio
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from ..context import RequestContext
from ..replication import Partition

if TYPE_CHECKING:
    from ..broker import Broker

_HIGH_WATERMARK = -1
_UNKNOWN = -1


async def handle(
    broker: "Broker", _context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Move the starts, and answer once that is on stable storage."""
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(broker, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    failed = await asyncio.to_thread(broker.logs.checkpoint_log_starts)
    for directory in failed:
        _refuse(response, {(log.topic, log.partition) for log in dict(directory.logs)})
    return response


def _refuse(response: DeleteRecordsResponse, unstable: set[tuple[str, int]]) -> None:
    """Acknowledge no start that a crash would undo."""
    for topic in response.topics:
        for result in topic.partitions:
            if not result.error_code and (topic.name, result.partition_index) in unstable:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                result.low_watermark = _UNKNOWN


def _delete(
    broker: "Broker", topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index)
    try:
        partition = broker.replicas.leader_of(topic, wanted.partition_index)
        result.low_watermark = _delete_before(partition, wanted.offset)
    except ApiError as error:
        result.error_code = error.code
        result.low_watermark = _UNKNOWN
    return result


def _delete_before(partition: Partition, offset: int) -> int:
    """Delete the records below ``offset``; the log's start then.

    Raises:
        ApiError: OFFSET_OUT_OF_RANGE, or the log's directory failed.
    """
    high_watermark = partition.high_watermark
    if offset == _HIGH_WATERMARK:
        offset = high_watermark
    if not 0 <= offset <= high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} can be deleted up to {high_watermark}"
        )
    return partition.log.delete_records_before(offset)
