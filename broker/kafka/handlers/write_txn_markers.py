"""WriteTxnMarkers (key 27): a coordinator has the leaders of partitions end transactions (KIP-98).

A marker is answered once all in-sync replicas have it, or after 30 seconds with REQUEST_TIMED_OUT:
then the coordinator asks again. Each partition has a result of its own. Version 2 adds the version
of transactions: from 2 on a marker has the epoch that its producer has afterwards (KIP-1228), and
is written once however often it is sent.

An administrator who ends a transaction that hangs sends the same to the leader, in version 1.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
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
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_TIMEOUT_S: Final = 30.0
_OLDEST_VERSION: Final = 1


def handle(
    broker: "Broker", context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Delayed[WriteTxnMarkersResponse]:
    """Append the markers, and answer once they are acknowledged. Later requests need not wait."""
    may_alter = context.may(Operation.ALTER, CLUSTER)
    if not context.allows(Operation.ALTER if may_alter else Operation.CLUSTER_ACTION, CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return WriteTxnMarkersResponse(
            markers=[
                _results(marker, lambda _topic, index: _result(index, code))
                for marker in request.markers
            ]
        )
    acknowledged = _Markers()
    results = _append(broker, request.markers, acknowledged)
    if acknowledged.done():
        return WriteTxnMarkersResponse(markers=results)
    delayed: Delayed[WriteTxnMarkersResponse] = Delayed(asyncio.get_running_loop())
    acknowledged.future.add_done_callback(
        lambda _: delayed.answer(WriteTxnMarkersResponse(markers=results))
    )
    return delayed


def _append(
    broker: "Broker", markers: Sequence[WritableTxnMarker], acknowledged: "_Markers"
) -> list[WritableTxnMarkerResult]:
    results = [
        _results(marker, partial(_write, broker, marker, acknowledged)) for marker in markers
    ]
    acknowledged.is_whole()
    return results


def _write(
    broker: "Broker", marker: WritableTxnMarker, acknowledged: "_Markers", topic: str, index: int
) -> WritableTxnMarkerPartitionResult:
    result = _result(index, ErrorCode.NONE)
    try:
        partition = broker.replicas.leader_of(topic, index)
        info = partition.end_transaction(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            committed=marker.transaction_result,
            version=max(marker.transaction_version, _OLDEST_VERSION),
        )
    except ApiError as error:
        result.error_code = error.code
        return result
    if partition.high_watermark <= info.last_offset:
        acknowledged.expect(result)
        partition.when_acknowledged(info.last_offset + 1, acknowledged, result)
    return result


def _results(
    marker: WritableTxnMarker, make: Callable[[str, int], WritableTxnMarkerPartitionResult]
) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[make(topic.name, index) for index in topic.partition_indexes],
            )
            for topic in marker.topics
        ],
    )


def _result(index: int, code: ErrorCode) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)


class _Markers:
    """The markers of one request that wait to be acknowledged.

    The results of those say REQUEST_TIMED_OUT until they are; so when the time is up, they are
    right as they stand.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = loop.create_future()
        self._timer = loop.call_later(_TIMEOUT_S, self._finish)
        self._waiting = 1  # for the last one

    def done(self) -> bool:
        """Whether nobody waits any longer."""
        return self.future.done()

    def expect(self, result: WritableTxnMarkerPartitionResult) -> None:
        """Wait for a marker, whose result this is."""
        result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._waiting += 1

    def is_whole(self) -> None:
        """There are no more markers."""
        self._count_down()

    def acknowledged(self, token: object, code: ErrorCode) -> None:
        """The marker whose result is ``token`` is acknowledged (NONE), or never will be."""
        assert isinstance(token, WritableTxnMarkerPartitionResult)
        token.error_code = code
        self._count_down()

    def _count_down(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        if not self.future.done():
            self.future.set_result(None)
