"""FindCoordinator (key 10): which broker coordinates a group, or a transactional id.

Version 4 asks for many at once (KIP-699); before it, the error message of a successful answer is
NONE, as in Kafka. Share groups have the same coordinators, and are asked for as groups. A
transactional id belongs to the leader of a partition of ``__transaction_state``; that is made when
somebody asks for the first one. Key type 2, of Kafka's brokers among themselves, is
INVALID_REQUEST: the state of share groups lies in the partitions.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

from ...authorization import Operation, group, transactional_id
from ...metadata.image import BrokerInfo
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_GROUP: Final = 0
_TRANSACTION: Final = 1


async def handle(
    broker: "Broker", context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Name the broker that each belongs to, whether or not anybody has used it."""
    if context.api_version >= 4:
        keys = request.coordinator_keys
        found = (_find(broker, context, key, request.key_type) for key in keys)
        return FindCoordinatorResponse(coordinators=await asyncio.gather(*found))
    one = await _find(broker, context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or ErrorCode(one.error_code).name,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(broker: "Broker", context: RequestContext, key: str, key_type: int) -> Coordinator:
    nobody = Coordinator(key=key, node_id=-1, port=-1)
    try:
        coordinator = await _coordinator(broker, context, key, key_type)
    except ApiError as error:
        nobody.error_code, nobody.error_message = error.code, error.message
        return nobody
    node = None if coordinator is None else coordinator.node(context.peer.listener.name)
    if node is None:
        nobody.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return nobody
    return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port)


async def _coordinator(
    broker: "Broker", context: RequestContext, key: str, key_type: int
) -> BrokerInfo | None:
    if key_type == _TRANSACTION:
        context.authorize(Operation.DESCRIBE, transactional_id(key))
        return await broker.transactions.coordinator(key)
    if key_type != _GROUP:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"there are coordinators of groups (0) and transactions (1), not of type {key_type}",
        )
    context.authorize(Operation.DESCRIBE, group(key))
    return await broker.groups.find_coordinator(key)
