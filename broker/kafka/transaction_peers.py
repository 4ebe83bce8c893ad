"""What a transaction coordinator asks of other brokers, and of its own: markers, groups, questions.

Markers wait for the replicas of partitions. So that no question waits behind them, they have a
connection of their own.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from qbus.config import BrokerConfig
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.wire import ApiKey, Struct
from qbus.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from qbus.wire.messages.end_group_transaction import (
    EndGroupTransactionRequest,
    EndGroupTransactionResponse,
)
from qbus.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ..metadata.cache import MetadataCache
from ..peers.client import PeerClient, PeerSettings
from ..peers.connection import PeerError
from ..transaction import Marker, MarkerAppends, Place, Question, Told

if TYPE_CHECKING:
    from ..broker import Broker

_MARKERS_S: Final = 40.0  # a leader answers after 30 s that a marker is not acknowledged
_QUESTION_S: Final = 10.0
_MARKERS_VERSION: Final = 2
_QUESTION_VERSION: Final = 5

Answers = Mapping[Place | str, ErrorCode]


class Peers(Protocol):
    """A client of other brokers."""

    async def send(
        self, broker_id: int, api: ApiKey, version: int, message: Struct, timeout: float
    ) -> Any:
        """Send a request; the response. Raises PeerError."""

    def close(self) -> None:
        """Send nothing any more."""


class TransactionPeers:
    """The way from the coordinator to partitions, groups and other coordinators."""

    def __init__(self, node_id: int, connect: Callable[[], Peers]) -> None:
        """``connect`` makes a client of other brokers."""
        self._node_id = node_id
        self._connect = connect
        self._broker: Broker | None = None
        self._markers: Peers | None = None
        self._questions: Peers | None = None
        self._asked: dict[tuple[int, bool], list[_Asked]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, broker: "Broker") -> None:
        """Reach this broker's own partitions and groups from now on; before, it is not there."""
        self._broker = broker

    def close(self) -> None:
        """Ask nobody any more."""
        for client in (self._markers, self._questions):
            if client is not None:
                client.close()

    @property
    def _own(self) -> "Broker":
        if self._broker is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is starting")
        return self._broker

    # Markers

    async def write(self, broker: int, markers: Sequence[Marker]) -> Told:
        """See :class:`~qbus.broker.transaction.markers.MarkerTransport`."""
        if self._markers is None:
            self._markers = self._connect()
        response: WriteTxnMarkersResponse = await self._markers.send(
            broker,
            ApiKey.WRITE_TXN_MARKERS,
            _MARKERS_VERSION,
            WriteTxnMarkersRequest(markers=[_writable(marker) for marker in markers]),
            _MARKERS_S,
        )
        return _told(response.markers)

    def write_own(
        self, broker: int, markers: Sequence[Marker], told: Callable[[Told], object]
    ) -> bool:
        """See :class:`~qbus.broker.transaction.markers.MarkerTransport`."""
        if broker != self._node_id:
            return False
        tokens = [(one.producer_id, place) for one in markers for place in one.partitions]
        appends = MarkerAppends(lambda codes: told(dict(zip(tokens, codes, strict=True))))
        appends.append(self._own.replicas, markers)
        return True

    async def end_group(self, group: str, producer_id: int, epoch: int, *, committed: bool) -> None:
        """See :class:`~qbus.broker.transaction.markers.MarkerTransport`."""
        coordinator = await self._own.groups.find_coordinator(group)
        if coordinator is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if coordinator.id == self._node_id:
            await self._own.groups.end_transaction(group, producer_id, epoch, committed=committed)
            return
        if self._markers is None:
            self._markers = self._connect()
        response: EndGroupTransactionResponse = await self._markers.send(
            coordinator.id,
            ApiKey.END_GROUP_TRANSACTION,
            0,
            EndGroupTransactionRequest(
                group_id=group,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=committed,
            ),
            _MARKERS_S,
        )
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code), response.error_message)

    # Questions

    async def ask_coordinator(self, question: Question, *, add: bool) -> Answers:
        """See :class:`~qbus.broker.transaction.coordinator.CoordinatorPeers`.

        Questions of one turn of the event loop to the same broker share one request.
        """
        coordinator = await self._own.transactions.coordinator(question.transactional_id)
        if coordinator is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if coordinator.id == self._node_id:
            return await self._own.transactions.answer(question, add=add)
        loop = asyncio.get_running_loop()
        asked = _Asked(question, loop.create_future())
        key = coordinator.id, add
        waiting = self._asked.get(key)
        if waiting is None:
            waiting = self._asked[key] = []
            loop.call_soon(self._send_questions, coordinator.id, add)
        waiting.append(asked)
        return await asked.answers

    def _send_questions(self, broker: int, add: bool) -> None:
        asked = self._asked.pop((broker, add))
        task = asyncio.get_running_loop().create_task(self._ask(broker, asked, add=add))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, broker: int, asked: list["_Asked"], *, add: bool) -> None:
        if self._questions is None:
            self._questions = self._connect()
        request = AddPartitionsToTxnRequest(
            transactions=[_transaction(one.question, add=add) for one in asked]
        )
        try:
            response: AddPartitionsToTxnResponse = await self._questions.send(
                broker, ApiKey.ADD_PARTITIONS_TO_TXN, _QUESTION_VERSION, request, _QUESTION_S
            )
            if response.error_code:
                raise ApiError(ErrorCode(response.error_code))
            results = response.results_by_transaction
            if len(results) != len(asked):
                raise PeerError(f"broker {broker} answers {len(results)} of {len(asked)} questions")
            answers = [_answers(result) for result in results]
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody is left waiting
            for one in asked:
                one.fail(_as_known(error, broker))
        else:
            for one, answer in zip(asked, answers, strict=True):
                one.answer(answer)


def peer_client(config: BrokerConfig, metadata: MetadataCache) -> PeerClient:
    """A client of other brokers, as the coordinator needs it."""
    return PeerClient(
        metadata,
        PeerSettings.of(config, f"broker-{config.node_id}"),
    )


class _Asked:
    """A question on its way to another broker."""

    __slots__ = ("answers", "question")

    def __init__(self, question: Question, answers: "asyncio.Future[Answers]") -> None:
        self.question = question
        self.answers = answers

    def answer(self, answers: Answers) -> None:
        """It is answered."""
        if not self.answers.done():
            self.answers.set_result(answers)

    def fail(self, error: QbusError) -> None:
        """It cannot be asked."""
        if not self.answers.done():
            self.answers.set_exception(error)


def _as_known(error: Exception, broker: int) -> QbusError:
    if isinstance(error, QbusError):
        return error
    return PeerError(f"what broker {broker} answers cannot be read: {error!r}")


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """The indexes of partitions by topic."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(places):
        topics.setdefault(topic, []).append(index)
    return topics


def _writable(marker: Marker) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        transaction_result=marker.committed,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(marker.partitions).items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _told(results: Sequence[WritableTxnMarkerResult]) -> Told:
    return {
        (result.producer_id, (topic.name, one.partition_index)): ErrorCode(one.error_code)
        for result in results
        for topic in result.topics
        for one in topic.partitions
    }


def _transaction(question: Question, *, add: bool) -> AddPartitionsToTxnTransaction:
    producer_id, epoch = question.producer
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        verify_only=not add,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in by_topic(question.wanted.partitions).items()
        ],
        groups=sorted(question.wanted.groups),
    )


def _answers(result: AddPartitionsToTxnResult) -> Answers:
    answers: dict[Place | str, ErrorCode] = {
        (topic.name, one.partition_index): ErrorCode(one.partition_error_code)
        for topic in result.topic_results
        for one in topic.results_by_partition
    }
    for group in result.group_results:
        answers[group.group_id] = ErrorCode(group.error_code)
    return answers
