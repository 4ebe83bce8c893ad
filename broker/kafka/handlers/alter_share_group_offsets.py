"""AlterShareGroupOffsets (key 91): set the start offsets of a share group without members.

Creates the group if it does not exist, so that its offsets can be set before the first consumer.
Deliveries and acknowledgements behind the new start are dropped: those records are delivered again.
"""

from typing import TYPE_CHECKING

from qbus.errors import ErrorCode
from qbus.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

from ...authorization import Operation
from ...authorization import group as group_resource
from ...authorization import topic as topic_resource
from ..context import RequestContext
from ..queue_leaders import Action

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Set the start offset of each partition for itself."""
    group = request.group_id
    context.authorize(Operation.READ, group_resource(group))
    await broker.shares.check_empty(group, create=True)
    wanted = {
        (topic.topic_name, one.partition_index): one.start_offset
        for topic in request.topics
        if context.allows(Operation.READ, topic_resource(topic.topic_name))
        for one in topic.partitions
    }
    answers = await broker.queue_leaders.ask(Action.SET_START, group, wanted)
    topics = []
    for topic in request.topics:
        known = broker.metadata.topics.get(topic.topic_name)
        if not context.may(Operation.READ, topic_resource(topic.topic_name)):
            known = None  # nor is its id told
        result = AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, topic_id=bytes(16) if known is None else known.id
        )
        for one in topic.partitions:
            part = AlterShareGroupOffsetsResponsePartition(partition_index=one.partition_index)
            answer = answers.get((topic.topic_name, one.partition_index))
            if answer is None:
                part.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else:
                part.error_code, part.error_message = answer.error_code, answer.error_message
            result.partitions.append(part)
        topics.append(result)
    return AlterShareGroupOffsetsResponse(responses=topics)
