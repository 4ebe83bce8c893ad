"""The transactions of one partition of ``__transaction_state``: a pure state machine.

Its rules are those of Kafka's coordinator: KIP-98 (transactions), KIP-360 (a producer's epoch
raised), KIP-588 (fencing) and KIP-890 (a new epoch with the end of each transaction, for clients of
transaction version 2).

An operation decides from the state, and returns the records that change it. One that needs a
producer id that nobody has yet answers NEEDS_PRODUCER_ID, and is asked again with one.
"""

import heapq
from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

from qbus.errors import ApiError, ErrorCode

from ..internal_logs import Outcome, Producer
from .records import decode_key, decode_value, encode_key, encode_value
from .state import (
    ENDING,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED,
    OVER,
    Place,
    State,
    Transaction,
)

EPOCH_PER_TRANSACTION: Final = 2
"""The transaction version (KIP-890) since which each transaction's end raises the epoch."""

_SPARE: Final = 64  # entries of the queue of times that need no transaction
_MOST_WRITTEN: Final = 1_000


class Need(Enum):
    """What an operation lacks."""

    NEEDS_PRODUCER_ID = "needs a producer id"


NEEDS_PRODUCER_ID: Final = Need.NEEDS_PRODUCER_ID


class Reason(Enum):
    """Why a transaction ends."""

    ASKED = "its producer asked for it"
    FENCED = "another producer took its transactional id over"
    TIMED_OUT = "it was open for longer than its time-out"


Decided = Callable[[Transaction, Reason], object]


class Participants(NamedTuple):
    """What a transaction writes to: partitions, and offsets of groups in the metadata store."""

    partitions: frozenset[Place] = frozenset()
    groups: frozenset[str] = frozenset()


class TransactionMachine:
    """The transactional ids of one shard.

    ``transactions`` has them, by transactional id. ``ending`` are those whose end is decided and
    not known to all their partitions.
    """

    def __init__(self, expiration_ms: Callable[[], int], decided: Decided) -> None:
        """``expiration_ms``: after this time without a transaction an id is forgotten.

        ``decided`` is called with each transaction whose end was decided, when that is stored for
        good: its partitions are to be told from then on, and not before.
        """
        self.transactions: dict[str, Transaction] = {}
        self.ending: dict[str, None] = {}
        self._expiration_ms = expiration_ms
        self._decided = decided
        self._times: list[tuple[int, str]] = []  # a heap; what is out of date is passed over
        self._written: dict[bytes, Transaction] = {}  # by the records that are to be replayed next

    def get(self, transactional_id: str) -> Transaction | None:
        """A transactional id's state, if it is known."""
        return self.transactions.get(transactional_id)

    # The state

    def replay(
        self,
        key: bytes,
        value: bytes | None,
        offset: int,  # noqa: ARG002 - of a record that says all by itself
        timestamp: int,  # noqa: ARG002 - likewise
        producer: Producer | None,  # noqa: ARG002 - the log has no transactions of its own
    ) -> None:
        """See :class:`~qbus.broker.internal_logs.Machine`. Raises MalformedRecordError."""
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            self.transactions.pop(transactional_id, None)
            self.ending.pop(transactional_id, None)
            return
        written = self._written.pop(value, None)
        if written is None or written.transactional_id != transactional_id:
            written = decode_value(transactional_id, value)
        self._take(transactional_id, written)

    def _take(self, transactional_id: str, transaction: Transaction) -> None:
        self.transactions[transactional_id] = transaction
        if transaction.state in ENDING:
            self.ending[transactional_id] = None
        else:
            self.ending.pop(transactional_id, None)
        due = self._due_ms(transaction)
        if due is not None:
            heapq.heappush(self._times, (due, transactional_id))
        if len(self._times) > 4 * len(self.transactions) + _SPARE:
            self._tidy_times()

    def _record(self, transaction: Transaction) -> tuple[bytes, bytes | None]:
        """The record that says so; when it is replayed it need not be decoded."""
        value = encode_value(transaction)
        if len(self._written) >= _MOST_WRITTEN:
            self._written.clear()
        self._written[value] = transaction
        return encode_key(transaction.transactional_id), value

    def _begun(self, transaction: Transaction) -> Outcome[Producer | Need]:
        return Outcome((transaction.producer_id, transaction.epoch), [self._record(transaction)])

    def marker(self, producer_id: int, epoch: int, *, committed: bool) -> None:
        """See :class:`~qbus.broker.internal_logs.Machine`: this log has no transactions."""

    # Times

    def _due_ms(self, transaction: Transaction) -> int | None:
        """When something is to be done about it, unless its producer does something before."""
        if transaction.state is State.ONGOING:
            return transaction.deadline_ms
        if transaction.state in OVER:
            return transaction.updated_ms + self._expiration_ms()
        return None

    def _tidy_times(self) -> None:
        known = ((self._due_ms(one), one.transactional_id) for one in self.transactions.values())
        self._times = [(due, name) for due, name in known if due is not None]
        heapq.heapify(self._times)

    @property
    def next_tick_ms(self) -> int | None:
        """See :class:`~qbus.broker.internal_logs.Machine`."""
        times = self._times
        while times:
            due, transactional_id = times[0]
            transaction = self.transactions.get(transactional_id)
            actual = None if transaction is None else self._due_ms(transaction)
            if actual == due:
                return due
            heapq.heappop(times)
            if actual is not None:
                heapq.heappush(times, (actual, transactional_id))
        return None

    def tick(self, now_ms: int) -> Outcome[None] | None:
        """Abort what took too long, and forget what nobody has used for long."""
        records: list[tuple[bytes, bytes | None]] = []
        aborted: list[Transaction] = []
        for transaction in self._overdue(now_ms):
            if transaction.state is State.ONGOING:
                aborted.append(_fenced(transaction, NO_EPOCH, now_ms))
            else:
                records.append((encode_key(transaction.transactional_id), None))
        records += map(self._record, aborted)
        if not records:
            return None

        def acknowledged() -> None:
            for transaction in aborted:
                self._decided(transaction, Reason.TIMED_OUT)

        return Outcome(None, records, acknowledged=acknowledged)

    def _overdue(self, now_ms: int) -> Iterator[Transaction]:
        seen: set[str] = set()
        for due, transactional_id in self._times:
            transaction = self.transactions.get(transactional_id)
            if due > now_ms or transaction is None or transactional_id in seen:
                continue
            if self._due_ms(transaction) == due:
                seen.add(transactional_id)
                yield transaction

    # Operations

    def initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        new_producer_id: int | None,
        now_ms: int,
    ) -> Outcome[Producer | Need]:
        """A producer begins, or begins anew: it gets an epoch that fences its predecessors.

        ``expected`` is the producer id and epoch that it has already (KIP-360). A transaction that
        is open is aborted first; the producer has to ask again then.

        Raises ApiError: CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
        """
        known = self.transactions.get(transactional_id)
        if known is None:
            if new_producer_id is None:
                return Outcome(NEEDS_PRODUCER_ID)
            return self._begun(
                Transaction(
                    transactional_id,
                    new_producer_id,
                    0,
                    State.EMPTY,
                    timeout_ms,
                    updated_ms=now_ms,
                )
            )
        if expected is not None and not _may_be(expected, known):
            return self._refused(known, ErrorCode.PRODUCER_FENCED)
        if known.state in ENDING:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and _is_ahead(expected, known):
            return self._refused(known, ErrorCode.PRODUCER_FENCED)
        if known.state is State.ONGOING:
            if expected is not None and expected[1] != known.epoch:
                raise ApiError(ErrorCode.PRODUCER_FENCED)
            # A producer that aborts its own transaction this way is known when it asks again.
            last_epoch = NO_EPOCH if expected is None else known.epoch
            aborted = _fenced(known, last_epoch, now_ms)
            return self._decide(aborted, Reason.FENCED, (NO_PRODUCER_ID, NO_EPOCH))
        return self._next_epoch(known, timeout_ms, expected, new_producer_id, now_ms)

    def _next_epoch(
        self,
        known: Transaction,
        timeout_ms: int,
        expected: Producer | None,
        new_producer_id: int | None,
        now_ms: int,
    ) -> Outcome[Producer | Need]:
        """The identity after the one that is known, of whom no transaction is open."""
        begun = known._replace(
            state=State.EMPTY,
            timeout_ms=timeout_ms,
            next_producer_id=NO_PRODUCER_ID,
            last_epoch=NO_EPOCH if expected is None else expected[1],
            partitions=frozenset(),
            groups=frozenset(),
            started_ms=NOT_STARTED,
            updated_ms=now_ms,
        )
        if expected is not None and expected != (known.producer_id, known.epoch):
            if expected[1] != known.last_epoch:
                raise ApiError(ErrorCode.PRODUCER_FENCED)
            if not known.is_exhausted:  # its new identity did not reach it: here it is once more
                return self._begun(begun._replace(last_epoch=known.last_epoch))
        if not known.is_exhausted:
            return self._begun(begun._replace(epoch=known.epoch + 1))
        if new_producer_id is None:
            return Outcome(NEEDS_PRODUCER_ID)
        return self._begun(
            begun._replace(
                producer_id=new_producer_id, previous_producer_id=known.producer_id, epoch=0
            )
        )

    def add(
        self, transactional_id: str, producer: Producer, wanted: Participants, now_ms: int
    ) -> Outcome[None]:
        """Make partitions and groups a part of the producer's transaction; that begins it.

        Raises ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        refused = self._unheard_of(transactional_id, producer)
        if refused is not None:
            return refused
        known = self._of(transactional_id, producer)
        if known.state in ENDING:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is State.ONGOING:
            if wanted.partitions <= known.partitions and wanted.groups <= known.groups:
                return Outcome(None)
            ongoing = known._replace(
                partitions=known.partitions | wanted.partitions,
                groups=known.groups | wanted.groups,
                updated_ms=now_ms,
            )
        else:
            ongoing = known._replace(
                state=State.ONGOING,
                partitions=wanted.partitions,
                groups=wanted.groups,
                started_ms=now_ms,
                updated_ms=now_ms,
            )
        return Outcome(None, [self._record(ongoing)])

    def verify(
        self, transactional_id: str, producer: Producer, wanted: Participants
    ) -> Outcome[Participants]:
        """Those of ``wanted`` that are no part of the producer's open transaction.

        Raises ApiError as :meth:`add` does.
        """
        refused = self._unheard_of(transactional_id, producer)
        if refused is not None:
            return refused
        known = self._of(transactional_id, producer)
        if known.state in ENDING:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is not State.ONGOING:
            return Outcome(wanted)
        missing = wanted.partitions - known.partitions, wanted.groups - known.groups
        return Outcome(Participants(*missing))

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        *,
        commit: bool,
        client_version: int,
        new_producer_id: int | None,
        now_ms: int,
    ) -> Outcome[Producer | Need]:
        """Decide how the producer's transaction ends; its identity for the next one.

        A client of transaction version 2 gets a new epoch: a request of its that comes twice, or
        late, is known by the old one, and never ends a later transaction.

        Raises ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
        INVALID_TXN_STATE.
        """
        refused = self._unheard_of(transactional_id, producer)
        if refused is not None:
            return refused
        known = self.transactions[transactional_id]
        if client_version < EPOCH_PER_TRANSACTION:
            known = self._of(transactional_id, producer)
            return self._end_in_epoch(known, commit=commit, now_ms=now_ms)
        if _has_ended(known, producer):
            return _end_again(known, commit=commit)
        known = self._of(transactional_id, producer)
        if known.state in ENDING:  # it means the next transaction, which cannot have begun
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return self._end_epoch(known, client_version, new_producer_id, commit=commit, now_ms=now_ms)

    def _end_epoch(
        self,
        known: Transaction,
        client_version: int,
        new_producer_id: int | None,
        *,
        commit: bool,
        now_ms: int,
    ) -> Outcome[Producer | Need]:
        """The same for clients that get a new epoch."""
        if known.state is not State.ONGOING and commit:
            code = ErrorCode.INVALID_TXN_STATE
            return self._refused(known, code, "there is no transaction to commit")
        following = NO_PRODUCER_ID
        if known.is_exhausted:
            if new_producer_id is None:
                return Outcome(NEEDS_PRODUCER_ID)
            following = new_producer_id
        ending = known._replace(
            state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            epoch=known.epoch + 1,
            last_epoch=known.epoch,
            next_producer_id=following,
            client_version=client_version,
            updated_ms=now_ms,
        )
        if known.state is not State.ONGOING:  # nothing was written: no partition need know
            ending = _completed(
                ending._replace(started_ms=now_ms, partitions=frozenset(), groups=frozenset()),
                now_ms,
            )
            return self._begun(ending)
        return self._decide(ending, Reason.ASKED, _identity(ending))

    def _end_in_epoch(
        self, known: Transaction, *, commit: bool, now_ms: int
    ) -> Outcome[Producer | Need]:
        """The same for clients that keep their epoch."""
        identity = known.producer_id, known.epoch
        if known.state is State.ONGOING:
            ending = known._replace(
                state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
                client_version=0,
                updated_ms=now_ms,
            )
            return self._decide(ending, Reason.ASKED, identity)
        if known.state is State.EMPTY or known.is_committed is not commit:
            return self._refused(
                known,
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction is {known.state.label}"
                f" and cannot be {'committed' if commit else 'aborted'}",
            )
        if known.state in ENDING:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        # It is the transaction before, where another broker has the next one: see _refused.
        return Outcome(identity, [self._record(known)])

    def _refused(
        self, known: Transaction, code: ErrorCode, message: str | None = None
    ) -> Outcome[Any]:
        """The refusal of what this state has not heard of.

        It may be that another broker coordinates by now, and has. So the state is written once more
        before the refusal is told: where others lead that is not acknowledged, and the producer
        asks there.
        """
        return Outcome(None, [self._record(known)], refusal=ApiError(code, message))

    def _decide(
        self, ending: Transaction, reason: Reason, answer: Producer
    ) -> Outcome[Producer | Need]:
        return Outcome(
            answer, [self._record(ending)], acknowledged=lambda: self._decided(ending, reason)
        )

    def complete(self, transactional_id: str, ending: Transaction, now_ms: int) -> Outcome[bool]:
        """All partitions know how the transaction ``ending`` has ended; whether it is that one."""
        known = self.transactions.get(transactional_id)
        if (
            known is None
            or known.state is not ending.state
            or (known.producer_id, known.epoch) != (ending.producer_id, ending.epoch)
        ):
            return Outcome(False)
        return Outcome(True, [self._record(_completed(known, now_ms))])

    # What they stand on

    def _unheard_of(self, transactional_id: str, producer: Producer) -> Outcome[Any] | None:
        """The refusal of a producer of whom nothing is known; None: it is, or was, a known one.

        Also that nobody has the transactional id is written before it is told: see _refused.
        """
        known = self.transactions.get(transactional_id)
        if known is None:
            nobody = encode_key(transactional_id), None
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
            return Outcome(None, [nobody], refusal=ApiError(code))
        if _is_ahead(producer, known):
            return self._refused(known, ErrorCode.PRODUCER_FENCED)
        if producer[0] not in {known.producer_id, known.previous_producer_id}:
            return self._refused(known, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return None

    def _of(self, transactional_id: str, producer: Producer) -> Transaction:
        """The state of a known transactional id, if ``producer`` writes under it."""
        known = self.transactions[transactional_id]
        if known.producer_id != producer[0]:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.epoch != producer[1]:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        return known

    def listed(
        self, states: Collection[State], producer_ids: Collection[int], longer_ms: int, now_ms: int
    ) -> list[Transaction]:
        """The transactional ids that pass the filters; an empty one lets all pass.

        ``longer_ms``: only transactions that are open for longer; negative: all.
        """
        return [
            one
            for one in self.transactions.values()
            if (not states or one.state in states)
            and (not producer_ids or one.producer_id in producer_ids)
            and (longer_ms < 0 or _open_for_ms(one, now_ms) > longer_ms)
        ]


def _open_for_ms(transaction: Transaction, now_ms: int) -> int:
    """How long its transaction is open; -1: it has none."""
    if transaction.state in OVER or transaction.started_ms == NOT_STARTED:
        return -1
    return now_ms - transaction.started_ms


def _is_ahead(producer: Producer, known: Transaction) -> bool:
    """Whether a producer has an epoch that its id was not given yet, as far as is known."""
    return producer[0] == known.producer_id and producer[1] > known.epoch


def _may_be(expected: Producer, known: Transaction) -> bool:
    """Whether a producer that has that identity may be the one that is known."""
    return expected[0] == known.producer_id or _is_before(expected, known)


def _is_before(producer: Producer, known: Transaction) -> bool:
    """Whether that is the identity with which the epochs were used up."""
    return (
        producer == (known.previous_producer_id, known.last_epoch)
        and producer[1] >= MAX_EPOCH
        and known.epoch == 0
    )


def _has_ended(known: Transaction, producer: Producer) -> bool:
    """Whether ``producer`` is the identity before the last end, which was asked for already."""
    if known.client_version < EPOCH_PER_TRANSACTION or known.state not in {
        State.PREPARE_COMMIT,
        State.PREPARE_ABORT,
        State.COMPLETE_COMMIT,
        State.COMPLETE_ABORT,
    }:
        return False
    if known.producer_id == producer[0]:
        # The epoch that is kept for fencing is given to nobody: none comes after it.
        is_given = known.epoch <= MAX_EPOCH or known.state in ENDING
        return is_given and known.epoch == producer[1] + 1
    return known.state not in ENDING and _is_before(producer, known)


def _end_again(known: Transaction, *, commit: bool) -> Outcome[Producer | Need]:
    """The answer to the same end of the same transaction."""
    if known.is_committed is not commit:
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE, f"the transaction is {known.state.label} already"
        )
    if known.state in ENDING:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return Outcome((known.producer_id, known.epoch))


def _fenced(known: Transaction, last_epoch: int, now_ms: int) -> Transaction:
    """Its open transaction is aborted by the coordinator, in an epoch that its producer lacks."""
    return known._replace(
        state=State.PREPARE_ABORT,
        epoch=known.epoch + 1,
        last_epoch=last_epoch,
        next_producer_id=NO_PRODUCER_ID,
        client_version=EPOCH_PER_TRANSACTION,
        updated_ms=now_ms,
    )


def _completed(ending: Transaction, now_ms: int) -> Transaction:
    """The transaction is over, and its producer has the identity of the next one."""
    over = ending._replace(
        state=State.COMPLETE_COMMIT if ending.is_committed else State.COMPLETE_ABORT,
        partitions=frozenset(),
        groups=frozenset(),
        updated_ms=now_ms,
    )
    if ending.next_producer_id == NO_PRODUCER_ID:
        return over
    return over._replace(
        producer_id=ending.next_producer_id,
        previous_producer_id=ending.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        epoch=0,
    )


def _identity(ending: Transaction) -> Producer:
    """Who the producer of an ending transaction is in the next one."""
    if ending.next_producer_id != NO_PRODUCER_ID:
        return ending.next_producer_id, 0
    return ending.producer_id, ending.epoch
