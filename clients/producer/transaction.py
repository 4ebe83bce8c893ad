"""Where a transactional producer stands. Pure: it learns what happened and says what may be done.

A transaction is *started* once its coordinator or a partition may know of it; one that is not needs
no end. With transaction version 1, the coordinator is told of a partition before the first batch
goes there; with version 2 (KIP-890) the partition's leader tells it.
"""

from collections.abc import Callable, Iterable
from enum import Enum

from qbus.errors import ApiError, ErrorCode

from ..errors import ProducerFenced, TransactionAborted, TransactionFailed
from ..types import TopicPartition
from .batch import ProducerIdentity

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Another producer has the transactional id, or the coordinator has ended the transaction: only the
coordinator knows which.
"""
_FATAL = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)


class Phase(Enum):
    """What a transactional producer is doing."""

    NEW = "has no producer id yet"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    FAILED = "a transaction is open that can only be aborted"
    COMMITTING = "a transaction is being committed"
    ABORTING = "a transaction is being aborted"
    HANDED_OVER = "the transaction was handed over, to be ended by others"
    BROKEN = "nothing more can be done"


class TransactionState:
    """The phase of a producer, its identity, and what its open transaction has.

    number: counts transactions, so that late answers to an earlier one can be told.
    is_v2: the coordinator raises the producer's epoch at each end, and leaders add partitions.
    failure: why the transaction cannot be committed, or why nothing can be done any more.
    on_failed: called when the open transaction can only be aborted.
    """

    def __init__(self) -> None:
        self.phase = Phase.NEW
        self.identity: ProducerIdentity | None = None
        self.number = 0
        self.is_v2 = False
        self.is_started = False
        self.failure: TransactionAborted | TransactionFailed | None = None
        self.groups: set[str] = set()
        self.on_failed: Callable[[], object] = lambda: None
        self._partitions: set[TopicPartition] = set()

    def begin(self) -> None:
        """Open a transaction."""
        self.number += 1
        self.phase = Phase.OPEN
        self.failure = None

    def admits(self, partition: TopicPartition) -> bool:
        """Whether a batch may go to ``partition`` now; False: the coordinator must hear of it
        first.
        """
        if self.is_v2:
            self.is_started = True
            return True
        return partition in self._partitions

    def added(self, partitions: Iterable[TopicPartition]) -> None:
        """The coordinator knows that the transaction writes to ``partitions``."""
        self._partitions.update(partitions)

    def lost(self, error: Exception) -> None:
        """Something of the open transaction failed for good: it can only be aborted."""
        if self.phase not in {Phase.OPEN, Phase.COMMITTING}:
            return
        self.phase = Phase.FAILED
        self.failure = aborted(error)
        self.on_failed()

    def ended(self) -> None:
        """The transaction is over."""
        self.phase = Phase.READY
        self.is_started = False
        self.groups.clear()
        self._partitions.clear()

    def broken(self, error: ApiError) -> TransactionFailed:
        """Nothing more can be done; return the error that says so from now on."""
        kind = ProducerFenced if error.code in FENCED else TransactionFailed
        failure = kind(error.code, _explained(error))
        failure.__cause__ = error
        self.phase = Phase.BROKEN
        self.failure = failure
        return failure


def aborted(error: Exception) -> TransactionAborted:
    """Return what users are told when ``error`` keeps a transaction from being committed."""
    code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
    failure = TransactionAborted(code, f"the transaction cannot be committed: {error}")
    failure.__cause__ = error
    return failure


def is_fatal(error: ApiError) -> bool:
    """Whether an error of the coordinator will be the answer to everything."""
    return error.code in _FATAL


def _explained(error: ApiError) -> str:
    if error.code not in FENCED:
        return str(error)
    return (
        "another producer with the same transactional id has begun, or a transaction took longer"
        f" than its time-out ({error.code.name})"
    )
