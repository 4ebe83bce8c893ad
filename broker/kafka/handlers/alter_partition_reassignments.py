"""AlterPartitionReassignments (key 45): move partitions to other brokers, or stop that (KIP-455).

Replicas name where a partition shall be, the preferred leader first; null stops a move that goes
on, NO_REASSIGNMENT_IN_PROGRESS if none does. A move that is asked for while another goes on takes
its place. The answer comes when the move has begun. Version 1 may forbid that the number of
replicas changes (KIP-860): INVALID_REPLICATION_FACTOR. A partition that comes twice is
INVALID_REQUEST.
"""

from collections import Counter
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

from ...authorization import CLUSTER, Operation
from ...controller import Reassignment
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_TWICE = ApiError(ErrorCode.INVALID_REQUEST, "the partition comes twice")


async def handle(
    broker: "Broker", context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin, or stop, each move for itself."""
    if not context.allows(Operation.ALTER, CLUSTER):
        return _deny(request)
    times = Counter((one.name, p.partition_index) for one in request.topics for p in one.partitions)
    targets: dict[str, dict[int, list[int] | None]] = {topic.name: {} for topic in request.topics}
    for topic in request.topics:
        for partition in topic.partitions:
            if times[topic.name, partition.partition_index] == 1:
                targets[topic.name][partition.partition_index] = partition.replicas
    wanted = [Reassignment(name, some) for name, some in targets.items()]
    decided = await broker.controller.reassign(
        wanted, may_change_factor=request.allow_replication_factor_change
    )
    outcomes = {
        (one.topic, index): error
        for one, some in zip(wanted, decided, strict=True)
        for index, error in some.items()
    }
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=name,
                partitions=[
                    _answer(index, outcomes.get((name, index), _TWICE))
                    for topic, index in times
                    if topic == name
                ],
            )
            for name in targets
        ],
    )


def _deny(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    """Refuse as a whole and for each partition, as Kafka does."""
    error = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_answer(one.partition_index, error) for one in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _answer(index: int, error: ApiError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index,
        error_code=error.code if error else ErrorCode.NONE,
        error_message=error.message if error else None,
    )
