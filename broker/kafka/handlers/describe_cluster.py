"""DescribeCluster (key 60): the cluster's id, its brokers and its controller (KIP-700).

Version 1 asks for brokers or for controllers (KIP-919): brokers know of brokers only, so that the
other is MISMATCHED_ENDPOINT_TYPE. Version 2 asks for fenced brokers as well; there are none, since
a broker that is registered serves.
"""

from typing import TYPE_CHECKING

from qbus.errors import ErrorCode
from qbus.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

from ...authorization import CLUSTER, Operation
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_BROKERS, _CONTROLLERS = 1, 2


def handle(
    broker: "Broker", context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Answer from memory."""
    if request.endpoint_type != _BROKERS:
        return _refuse(request.endpoint_type)
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=live.id, host=live.host, port=live.port, rack=live.rack)
            for live in broker.metadata.nodes(context.peer.listener.name)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations_on_cluster(context)
    return response


def operations_on_cluster(context: RequestContext) -> int:
    """What the client may do to the cluster, as bits; none if it may not describe it (KIP-430)."""
    may_describe = context.may(Operation.DESCRIBE, CLUSTER)
    return context.authorized_operations(CLUSTER) if may_describe else 0


def _refuse(endpoint_type: int) -> DescribeClusterResponse:
    mismatched = endpoint_type == _CONTROLLERS
    return DescribeClusterResponse(
        error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
        if mismatched
        else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        error_message=f"only brokers (1) are described here, not endpoints of type {endpoint_type}",
        endpoint_type=_BROKERS,
    )
