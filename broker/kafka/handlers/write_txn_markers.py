"""WriteTxnMarkers (key 27): a coordinator has the leaders of partitions end transactions (KIP-98).

A marker is answered once all in-sync replicas have it, or after 30 seconds with REQUEST_TIMED_OUT:
then the coordinator asks again. Each partition has a result of its own. Version 2 adds the version
of transactions: from 2 on a marker has the epoch that its producer has afterwards (KIP-1228), and
is written once however often it is sent.

An administrator who ends a transaction that hangs sends the same to the leader, in version 1.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from qbus.errors import ErrorCode
from qbus.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ...authorization import CLUSTER, Operation
from ...partition.purgatory import Delayed
from ...transaction import Marker, MarkerAppends
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


def handle(
    broker: "Broker", context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Delayed[WriteTxnMarkersResponse]:
    """Append the markers, and answer once they are acknowledged. Later requests need not wait."""
    markers = [_marker(marker) for marker in request.markers]
    may_alter = context.may(Operation.ALTER, CLUSTER)
    if not context.allows(Operation.ALTER if may_alter else Operation.CLUSTER_ACTION, CLUSTER):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _response(request, [denied for one in markers for _ in one.partitions])
    delayed: Delayed[WriteTxnMarkersResponse] = Delayed(asyncio.get_running_loop())
    appends = MarkerAppends(lambda codes: delayed.answer(_response(request, codes)))
    appends.append(broker.replicas, markers)
    return delayed.result() if delayed.done() else delayed


def _marker(marker: WritableTxnMarker) -> Marker:
    return Marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
        tuple((topic.name, index) for topic in marker.topics for index in topic.partition_indexes),
    )


def _response(
    request: WriteTxnMarkersRequest, codes: Iterable[ErrorCode]
) -> WriteTxnMarkersResponse:
    """``codes``: those of all partitions of all markers, in order."""
    following = iter(codes)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=next(following)
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
