"""FindCoordinator (key 10): which broker coordinates a group.

Version 4 asks for many at once (KIP-699). Share groups have the same coordinators, and are asked
for as groups. Transactions are not served: asking for their coordinator is answered
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, one of the two errors at which librdkafka does not ask for
ever (``rd_kafka_txn_handle_FindCoordinator``). Key type 2, of Kafka's brokers among themselves, is
INVALID_REQUEST: the state of share groups lies in the partitions.
"""

from typing import TYPE_CHECKING, Final

from qbus.errors import ErrorCode
from qbus.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

from ...authorization import Operation, group
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_GROUP: Final = 0
_TRANSACTION: Final = 1


def handle(
    broker: "Broker", context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Name the broker that each group belongs to, whether or not there is such a group."""
    if context.api_version >= 4:
        keys = request.coordinator_keys
        found = [_find(broker, context, key, request.key_type) for key in keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _find(broker, context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(broker: "Broker", context: RequestContext, key: str, key_type: int) -> Coordinator:
    nobody = Coordinator(key=key, node_id=-1, port=-1)
    if key_type == _TRANSACTION:
        nobody.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        nobody.error_message = "this broker does not serve transactions"
        return nobody
    if key_type != _GROUP:
        nobody.error_code = ErrorCode.INVALID_REQUEST
        nobody.error_message = f"there are coordinators of groups (0), not of type {key_type}"
        return nobody
    if not context.allows(Operation.DESCRIBE, group(key)):
        nobody.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return nobody
    coordinator = broker.groups.coordinator(key)
    if coordinator is None:
        nobody.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return nobody
    return Coordinator(
        key=key, node_id=coordinator.id, host=coordinator.host, port=coordinator.port
    )
