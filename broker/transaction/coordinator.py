"""The transaction coordinator: the transactional ids that belong to this broker (KIP-98).

A transactional id belongs to the leader of a partition of ``__transaction_state``, and so does the
transaction: whoever leads that partition next goes on where this broker stopped. What is decided is
stored first; only then are partitions told, and only when all of them know may the id's next
transaction begin.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from qbus.config import BrokerConfig
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.metadata import StoreUnavailable
from qbus.names import TRANSACTIONS_TOPIC

from ..internal_logs import (
    Asker,
    InternalLog,
    InternalTopic,
    LogParts,
    Operation,
    Outcome,
    Producer,
    Shard,
    suitable,
)
from ..metadata.image import BrokerInfo
from .machine import NEEDS_PRODUCER_ID, Need, Participants, Reason, TransactionMachine
from .markers import MarkerSender, MarkerTransport
from .state import NO_PRODUCER_ID, Place, State, Transaction

_log = logging.getLogger(__name__)

A = TypeVar("A")

_PATIENCE_S: Final = 0.5  # for which a request waits for the end of the transaction before it
_FENCE_PATIENCE_S: Final = 2.0  # likewise one that has just aborted it


class ProducerIdSource(Protocol):
    """Gives out producer ids."""

    async def allocate(self) -> int:
        """A producer id that nobody has. Raises StoreUnavailable."""


class CoordinatorPeers(MarkerTransport, Protocol):
    """What the coordinator needs of other brokers, and of this one's partitions and groups."""

    async def ask_coordinator(
        self, question: "Question", *, add: bool
    ) -> Mapping[Place | str, ErrorCode]:
        """Have the coordinator of a transactional id add partitions and groups, or look for them.

        Its answers by partition, or by the group's name. Raises QbusError: it cannot be asked.
        """


class Question(NamedTuple):
    """Whether partitions and groups are a part of a producer's transaction."""

    transactional_id: str
    producer: Producer
    wanted: Participants


class NeedingId(Protocol):
    """An operation that may need a producer id that nobody has."""

    def __call__(
        self, machine: TransactionMachine, now_ms: int, new_id: int | None = None, /
    ) -> Outcome[Producer | Need]:
        """Carry it out."""


class TransactionCounts:
    """What the coordinator did since the start: for metrics."""

    __slots__ = ("aborted", "committed", "fenced", "timed_out")

    def __init__(self) -> None:
        self.committed = 0
        self.aborted = 0
        self.fenced = 0
        self.timed_out = 0


class TransactionCoordinator:
    """Answers for the transactional ids of this broker, and asks other brokers about theirs.

    ``log`` has the state. Every method that changes or reads an id raises ApiError: besides what it
    says itself, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS and COORDINATOR_NOT_AVAILABLE, after
    which a client asks again; INVALID_REQUEST for an empty transactional id.
    """

    def __init__(
        self,
        config: BrokerConfig,
        parts: LogParts,
        producer_ids: ProducerIdSource,
        peers: CoordinatorPeers,
    ) -> None:
        self._config = config
        self._producer_ids = producer_ids
        self._peers = peers
        self._clock = parts.clock
        self._metadata = parts.metadata
        self.counts = TransactionCounts()
        self.markers = MarkerSender(parts.metadata, peers)
        self.log: InternalLog[TransactionMachine] = InternalLog(
            parts,
            self._topic,
            self._make_machine,
            on_loaded=self._loaded,
            on_unloaded=self.markers.forget,
        )

    def _topic(self) -> InternalTopic:
        config = self._config
        return suitable(
            config,
            TRANSACTIONS_TOPIC,
            partitions=config.transaction_state_log_num_partitions,
            replication_factor=config.transaction_state_log_replication_factor,
            min_isr=config.transaction_state_log_min_isr,
            segment_bytes=config.transaction_state_log_segment_bytes,
        )

    def _make_machine(self, _: int) -> TransactionMachine:
        return TransactionMachine(
            lambda: self._config.transactional_id_expiration_ms, self._decided
        )

    async def stop(self) -> None:
        """Answer nothing any more."""
        await self.log.stop()
        await self.markers.stop()

    # Finding the coordinator

    async def coordinator(self, transactional_id: str) -> BrokerInfo | None:
        """The broker that coordinates a transactional id; None: there is none now.

        Raises ApiError COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST.
        """
        _check_id(transactional_id)
        return await self.log.coordinator(transactional_id)

    # Requests of producers

    async def initialize(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None = None
    ) -> Producer:
        """Give a producer its id and epoch; whoever had the transactional id before is fenced.

        ``expected`` is the identity that the producer has already. Raises ApiError:
        INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        _check_id(transactional_id)
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise ApiError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction time-out is 1 to {self._config.transaction_max_timeout_ms} ms",
            )

        async def attempt() -> Producer:
            def initialize(
                machine: TransactionMachine, now_ms: int, new_id: int | None = None
            ) -> Outcome[Producer | Need]:
                return machine.initialize(transactional_id, timeout_ms, expected, new_id, now_ms)

            return await self._with_id(transactional_id, initialize)

        identity = await self._patiently(transactional_id, attempt)
        if identity[0] == NO_PRODUCER_ID:  # an open transaction is being aborted
            if not await self.markers.wait(transactional_id, _FENCE_PATIENCE_S):
                raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
            identity = await attempt()
        if identity[0] == NO_PRODUCER_ID:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        _log.info(
            "transactional id %r is used by producer %d in epoch %d", transactional_id, *identity
        )
        return identity

    async def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[Place] = (),
        groups: Collection[str] = (),
    ) -> None:
        """Make partitions, and offsets of groups, a part of the producer's transaction.

        Raises ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS;
        UNKNOWN_TOPIC_OR_PARTITION for what this broker does not know, be it that it hears of it
        later than the partition's leader: it would take it for deleted when the transaction ends.
        """
        _check_id(transactional_id)
        for topic, index in partitions:
            known = self._metadata.topics.get(topic)
            if known is None or not 0 <= index < len(known.partitions):
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index}")
        wanted = Participants(frozenset(partitions), frozenset(groups))

        def add(machine: TransactionMachine, now_ms: int) -> Outcome[None]:
            return machine.add(transactional_id, producer, wanted, now_ms)

        await self._patiently(transactional_id, lambda: self.log.ask(transactional_id, add))

    async def find_missing(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[Place] = (),
        groups: Collection[str] = (),
    ) -> Participants:
        """Those that are no part of the producer's open transaction. Raises as :meth:`add` does."""
        _check_id(transactional_id)
        wanted = Participants(frozenset(partitions), frozenset(groups))

        def verify(machine: TransactionMachine, _: int) -> Outcome[Participants]:
            return machine.verify(transactional_id, producer, wanted)

        return await self.log.ask(transactional_id, verify)

    async def end(
        self, transactional_id: str, producer: Producer, *, commit: bool, client_version: int
    ) -> Producer:
        """Decide how the producer's transaction ends, and say who it is in the next one.

        ``client_version`` is the client's transaction version (KIP-890). The decision is stored on
        return; partitions are being told. Raises ApiError: INVALID_PRODUCER_ID_MAPPING,
        PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
        """
        _check_id(transactional_id)

        def end(
            machine: TransactionMachine, now_ms: int, new_id: int | None = None
        ) -> Outcome[Producer | Need]:
            return machine.end(
                transactional_id,
                producer,
                commit=commit,
                client_version=client_version,
                new_producer_id=new_id,
                now_ms=now_ms,
            )

        return await self._patiently(transactional_id, lambda: self._with_id(transactional_id, end))

    # The same, for who does not wait: ``asker`` is told

    def begin_to_ask(
        self, transactional_id: str, producer: Producer, place: Place, asker: Asker, *, add: bool
    ) -> bool:
        """Make a partition a part of the producer's transaction, or look whether it is (not add).

        ``asker`` gets what is no part of it, or None where it was added; or the error of
        :meth:`add`, as it is at once: nothing is tried again. False: it cannot be asked here now.
        """
        topic, index = place
        known = self._metadata.topics.get(topic)
        if known is None or index >= len(known.partitions):
            return False
        wanted = Participants(frozenset({place}))

        def change(machine: TransactionMachine, now_ms: int) -> Outcome[Any]:
            if add:
                return machine.add(transactional_id, producer, wanted, now_ms)
            return machine.verify(transactional_id, producer, wanted)

        return self._put(transactional_id, change, asker)

    def begin_to_end(
        self,
        transactional_id: str,
        producer: Producer,
        asker: Asker,
        *,
        commit: bool,
        client_version: int,
    ) -> bool:
        """Decide how the producer's transaction ends, as :meth:`end`.

        ``asker`` gets its next identity, or Need where a producer id is needed that nobody has; or
        the error, as it is at once. False: it cannot be asked here now.
        """

        def change(machine: TransactionMachine, now_ms: int) -> Outcome[Any]:
            return machine.end(
                transactional_id,
                producer,
                commit=commit,
                client_version=client_version,
                new_producer_id=None,
                now_ms=now_ms,
            )

        return self._put(transactional_id, change, asker)

    def _put(
        self, transactional_id: str, change: Operation[TransactionMachine, Any], asker: Asker
    ) -> bool:
        if not transactional_id:
            return False
        try:
            shard = self.log.shard(transactional_id)
        except ApiError:
            return False
        shard.put(change, asker)
        return True

    async def _patiently(self, transactional_id: str, attempt: Callable[[], Awaitable[A]]) -> A:
        """Try once more when the transaction before has ended, if that is soon."""
        try:
            return await attempt()
        except ApiError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
            if not await self.markers.wait(transactional_id, _PATIENCE_S):
                raise
        return await attempt()

    async def _with_id(self, transactional_id: str, operation: NeedingId) -> Producer:
        """Carry out an operation that may need a producer id that nobody has."""
        answer = await self.log.ask(transactional_id, operation)
        if answer is NEEDS_PRODUCER_ID:
            try:
                new_id = await self._producer_ids.allocate()
            except StoreUnavailable as error:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
            answer = await self.log.ask(
                transactional_id, lambda machine, now_ms: operation(machine, now_ms, new_id)
            )
        if isinstance(answer, Need):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the producer id was not taken")
        return answer

    # What is asked of other brokers

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[Place],
        *,
        add: bool,
        abortable: bool = True,
    ) -> dict[Place, ErrorCode]:
        """Ask a transaction's coordinator whether partitions are a part of it (KIP-890).

        With ``add`` they become one. The codes are those of an answer to Produce, of which a client
        tries again what may pass. Without ``abortable`` the client does not know
        TRANSACTION_ABORTABLE, and gets INVALID_TXN_STATE instead.
        """
        wanted = Participants(frozenset(partitions))
        question = Question(transactional_id, (producer_id, epoch), wanted)
        answers = await self._ask(question, add=add)
        return {
            place: _for_producers(
                answers.get(place, ErrorCode.COORDINATOR_NOT_AVAILABLE),
                adds=add,
                abortable=abortable,
            )
            for place in partitions
        }

    async def verify_group(
        self, transactional_id: str, producer_id: int, epoch: int, group: str, *, add: bool
    ) -> ErrorCode:
        """The same for offsets of a group, where these are in the metadata store."""
        wanted = Participants(groups=frozenset({group}))
        question = Question(transactional_id, (producer_id, epoch), wanted)
        answers = await self._ask(question, add=add)
        code = answers.get(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return _for_producers(code, adds=add, abortable=True)

    async def _ask(self, question: Question, *, add: bool) -> Mapping[Place | str, ErrorCode]:
        try:
            return await self._peers.ask_coordinator(question, add=add)
        except ApiError as error:
            code = error.code
        except QbusError as error:
            _log.info(
                "the coordinator of transactional id %r cannot be asked: %s",
                question.transactional_id,
                error,
            )
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        wanted = question.wanted
        return dict.fromkeys((*wanted.partitions, *wanted.groups), code)

    async def answer(self, question: Question, *, add: bool) -> dict[Place | str, ErrorCode]:
        """Answer what another broker asks with :meth:`verify`, of an id that belongs here."""
        wanted = question.wanted
        answers: dict[Place | str, ErrorCode] = dict.fromkeys(
            (*wanted.partitions, *wanted.groups), ErrorCode.NONE
        )
        name, producer = question.transactional_id, question.producer
        try:
            if add:
                await self.add(name, producer, wanted.partitions, wanted.groups)
                return answers
            missing = await self.find_missing(name, producer, wanted.partitions, wanted.groups)
        except ApiError as error:
            return dict.fromkeys(answers, error.code)
        answers |= dict.fromkeys(missing.partitions, ErrorCode.TRANSACTION_ABORTABLE)
        answers |= dict.fromkeys(missing.groups, ErrorCode.TRANSACTION_ABORTABLE)
        return answers

    # Requests of administrators

    async def describe(self, transactional_id: str) -> Transaction:
        """How a transaction stands. Raises ApiError TRANSACTIONAL_ID_NOT_FOUND."""
        _check_id(transactional_id)

        def describe(machine: TransactionMachine, _: int) -> Outcome[Transaction]:
            known = machine.get(transactional_id)
            if known is None:
                raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            return Outcome(known)

        transaction = await self.log.ask(transactional_id, describe)
        if transaction.state in {State.PREPARE_COMMIT, State.PREPARE_ABORT}:
            left = self.markers.left(transaction)
            if left is not None:
                return transaction._replace(partitions=left)
        return transaction

    def listed(
        self,
        states: Collection[State] = (),
        producer_ids: Collection[int] = (),
        longer_ms: int = -1,
    ) -> list[Transaction]:
        """The transactional ids of this broker that pass the filters; empty ones let all pass.

        ``longer_ms``: only transactions that are open for longer; negative: all. Raises ApiError
        COORDINATOR_LOAD_IN_PROGRESS while some are not known yet.
        """
        if self.log.loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        now_ms = self._clock.time_ms()
        return [
            transaction
            for machine in self.log.machines()
            for transaction in machine.listed(states, producer_ids, longer_ms, now_ms)
        ]

    def count_by_state(self) -> dict[State, int]:
        """How many transactional ids of this broker are in which state."""
        counts: dict[State, int] = dict.fromkeys(_SHOWN, 0)
        for machine in self.log.machines():
            for transaction in list(machine.transactions.values()):
                counts[transaction.state] += 1
        return counts

    # Transactions that end

    def _loaded(self, shard: Shard[TransactionMachine]) -> None:
        """Go on with what a former coordinator, or this one, had decided."""
        for name in shard.machine.ending:
            self.markers.begin(shard, shard.machine.transactions[name])

    def _decided(self, ending: Transaction, reason: Reason) -> None:
        counts = self.counts
        if ending.is_committed:
            counts.committed += 1
        else:
            counts.aborted += 1
        if reason is not Reason.ASKED:
            _log.info(
                "the transaction of %r, producer %d, is aborted: %s",
                ending.transactional_id,
                ending.producer_id,
                reason.value,
            )
            counts.fenced += reason is Reason.FENCED
            counts.timed_out += reason is Reason.TIMED_OUT
        try:
            shard = self.log.shard(ending.transactional_id)
        except ApiError:  # whoever loads it tells the partitions
            return
        self.markers.begin(shard, ending)


_SHOWN: Final[tuple[State, ...]] = tuple(
    state for state in State if state not in {State.DEAD, State.PREPARE_EPOCH_FENCE}
)

_LATER: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What passes, though not every client tries a Produce again that is answered with it."""


def _for_producers(code: ErrorCode, *, adds: bool, abortable: bool) -> ErrorCode:
    """What a producer gets where the coordinator answers ``code``: Kafka's mapping."""
    if code in _LATER or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
