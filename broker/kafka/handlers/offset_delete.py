"""OffsetDelete (key 47): delete some of a group's offsets (KIP-496).

Of topics that a group's consumers subscribe to they are kept: GROUP_SUBSCRIBED_TO_TOPIC. A group of
another kind has to be empty. There is one version.
"""

from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from ...authorization import Operation, group
from ...authorization import topic as topic_resource
from ...group import TopicPartition
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Delete what may be deleted; every partition has an answer of its own."""
    context.authorize(Operation.DELETE, group(request.group_id))
    denied = {
        name
        for name in {topic.name for topic in request.topics}
        if not context.allows(Operation.READ, topic_resource(name))
    }
    wanted = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
        if topic.name not in denied and _exists(broker, topic.name, partition.partition_index)
    ]
    try:
        outcome = await broker.groups.delete_offsets(request.group_id, wanted)
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return OffsetDeleteResponse(
        topics=[_answer(topic, outcome, denied) for topic in request.topics]
    )


def _exists(broker: "Broker", name: str, index: int) -> bool:
    topic = broker.metadata.topics.get(name)
    return topic is not None and 0 <= index < len(topic.partitions)


def _answer(
    topic: OffsetDeleteRequestTopic, outcome: dict[TopicPartition, ErrorCode], denied: set[str]
) -> OffsetDeleteResponseTopic:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic.name in denied:
        unknown = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [
        OffsetDeleteResponsePartition(
            partition_index=partition.partition_index,
            error_code=outcome.get((topic.name, partition.partition_index), unknown),
        )
        for partition in topic.partitions
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)
