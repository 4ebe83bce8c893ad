"""DescribeTransactions (key 65): how transactions stand (KIP-664).

A transactional id that the client may not describe, and one that nobody used, are
TRANSACTIONAL_ID_AUTHORIZATION_FAILED and TRANSACTIONAL_ID_NOT_FOUND. Of the partitions only those
are shown that the client may describe.
"""

import asyncio
from typing import TYPE_CHECKING

from qbus.errors import ApiError
from qbus.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

from ...authorization import Operation, topic, transactional_id
from ..context import RequestContext
from ..transaction_peers import by_topic

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each for itself."""
    names = dict.fromkeys(request.transactional_ids)
    states = await asyncio.gather(*(_describe(broker, context, name) for name in names))
    return DescribeTransactionsResponse(transaction_states=states)


async def _describe(broker: "Broker", context: RequestContext, name: str) -> TransactionState:
    try:
        context.authorize(Operation.DESCRIBE, transactional_id(name))
        found = await broker.transactions.describe(name)
    except ApiError as error:
        return TransactionState(transactional_id=name, error_code=error.code)
    return TransactionState(
        transactional_id=name,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[
            TopicData(topic=name, partitions=partitions)
            for name, partitions in by_topic(found.partitions).items()
            if context.may(Operation.DESCRIBE, topic(name))
        ],
    )
