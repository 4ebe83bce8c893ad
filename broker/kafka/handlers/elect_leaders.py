"""ElectLeaders (key 43): have the preferred replica lead, or any that lives (KIP-183, KIP-460).

Version 0 knows preferred elections only. Without partitions, those of the whole cluster are looked
at, and those that need no election are left out of the answer. A partition that is led by its
preferred replica already, or (asked for unclean elections) led at all, is ELECTION_NOT_NEEDED.
"""

from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

from ...authorization import CLUSTER, Operation
from ...controller import ElectionType
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_FIRST_WITH_ERROR: Final = 1


async def handle(
    broker: "Broker", context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Elect for each partition for itself.

    Raises:
        ApiError: INVALID_REQUEST, there is no such election.
    """
    if not context.allows(Operation.ALTER, CLUSTER):
        return _deny(context.api_version, request)
    try:
        kind = ElectionType(request.election_type)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"there is no election of type {request.election_type}"
        ) from None
    wanted = request.topic_partitions
    outcomes = await broker.controller.elect_leaders(
        kind,
        None if wanted is None else [(one.topic, i) for one in wanted for i in one.partitions],
    )
    results: dict[str, ReplicaElectionResult] = {}
    for (topic, index), error in outcomes.items():
        result = results.setdefault(topic, ReplicaElectionResult(topic=topic))
        result.partition_result.append(
            PartitionResult(
                partition_id=index,
                error_code=error.code if error else ErrorCode.NONE,
                error_message=error.message if error else None,
            )
        )
    return ElectLeadersResponse(replica_election_results=list(results.values()))


def _deny(version: int, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Refuse as a whole, where the version can say so, and each partition that is named."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ElectLeadersResponse(
        error_code=code if version >= _FIRST_WITH_ERROR else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=one.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=None)
                    for index in one.partitions
                ],
            )
            for one in request.topic_partitions or ()
        ],
    )
