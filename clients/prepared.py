"""Transactions that one process fills and another one ends.

The producer hands its transaction over when all of it is delivered (``Transactions.hand_over``).
Whoever has the few numbers that name it can end it, as often as it takes. It stays open until then,
or until its coordinator aborts it for taking longer than its time-out.
"""

from typing import NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.service.backoff import Backoff
from qbus.wire import ApiKey
from qbus.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

from .errors import TransactionAborted, check
from .net.cluster import Cluster, CoordinatorKind
from .net.retry import retrying
from .net.routing import COORDINATOR_MOVED

LAST_END_OF_V1 = 4
"""From version 5 on, EndTxn raises the producer's epoch (KIP-890)."""

_ENDED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
_FIRST_RETRY_S = 0.02


class PreparedTransaction(NamedTuple):
    """An open transaction, all of which is delivered. ``is_v2`` as in ``TransactionState``."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_v2: bool


async def end_prepared(
    cluster: Cluster, prepared: PreparedTransaction, *, committed: bool, timeout: float
) -> None:
    """Commit or abort ``prepared``, retrying for ``timeout`` seconds; repeating it does no harm.

    Raises :class:`~qbus.clients.TransactionAborted` if it cannot be committed any more, and
    :class:`~qbus.errors.ApiError` for other errors.
    """
    request = EndTxnRequest(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.epoch,
        committed=committed,
    )
    newest = None if prepared.is_v2 else LAST_END_OF_V1
    kind = CoordinatorKind.TRANSACTION

    async def attempt() -> None:
        response: EndTxnResponse = await cluster.ask_coordinator(
            prepared.transactional_id, ApiKey.END_TXN, request, kind=kind, newest=newest
        )
        try:
            check(response.error_code, of=f"transactional id {prepared.transactional_id}")
        except ApiError as error:
            if error.code in COORDINATOR_MOVED:
                cluster.forget_coordinator(prepared.transactional_id, kind)
            raise

    subject = f"the transaction of {prepared.transactional_id}"
    try:
        await retrying(cluster, subject, attempt, timeout, backoff=Backoff(_FIRST_RETRY_S))
    except ApiError as error:
        if error.code not in _ENDED:
            raise
        if committed:
            raise TransactionAborted(
                error.code, f"the transaction of {prepared.transactional_id} is aborted: {error}"
            ) from error
