"""QueueOffsets (key 10101, Qbus's own): what a share group did in partitions that are led here.

Describing is for whoever may describe the group, and the topics, if any are named. The rest is for
brokers: a group's coordinator sees to it that the group has no members.
"""

from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.queue_offsets import (
    QueueOffsetsRequest,
    QueueOffsetsResponse,
    TopicResponse,
)

from ...authorization import CLUSTER, Operation
from ...authorization import group as group_resource
from ...authorization import topic as topic_resource
from ..context import RequestContext
from ..queue_leaders import Action, Place, by_topic

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: QueueOffsetsRequest
) -> QueueOffsetsResponse:
    """Describe, set the start, or forget."""
    if request.action not in Action.__members__.values():
        raise ApiError(ErrorCode.INVALID_REQUEST)
    action = Action(request.action)
    if not context.may(Operation.CLUSTER_ACTION, CLUSTER):
        if action is not Action.DESCRIBE:
            context.authorize(Operation.CLUSTER_ACTION, CLUSTER)
        context.authorize(Operation.DESCRIBE, group_resource(request.group_id))
        for topic in request.topics or ():
            context.authorize(Operation.DESCRIBE, topic_resource(topic.name))
    wanted: dict[Place, int] | None = None
    if request.topics is not None:
        wanted = {
            (topic.name, one.partition_index): one.start_offset
            for topic in request.topics
            for one in topic.partitions
        }
    answers = await broker.queue_leaders.local(action, request.group_id, wanted)
    if context.is_restricted and wanted is None:
        answers = {
            place: answer
            for place, answer in answers.items()
            if context.may(Operation.DESCRIBE, topic_resource(place[0]))
        }
    return QueueOffsetsResponse(
        topics=[
            TopicResponse(name=name, partitions=partitions)
            for name, partitions in by_topic(answers).items()
        ]
    )
