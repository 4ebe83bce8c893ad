"""EndTxn (key 26): commit or abort a transaction (KIP-98).

The answer comes when the decision is stored; partitions are told behind it. A client of version 5
or later gets another epoch, or even another producer id, for its next transaction (KIP-890): what
it sent before and is still under way can then not end a later one. Before version 2 a fenced
producer gets INVALID_PRODUCER_EPOCH (KIP-588).
"""

from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError
from qbus.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

from ...authorization import Operation, transactional_id
from ...transaction import EPOCH_PER_TRANSACTION
from ..context import RequestContext
from .add_partitions_to_txn import told_to_producer

if TYPE_CHECKING:
    from ...broker import Broker

_FIRST_WITH_EPOCHS: Final = 5
_OLD_VERSION: Final = 1


async def handle(
    broker: "Broker", context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse:
    """Decide how the transaction ends."""
    name = request.transactional_id
    gets_epochs = context.api_version >= _FIRST_WITH_EPOCHS
    try:
        context.authorize(Operation.WRITE, transactional_id(name))
        producer_id, epoch = await broker.transactions.end(
            name,
            (request.producer_id, request.producer_epoch),
            commit=request.committed,
            client_version=EPOCH_PER_TRANSACTION if gets_epochs else _OLD_VERSION,
        )
    except ApiError as error:
        return EndTxnResponse(error_code=told_to_producer(error.code, context.api_version))
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
