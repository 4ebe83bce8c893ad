"""DescribeShareGroupOffsets (key 90): where share groups begin, and how much they have to do.

All before the start offset is done. The coordinator asks the partitions' leaders. Version 1 tells
the lag (KIP-1226): how many records are not done, whether or not they are given out.
"""

from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from qbus.wire.messages.queue_offsets import PartitionResponse

from ...authorization import Operation
from ...authorization import group as group_resource
from ...authorization import topic as topic_resource
from ..context import RequestContext
from ..queue_leaders import Action, by_topic

if TYPE_CHECKING:
    from ...broker import Broker

_NONE = -1


async def handle(
    broker: "Broker", context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Describe each group for itself."""
    unknown = await broker.shares.unknown(wanted.group_id for wanted in request.groups)
    return DescribeShareGroupOffsetsResponse(
        groups=[
            await _describe(broker, context, wanted, is_unknown=wanted.group_id in unknown)
            for wanted in request.groups
        ]
    )


async def _describe(
    broker: "Broker",
    context: RequestContext,
    wanted: DescribeShareGroupOffsetsRequestGroup,
    *,
    is_unknown: bool,
) -> DescribeShareGroupOffsetsResponseGroup:
    group = wanted.group_id
    result = DescribeShareGroupOffsetsResponseGroup(group_id=group)
    try:
        context.authorize(Operation.DESCRIBE, group_resource(group))
        if is_unknown or not await broker.shares.exists(group):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found.")
        if wanted.topics is None:
            answers = await broker.queue_leaders.ask_all(Action.DESCRIBE, group)
            names = {name for name, _ in answers}
            hidden = {
                name for name in names if not context.may(Operation.DESCRIBE, topic_resource(name))
            }
            answers = {place: one for place, one in answers.items() if place[0] not in hidden}
            refused = []
        else:
            names = {topic.topic_name for topic in wanted.topics}
            refused = sorted(name for name in names if not _may_describe(context, name))
            places = {
                (topic.topic_name, index): _NONE
                for topic in wanted.topics
                if topic.topic_name not in refused
                for index in topic.partitions
            }
            answers = await broker.queue_leaders.ask(Action.DESCRIBE, group, places)
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    result.topics = [
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=_id_of(broker, name),
            partitions=[_partition(one) for one in partitions],
        )
        for name, partitions in by_topic(answers).items()
    ]
    for topic in wanted.topics or ():
        if topic.topic_name in refused:
            result.topics.append(_refused(topic.topic_name, topic.partitions))
    return result


def _may_describe(context: RequestContext, topic: str) -> bool:
    return context.allows(Operation.DESCRIBE, topic_resource(topic))


def _id_of(broker: "Broker", name: str) -> bytes:
    topic = broker.metadata.topics.get(name)
    return bytes(16) if topic is None else topic.id


def _partition(answer: PartitionResponse) -> DescribeShareGroupOffsetsResponsePartition:
    is_known = answer.start_offset != _NONE
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=answer.partition_index,
        start_offset=answer.start_offset,
        leader_epoch=max(answer.leader_epoch, 0),
        lag=answer.length + answer.in_flight + answer.delayed if is_known else _NONE,
        error_code=answer.error_code,
        error_message=answer.error_message,
    )


def _refused(name: str, indexes: list[int]) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=_NONE,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
            for index in indexes
        ],
    )
