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

from ...authorization import Operation, transactional_id
from ...regular_expression import RegularExpression
from ...transaction import State
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_STATES: Final = {state.label: state for state in State}


def handle(
    broker: "Broker", context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List what passes all filters. States that nobody knows are named in the answer."""
    unknown = [name for name in request.state_filters if name not in _STATES]
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    try:
        pattern = request.transactional_id_pattern
        matches = RegularExpression(pattern).matches if pattern else None
        found = broker.transactions.listed(
            states, frozenset(request.producer_id_filters), request.duration_filter
        )
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
            if matches is None or matches(one.transactional_id)
            if context.may(Operation.DESCRIBE, transactional_id(one.transactional_id))
        ],
    )
