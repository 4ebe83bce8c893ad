"""OffsetForLeaderEpoch (key 23): where a leader epoch ended (KIP-101, KIP-320).

A client that read up to some offset in some epoch learns whether what it read is still there. An
epoch of which nothing is known is answered -1 and -1; one without records of its own, with the
nearest older one. Version 3 says which replica asks, which makes no difference here.
"""

from typing import TYPE_CHECKING

from qbus.errors import ApiError
from qbus.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

from ...authorization import CLUSTER, Operation
from ...authorization import topic as topic_resource
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


def handle(
    broker: "Broker", context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Look the epochs up in memory."""
    may_all = context.may(Operation.CLUSTER_ACTION, CLUSTER)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _look_up(broker, None if may_all else context, topic.topic, wanted)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _look_up(
    broker: "Broker", context: RequestContext | None, topic: str, wanted: OffsetForLeaderPartition
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition, leader_epoch=-1, end_offset=-1)
    try:
        if context is not None:
            context.authorize(Operation.DESCRIBE, topic_resource(topic))
        partition = broker.replicas.leader_of(topic, wanted.partition, wanted.current_leader_epoch)
    except ApiError as error:
        answer.error_code = error.code
    else:
        answer.leader_epoch, answer.end_offset = partition.end_of_epoch(wanted.leader_epoch)
    return answer
