"""AddOffsetsToTxn (key 25): a group whose offsets a transaction is going to commit (KIP-98).

Where offsets are in ``__consumer_offsets``, the group's partition of that becomes a part of the
transaction; where they are in the metadata store, the group itself does. Before version 2 a fenced
producer gets INVALID_PRODUCER_EPOCH (KIP-588).
"""

from typing import TYPE_CHECKING

from qbus.errors import ApiError
from qbus.names import OFFSETS_TOPIC
from qbus.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

from ...authorization import Operation, group, transactional_id
from ..context import RequestContext
from .add_partitions_to_txn import told_to_producer

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Make the group a part of the transaction."""
    name, group_id = request.transactional_id, request.group_id
    try:
        context.authorize(Operation.WRITE, transactional_id(name))
        context.authorize(Operation.READ, group(group_id))
        producer = request.producer_id, request.producer_epoch
        index = broker.groups.offsets_partition(group_id)
        if index is None:
            await broker.transactions.add(name, producer, groups=[group_id])
        else:
            await broker.transactions.add(name, producer, [(OFFSETS_TOPIC, index)])
    except ApiError as error:
        return AddOffsetsToTxnResponse(error_code=told_to_producer(error.code, context.api_version))
    return AddOffsetsToTxnResponse()
