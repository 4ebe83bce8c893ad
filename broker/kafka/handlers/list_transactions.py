"""ListTransactions (key 66): the transactional ids that this broker coordinates (KIP-664).

Filters by state and producer id; version 1 by how long a transaction is open (KIP-994); version 2
by a regular expression that the whole transactional id matches (KIP-1152), which is RE2's.
"""

from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError
from qbus.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

from ...authorization import Operation, ResourceType, transactional_id
from ...regular_expression import find_matching
from ...transaction import State, Transaction
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_STATES: Final = {state.label: state for state in State}


async def handle(
    broker: "Broker", context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List what passes all filters. Unknown states are named in the response."""
    unknown = [name for name in request.state_filters if name not in _STATES]
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    try:
        listed = broker.transactions.listed(
            states, frozenset(request.producer_id_filters), request.duration_filter
        )
        found = [one for one in listed if _is_visible(context, one)]
        pattern = request.transactional_id_pattern
        if pattern and context.may_any(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID):
            matching = await find_matching(pattern, [one.transactional_id for one in found])
            found = [one for one in found if one.transactional_id in matching]
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code)
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.label,
            )
            for one in found
        ],
    )


def _is_visible(context: RequestContext, transaction: Transaction) -> bool:
    return context.may(Operation.DESCRIBE, transactional_id(transaction.transactional_id))
