"""EndGroupTransaction (key 10102, Qbus's own): a transaction's end, for the offsets of a group.

It is for brokers: a transaction's coordinator tells the coordinators of groups whose offsets are in
the metadata store. What the transaction brought counts from now on, or is dropped; repeated, it
changes nothing.
"""

from typing import TYPE_CHECKING

from qbus.errors import ApiError
from qbus.wire.messages.end_group_transaction import (
    EndGroupTransactionRequest,
    EndGroupTransactionResponse,
)

from ...authorization import CLUSTER, Operation
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: EndGroupTransactionRequest
) -> EndGroupTransactionResponse:
    """End the transaction in the group, or say why not now."""
    context.authorize(Operation.CLUSTER_ACTION, CLUSTER)
    try:
        await broker.groups.end_transaction(
            request.group_id,
            request.producer_id,
            request.producer_epoch,
            committed=request.committed,
        )
    except ApiError as error:
        return EndGroupTransactionResponse(error_code=error.code, error_message=error.message)
    return EndGroupTransactionResponse()
