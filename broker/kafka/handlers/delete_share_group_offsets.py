"""DeleteShareGroupOffsets (key 92): forget what a share group without members did in topics.

It is as new to them then. A topic that it did nothing in is UNKNOWN_TOPIC_OR_PARTITION.
"""

from typing import TYPE_CHECKING

from qbus.errors import ErrorCode
from qbus.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

from ...authorization import Operation
from ...authorization import group as group_resource
from ...authorization import topic as topic_resource
from ..context import RequestContext
from ..queue_leaders import Action, by_topic, first_error

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Forget each topic for itself."""
    group = request.group_id
    context.authorize(Operation.DELETE, group_resource(group))
    await broker.shares.check_empty(group)
    names = dict.fromkeys(topic.topic_name for topic in request.topics)
    refused = {name for name in names if not context.allows(Operation.READ, topic_resource(name))}
    known = await broker.queue_leaders.ask_all(Action.DESCRIBE, group)
    wanted = {place: -1 for place in known if place[0] in names and place[0] not in refused}
    deleted = by_topic(await broker.queue_leaders.ask(Action.DELETE, group, wanted))
    results = []
    for name in names:
        topic = None if name in refused else broker.metadata.topics.get(name)
        result = DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=bytes(16) if topic is None else topic.id
        )
        if name in refused:
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name not in deleted:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            result.error_message = f"the group {group} did nothing in the topic {name!r}"
        else:
            result.error_code, result.error_message = first_error(deleted[name])
        results.append(result)
    return DeleteShareGroupOffsetsResponse(responses=results)
