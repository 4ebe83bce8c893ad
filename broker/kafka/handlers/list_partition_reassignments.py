"""ListPartitionReassignments (key 46): which partitions are on the move, and where to (KIP-455).

Naming no topics asks for all. What does not move, or does not exist, is left out of the answer.
``replicas`` are all that are meant to hold the partition until it has moved.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qbus.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

from ...authorization import CLUSTER, Operation
from ...metadata.image import Topic
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


def handle(
    broker: "Broker", context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Answer from memory."""
    context.authorize(Operation.DESCRIBE, CLUSTER)
    topics = broker.metadata.topics
    if request.topics is None:
        found = [_describe(topic, range(len(topic.partitions))) for topic in topics.values()]
    else:
        found = [
            _describe(topics[one.name], one.partition_indexes)
            for one in request.topics
            if one.name in topics
        ]
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=[topic for topic in found if topic.partitions]
    )


def _describe(topic: Topic, indexes: Iterable[int]) -> OngoingTopicReassignment:
    moving = [
        (index, topic.partitions[index])
        for index in dict.fromkeys(indexes)
        if 0 <= index < len(topic.partitions) and topic.partitions[index].is_moving
    ]
    return OngoingTopicReassignment(
        name=topic.name,
        partitions=[
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
            for index, partition in moving
        ],
    )
