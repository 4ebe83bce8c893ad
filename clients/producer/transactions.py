"""The transactions of a producer: what is sent in one is read whole, or not at all (KIP-98).

A transaction ends in one of four ways: it is committed; it is aborted, and may be done again
(:class:`~qbus.clients.TransactionAborted`); the producer is of no use any more
(:class:`~qbus.clients.TransactionFailed`); or no broker told in time what became of it, and the end
is to be asked for again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.service.backoff import Backoff
from qbus.wire import ApiKey
from qbus.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from qbus.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from qbus.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from qbus.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from qbus.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

from ..committed import explain_unknown
from ..errors import RequestTimedOut, TransactionAborted, TransactionFailed, api_error, check
from ..net.cluster import Cluster, CoordinatorKind
from ..net.pool import ConnectionGroup
from ..net.retry import retrying
from ..net.routing import COORDINATOR_MOVED
from ..prepared import LAST_END_OF_V1, PreparedTransaction
from ..types import (
    GroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
    by_topic,
    by_topic_and_id,
    committable,
)
from .accumulator import Accumulator
from .batch import ProducerIdentity
from .options import ProducerOptions
from .sender import Sender
from .transaction import FENCED, Phase, TransactionState, aborted, is_fatal

_log = logging.getLogger(__name__)

T = TypeVar("T")

_FEATURE: Final = "transaction.version"
_V2: Final = 2
_LAST_COMMIT_OF_V1: Final = 4
"""From version 5 on, TxnOffsetCommit adds the group to the transaction by itself."""
_FIRST_RETRY_S: Final = 0.02
"""The markers of the transaction before are mostly written by then."""
_PARTING_S: Final = 5.0
"""Seconds that an abort may take when the task of the transaction is cancelled."""
_ENDED_BY_COORDINATOR = FENCED | {
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
}
"""Answers to an end for a transaction that is aborted already, as after its time-out. One that is
committed is answered as if it were committed now.
"""


def _closed() -> QbusError:
    return QbusError(
        "a transactional producer sends inside of a transaction: with producer.transaction(): ..."
    )


def _ending() -> QbusError:
    return QbusError("the transaction is being ended: nothing more can be sent in it")


class Transactions:
    """Begins and ends the transactions of one producer. In its loop; its calls take turns."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        sender: Sender,
        options: ProducerOptions,
        state: TransactionState,
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        """``flush`` waits until everything sent so far is delivered or has failed."""
        assert options.transactional_id is not None
        self._cluster = cluster
        self._accumulator = accumulator
        self._sender = sender
        self._options = options
        self._id = options.transactional_id
        self._state = state
        self._flush = flush
        self._turn = asyncio.Lock()
        state.on_failed = self._on_failed
        sender.add_partitions = self._add_partitions
        accumulator.refuse(_closed)

    # What users call.

    async def initialize(self) -> None:
        """Get the producer's identity, which fences earlier producers with the same id."""
        async with self._turn:
            self._check_usable()
            if self._state.phase is Phase.NEW:
                await self._identify()

    async def begin(self) -> None:
        """Open a transaction; first end one whose abort is not finished."""
        async with self._turn:
            self._check_usable()
            phase = self._state.phase
            if phase is Phase.COMMITTING:
                raise QbusError(
                    "whether the last transaction is committed is not known yet: call"
                    " commit_transaction again"
                )
            if phase in {Phase.OPEN, Phase.FAILED}:
                raise QbusError("a transaction is open already")
            if phase is Phase.HANDED_OVER:
                raise QbusError(f"no transaction can be begun: {phase.value}")
            if phase is Phase.ABORTING:
                await self._end(committed=False)
            if phase is Phase.NEW:
                await self._identify()
            self._state.begin()
            self._accumulator.refuse(None)

    async def commit(self) -> None:
        """Deliver everything, and commit it; what cannot be committed is aborted.

        Raises TransactionAborted, TransactionFailed, or RequestTimedOut: then call it again.
        """
        async with self._turn:
            self._check_usable()
            state = self._state
            if state.phase is Phase.OPEN:
                self._accumulator.refuse(_ending)
                await self._flush()
            if state.phase is Phase.OPEN:
                state.phase = Phase.COMMITTING
            if state.phase is Phase.COMMITTING:
                await self._end(committed=True)
            if state.phase is Phase.FAILED:
                await self._abort_failed()
            elif state.phase is not Phase.READY:
                raise self._nothing_open()

    async def hand_over(self) -> PreparedTransaction | None:
        """Deliver everything, and leave the end to others: see :mod:`qbus.clients.prepared`.

        The producer can only be closed then. None: there is nothing to end. Raises
        TransactionAborted, when it is aborted, and TransactionFailed.
        """
        async with self._turn:
            self._check_usable()
            state = self._state
            if state.phase is Phase.OPEN:
                self._accumulator.refuse(_ending)
                await self._flush()
            if state.phase is Phase.FAILED:
                await self._abort_failed()
            if state.phase is not Phase.OPEN:
                raise self._nothing_open()
            state.phase = Phase.HANDED_OVER
            if not state.is_started:
                return None
            producer_id, epoch, _ = self._identity
            return PreparedTransaction(self._id, producer_id, epoch, state.is_v2)

    async def abort(self) -> None:
        """Give up what is not delivered, and see that nothing of the transaction is read.

        Raises TransactionFailed, or RequestTimedOut: the next transaction then begins with it.
        """
        async with self._turn:
            self._check_usable()
            if self._state.phase not in {Phase.OPEN, Phase.FAILED, Phase.ABORTING}:
                raise self._nothing_open()
            await self._abort()

    async def finish(self) -> None:
        """Commit, unless the work has ended the transaction itself."""
        try:
            if self._state.phase is not Phase.READY:
                await self.commit()
        except asyncio.CancelledError:
            self.give_up()
            raise

    async def leave(self, error: BaseException) -> None:
        """Abort, because ``error`` ended the work; raise only what matters more than that."""
        if self._state.phase is Phase.READY:
            return
        timeout = None if isinstance(error, Exception) else _PARTING_S
        try:
            async with asyncio.timeout(timeout):
                await self.abort()
        except TransactionFailed:
            if isinstance(error, TransactionAborted):
                raise
        except (QbusError, TimeoutError) as trouble:
            self.give_up()
            _log.warning(
                "cannot abort a transaction of %s yet, the next one begins with it: %s",
                self._id,
                trouble,
            )

    def give_up(self) -> None:
        """Abort the transaction before the next one, if it is still open."""
        if self._state.phase in {Phase.OPEN, Phase.FAILED}:
            self._state.phase = Phase.ABORTING
            self._accumulator.refuse(_closed)

    async def close(self, timeout: float) -> None:
        """Abort what is open, within ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout), self._turn:
                if self._state.phase in {Phase.OPEN, Phase.FAILED, Phase.ABORTING}:
                    await self._abort()
        except (QbusError, TimeoutError) as error:
            _log.warning("cannot abort the open transaction of %s: %s", self._id, error)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit ``offsets`` for ``group`` when the transaction is committed.

        Raises TransactionAborted, after which it can only be aborted, or TransactionFailed.
        """
        async with self._turn:
            self._check_usable()
            state = self._state
            if state.phase is Phase.FAILED and state.failure is not None:
                raise state.failure
            if state.phase is not Phase.OPEN:
                raise self._nothing_open()
            if not offsets:
                return
            state.is_started = True
            try:
                if not state.is_v2 and group.group not in state.groups:
                    await self._add_group(group.group)
                await self._commit_offsets(offsets, group)
            except QbusError as error:
                raise self._refused(error) from error

    # What is sent.

    async def _add_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        """Tell the coordinator of ``partitions``, so that batches may go there (version 1)."""
        state = self._state
        number = state.number
        state.is_started = True
        producer_id, epoch, _ = self._identity
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in by_topic(sorted(partitions)).items()
            ],
        )
        try:
            await self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, _partition_errors)
        except QbusError as error:
            if state.number == number:
                self._refused(error)
        else:
            if state.number == number:
                state.added(partitions)

    async def _add_group(self, group: str) -> None:
        producer_id, epoch, _ = self._identity
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=group,
        )
        await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, request)
        self._state.groups.add(group)

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        producer_id, epoch, _ = self._identity
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id.bytes,
                    partitions=[
                        _to_commit(index, offsets[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for (topic, topic_id), indexes in by_topic_and_id(offsets).items()
            ],
        )
        newest = None if self._state.is_v2 else _LAST_COMMIT_OF_V1

        async def attempt() -> None:
            response: TxnOffsetCommitResponse = await self._cluster.ask_coordinator(
                group.group,
                ApiKey.TXN_OFFSET_COMMIT,
                request,
                connection_group=ConnectionGroup.MAIN,
                newest=newest,
            )
            refused = {
                TopicPartition(topic.name, part.partition_index): api_error(
                    part.error_code, of=f"{topic.name}-{part.partition_index}"
                )
                for topic in response.topics
                for part in topic.partitions
                if part.error_code
            }
            await explain_unknown(self._cluster, offsets, refused)
            _raise_worst(refused.values())

        await self._repeat(attempt, group.group, CoordinatorKind.GROUP)

    async def _identify(self, known: ProducerIdentity | None = None) -> None:
        """Get an identity: the first one, or the next epoch of the ``known`` one (KIP-360)."""
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=max(1, int(self._options.transaction_timeout * 1000)),
        )
        if known is not None:
            request.producer_id, request.producer_epoch, _ = known
        try:
            response: InitProducerIdResponse = await self._ask(ApiKey.INIT_PRODUCER_ID, request)
            connection = await self._cluster.coordinator_connection(
                self._id, CoordinatorKind.TRANSACTION
            )
        except ApiError as error:
            if error.retriable:
                raise
            raise self._break(error) from error
        self._state.is_v2 = (
            connection.feature(_FEATURE) >= _V2
            and connection.version(ApiKey.END_TXN) > LAST_END_OF_V1
        )
        self._use(response.producer_id, response.producer_epoch)
        if self._state.phase is Phase.NEW:
            self._state.phase = Phase.READY

    async def _end(self, *, committed: bool) -> None:
        """End the transaction at its coordinator, if that may know of it."""
        state = self._state
        if state.is_started:
            producer_id, epoch, _ = self._identity
            request = EndTxnRequest(
                transactional_id=self._id,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=committed,
            )
            newest = None if state.is_v2 else LAST_END_OF_V1
            try:
                response: EndTxnResponse = await self._ask(ApiKey.END_TXN, request, newest=newest)
            except ApiError as error:
                await self._end_refused(error, committed=committed)
                return
            if state.is_v2 and response.producer_id >= 0:
                self._use(response.producer_id, response.producer_epoch)
            elif not committed:
                # What was sent and is still on its way must not get into the next transaction.
                await self._identify(state.identity)
        self._ended()

    async def _end_refused(self, error: ApiError, *, committed: bool) -> None:
        """Find out what became of a transaction whose end was refused.

        Returns when it is aborted, or when it is to be aborted (phase FAILED); raises otherwise.
        """
        code = error.code
        if error.retriable:
            what = "committed" if committed else "aborted"
            raise RequestTimedOut(
                f"whether the transaction of {self._id} is {what} is not known yet: {error}"
            ) from error
        if committed and code is ErrorCode.TRANSACTION_ABORTABLE:
            self._state.lost(error)
            return
        if code not in _ENDED_BY_COORDINATOR:
            raise self._break(error) from error
        await self._identify(self._identity)  # raises if another producer has the id
        self._ended()
        if committed:
            raise aborted(error)

    # The steps.

    @property
    def _identity(self) -> ProducerIdentity:
        assert self._state.identity is not None, "the producer has no identity yet"
        return self._state.identity

    def _use(self, producer_id: int, epoch: int) -> None:
        identity = ProducerIdentity(producer_id, epoch, is_transactional=True)
        self._state.identity = identity
        self._sender.use(identity)

    async def _abort(self) -> None:
        state = self._state
        reason = state.failure if state.phase is Phase.FAILED else None
        state.phase = Phase.ABORTING
        self._accumulator.refuse(_closed)
        await self._sender.drop(
            reason or TransactionAborted(ErrorCode.TRANSACTION_ABORTABLE, "it was aborted")
        )
        await self._end(committed=False)

    async def _abort_failed(self) -> None:
        """Abort a transaction that cannot be committed; raise what its user has to know."""
        failure = self._state.failure
        assert failure is not None
        try:
            await self._abort()
        except TransactionFailed:
            raise
        except ApiError as error:
            _log.warning(
                "cannot abort a transaction of %s yet, the next one begins with it: %s",
                self._id,
                error,
            )
        raise failure

    def _ended(self) -> None:
        self._state.ended()
        self._accumulator.refuse(_closed)

    def _on_failed(self) -> None:
        """Have nothing more sent in a transaction that can only be aborted."""
        failure = self._state.failure
        assert failure is not None
        self._accumulator.refuse(lambda: failure)
        asyncio.get_running_loop().call_soon(self._drop_rest, self._state.number)

    def _drop_rest(self, number: int) -> None:
        state = self._state
        if state.number == number and state.phase is Phase.FAILED and state.failure is not None:
            self._sender.drop_waiting(state.failure)

    def _refused(self, error: QbusError) -> ApiError:
        """Note that a request of the open transaction failed for good; return what users see."""
        if isinstance(error, ApiError) and is_fatal(error):
            return self._break(error)
        self._state.lost(error)
        return self._state.failure or aborted(error)

    def _break(self, error: ApiError) -> TransactionFailed:
        failure = self._state.broken(error)
        self._sender.fail(failure)
        return failure

    def _check_usable(self) -> None:
        if self._state.phase is Phase.BROKEN and self._state.failure is not None:
            raise self._state.failure

    def _nothing_open(self) -> QbusError:
        return QbusError(f"no transaction is open: {self._state.phase.value}")

    # Requests.

    async def _ask(
        self,
        api: ApiKey,
        message: Any,
        check_answer: Callable[[Any], None] | None = None,
        *,
        newest: int | None = None,
    ) -> Any:
        """Return the coordinator's response without an error, however often it has to be asked."""

        async def attempt() -> Any:
            response = await self._cluster.ask_coordinator(
                self._id, api, message, kind=CoordinatorKind.TRANSACTION, newest=newest
            )
            if check_answer is None:
                check(response.error_code, of=f"transactional id {self._id}")
            else:
                check_answer(response)
            return response

        return await self._repeat(attempt, self._id, CoordinatorKind.TRANSACTION)

    async def _repeat(
        self, attempt: Callable[[], Awaitable[T]], key: str, kind: CoordinatorKind
    ) -> T:
        async def watched() -> T:
            try:
                return await attempt()
            except ApiError as error:
                if error.code in COORDINATOR_MOVED:
                    self._cluster.forget_coordinator(key, kind)
                raise

        backoff = Backoff(_FIRST_RETRY_S, self._options.retry_backoff_max)
        patience = self._options.delivery_timeout
        subject = f"the transaction of {self._id}"
        return await retrying(self._cluster, subject, watched, patience, backoff=backoff)


class Transaction:
    """A transaction of the asyncio producer, while it is entered.

    Leaving it commits; an exception aborts. Raises as :meth:`Transactions.commit`.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def __aenter__(self) -> None:
        await self._transactions.begin()

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            await self._transactions.finish()
        else:
            await self._transactions.leave(error)


class ConsumedOffsets(Protocol):
    """A consumer that tells what it has read, and as which member of its group."""

    def consumed(self) -> tuple[dict[TopicPartition, OffsetAndMetadata], GroupMetadata]: ...


def consumed(
    offsets: ConsumedOffsets | Mapping[Any, int | OffsetAndMetadata],
    group: GroupMetadata | str | None,
) -> tuple[dict[TopicPartition, OffsetAndMetadata], GroupMetadata]:
    """Return the offsets and the group that ``Producer.send_offsets`` is told of.

    Raises TypeError for offsets without a group, or a consumer with one.
    """
    if isinstance(offsets, Mapping):
        if group is None:
            raise TypeError("offsets by partition need a group")
        return committable(offsets), GroupMetadata(group) if isinstance(group, str) else group
    if group is not None:
        raise TypeError("a consumer has a group already")
    return offsets.consumed()


def _partition_errors(response: AddPartitionsToTxnResponse) -> None:
    _raise_worst(
        api_error(part.partition_error_code, of=f"{topic.name}-{part.partition_index}")
        for topic in response.results_by_topic_v3_and_below
        for part in topic.results_by_partition
        if part.partition_error_code
    )


def _raise_worst(errors: Iterable[ApiError]) -> None:
    """Raise the error that decides about a request for several partitions, if there is one.

    That is one that asking again does not help against; the partitions beside it are refused as
    not attempted.
    """
    found = sorted(errors, key=_severity)
    if found:
        raise found[0]


def _severity(error: ApiError) -> tuple[bool, bool]:
    return error.code is ErrorCode.OPERATION_NOT_ATTEMPTED, error.retriable


def _to_commit(index: int, offset: OffsetAndMetadata) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )
