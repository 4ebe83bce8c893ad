"""DescribeTopicPartitions (key 75): topics' partitions, a page at a time (KIP-966).

Topics come in the order of their names; naming none asks for all. A page holds at most
``response_partition_limit`` partitions and says where the next one starts. A topic that does not
exist is UNKNOWN_TOPIC_OR_PARTITION, and is never created by being asked for. Beside the replicas in
sync there are those that could lead although they are not, and, once there are none of either, the
one that was in sync last.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from qbus.errors import ApiError, ErrorCode
from qbus.metadata.znodes import NO_LEADER
from qbus.names import is_topic_name
from qbus.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

from ...authorization import Operation
from ...authorization import topic as topic_resource
from ...metadata.image import PartitionInfo, Topic
from ...turns import Pace, begun, next_turn
from ..context import RequestContext
from .topic_partitions import is_internal, view

if TYPE_CHECKING:
    from ...broker import Broker

MAX_PARTITIONS = 2000  # of one page, as in Kafka


def handle(
    broker: "Broker", context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse | Coroutine[Any, Any, DescribeTopicPartitionsResponse]:
    """Answer one page from memory.

    Raises:
        ApiError: INVALID_REQUEST, the cursor points nowhere.
    """
    return begun(_answer(broker, context, request))


async def _answer(
    broker: "Broker", context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    start = request.cursor or Cursor()
    if start.partition_index < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a cursor's partition is not negative")
    left = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    response, pace = DescribeTopicPartitionsResponse(), Pace()
    wanted = {topic.name for topic in request.topics}
    for name in sorted(wanted or broker.metadata.topics):
        if pace.is_over():
            await next_turn()
        if name < start.topic_name:
            continue
        first = start.partition_index if name == start.topic_name else 0
        if not context.allows(Operation.DESCRIBE, topic_resource(name)):
            if not wanted:
                continue
            response.topics.append(_refuse(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        topic = broker.metadata.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        page = topic.partitions[first : first + left]
        response.topics.append(_describe(broker, context, topic, first, page))
        left -= len(page)
        if first + len(page) < len(topic.partitions):
            end = first + len(page)
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return response


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _refuse(name, code if is_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION)


def _refuse(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, is_internal=is_internal(name)
    )


def _describe(
    broker: "Broker",
    context: RequestContext,
    topic: Topic,
    first: int,
    page: tuple[PartitionInfo, ...],
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index, partition in enumerate(page, first):
        error, leader, offline = view(broker.metadata, topic, index, context.peer.listener.name)
        last = partition.last_in_sync
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=[] if last == NO_LEADER else [last],
                offline_replicas=offline,
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=context.authorized_operations(topic_resource(topic.name)),
    )
