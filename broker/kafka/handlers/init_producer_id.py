"""InitProducerId (key 22): an identity for an idempotent or transactional producer.

Version 3 lets a producer name the identity it has, and get the next epoch of it (KIP-360): what it
sent before and is still on its way is then refused, and cannot be stored out of order.

With a transactional id the producer gets the id and the next epoch of whoever used that before
(KIP-98). A transaction that was open is aborted. Before version 4 a producer that was fenced gets
INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED (KIP-588).
"""

from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import StoreUnavailable
from qbus.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from ...authorization import CLUSTER, Operation, ResourceType, transactional_id
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_NONE = -1
_FIRST_WITH_FENCED = 4


async def handle(
    broker: "Broker", context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Give out an id from the broker's block, or the next epoch of the one given."""
    try:
        producer_id, epoch = await _identity(broker, context, request)
    except ApiError as error:
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < _FIRST_WITH_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=code, producer_id=_NONE, producer_epoch=_NONE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


async def _identity(
    broker: "Broker", context: RequestContext, request: InitProducerIdRequest
) -> tuple[int, int]:
    name = request.transactional_id
    if name is not None:
        context.authorize(Operation.WRITE, transactional_id(name))
    elif not context.may_any(Operation.WRITE, ResourceType.TOPIC):  # which suffices (KIP-679)
        context.authorize(Operation.IDEMPOTENT_WRITE, CLUSTER)
    known, epoch = request.producer_id, request.producer_epoch
    if (known == _NONE) != (epoch == _NONE) or known < _NONE or epoch < _NONE:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "producer id and epoch come together or not at all"
        )
    if name is not None:
        expected = None if known == _NONE else (known, epoch)
        return await broker.transactions.initialize(name, request.transaction_timeout_ms, expected)
    try:
        if known == _NONE:
            return await broker.producer_ids.allocate(), 0
        return await broker.producer_ids.bump(known, epoch)
    except StoreUnavailable as error:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
