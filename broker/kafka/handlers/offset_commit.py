"""OffsetCommit (key 8): a group's positions, stored before they are acknowledged.

Versions 2 to 4 may set a retention; version 6 tells leader epochs, 7 static members. Version 9
answers GROUP_ID_NOT_FOUND where older ones get ILLEGAL_GENERATION, and STALE_MEMBER_EPOCH to
members of groups of the consumer protocol (KIP-848). Version 10 names topics by id. Generation -1
is a commit without membership, which only an empty group takes.
"""

from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from ...authorization import Operation, group
from ...authorization import topic as topic_resource
from ...group import Offset, TopicPartition
from ...turns import Pace, next_turn
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker
    from ...metadata.image import Topic

PARTITIONS_AT_ONCE: Final = 2000
_OF_TOPIC: Final = 5  # a topic costs as much as so many partitions


async def handle(
    broker: "Broker", context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    """Commit what can be committed; every partition has an answer of its own."""
    if not context.allows(Operation.READ, group(request.group_id)):
        denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return OffsetCommitResponse(topics=[_refuse(topic, denied) for topic in request.topics])
    offsets: dict[TopicPartition, Offset] = {}
    pace = Pace(PARTITIONS_AT_ONCE)
    answers = [await _take(broker, context, topic, offsets, pace) for topic in request.topics]
    error = ErrorCode.NONE
    if offsets or not request.topics:
        error = await _commit(broker, context.api_version, request, offsets)
    if error:
        for partition in (partition for answer in answers for partition in answer.partitions):
            partition.error_code = partition.error_code or error
    return OffsetCommitResponse(topics=answers)


def _refuse(wanted: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=wanted.name,
        topic_id=wanted.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
            for one in wanted.partitions
        ],
    )


async def _take(
    broker: "Broker",
    context: RequestContext,
    wanted: OffsetCommitRequestTopic,
    offsets: dict[TopicPartition, Offset],
    pace: Pace,
) -> OffsetCommitResponseTopic:
    """Add what can be committed to ``offsets``, and answer for the rest."""
    by_id = context.api_version >= 10
    topics, by_ids = broker.metadata.topics, broker.metadata.topics_by_id
    topic = by_ids.get(wanted.topic_id) if by_id else topics.get(wanted.name)
    answer = OffsetCommitResponseTopic(name=wanted.name, topic_id=wanted.topic_id)
    refused = ErrorCode.NONE
    if topic is None and by_id:
        refused = ErrorCode.UNKNOWN_TOPIC_ID
    elif not context.allows(Operation.READ, topic_resource(topic.name if topic else wanted.name)):
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif topic is None:
        refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    limit = broker.config.offset_metadata_max_bytes
    if pace.is_over(_OF_TOPIC):
        await next_turn()
    for partition in wanted.partitions:
        if pace.is_over():
            await next_turn()
        error, index = refused, partition.partition_index
        if topic is not None and not refused:
            error = refusal(topic, index, partition.committed_metadata, limit)
            if not error:
                offsets[topic.name, index] = Offset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    topic_id=topic.id,
                )
        answer.partitions.append(
            OffsetCommitResponsePartition(partition_index=index, error_code=error)
        )
    return answer


def refusal(topic: "Topic | None", index: int, metadata: str | None, limit: int) -> ErrorCode:
    """Why the offset of one partition cannot be committed, or NONE.

    ``limit``: how many bytes of ``metadata`` are taken.
    """
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if metadata and len(metadata.encode()) > limit:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


async def _commit(
    broker: "Broker",
    version: int,
    request: OffsetCommitRequest,
    offsets: dict[TopicPartition, Offset],
) -> ErrorCode:
    try:
        await broker.groups.commit(
            request.group_id,
            offsets,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            retention_ms=request.retention_time_ms,
        )
    except ApiError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND and version < 9:
            return ErrorCode.ILLEGAL_GENERATION
        return error.code
    return ErrorCode.NONE
