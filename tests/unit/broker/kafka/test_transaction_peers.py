"""What a coordinator asks of other brokers: the requests they get, and what their answers mean."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from qbus.broker.kafka.transaction_peers import TransactionPeers
from qbus.broker.metadata.image import BrokerInfo
from qbus.broker.peers.connection import PeerError
from qbus.broker.transaction import Marker, Participants, Question
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.wire import ApiKey, Struct
from qbus.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnGroupResult,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from qbus.wire.messages.end_group_transaction import EndGroupTransactionResponse
from qbus.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

HERE, THERE = 1, 2
T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)

Answer = Callable[[Any], Struct]


class Wire:
    """Other brokers: they note what they are sent, and answer as a test wants."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, ApiKey, int, Any]] = []
        self.answer: Answer | None = None
        self.clients = 0
        self.is_closed = False

    def connect(self) -> "Wire":
        self.clients += 1
        return self

    async def send(
        self, broker_id: int, api: ApiKey, version: int, message: Struct, timeout: float
    ) -> Any:
        self.sent.append((broker_id, api, version, message))
        await asyncio.sleep(0)
        if self.answer is None:
            raise PeerError("broker 2 is not reached")
        return self.answer(message)

    def close(self) -> None:
        self.is_closed = True


class Services:
    """This broker's own coordinators, and where others are."""

    def __init__(self) -> None:
        self.leader: BrokerInfo | None = BrokerInfo(THERE, "there", 9092)
        self.ended: list[tuple[Any, ...]] = []

    async def coordinator(self, _: str) -> BrokerInfo | None:
        return self.leader

    find_coordinator = coordinator

    async def answer(self, question: Question, *, add: bool) -> dict[Any, ErrorCode]:
        return dict.fromkeys(question.wanted.partitions, ErrorCode.NONE if add else ErrorCode(120))

    async def end_transaction(
        self, group: str, producer_id: int, epoch: int, *, committed: bool
    ) -> None:
        self.ended.append((group, producer_id, epoch, committed))


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def services() -> Services:
    return Services()


@pytest.fixture
def peers(wire: Wire, services: Services) -> TransactionPeers:
    made = TransactionPeers(HERE, wire.connect)
    broker: Any = SimpleNamespace(transactions=services, groups=services)
    made.serve(broker)
    return made


def question(name: str, *partitions: tuple[str, int], groups: tuple[str, ...] = ()) -> Question:
    return Question(name, (7, 3), Participants(frozenset(partitions), frozenset(groups)))


def codes(code: ErrorCode) -> Answer:
    """An answer to questions: the same code for all."""

    def answer(request: Any) -> Struct:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index, partition_error_code=code
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in one.topics
                    ],
                    group_results=[
                        AddPartitionsToTxnGroupResult(group_id=group, error_code=code)
                        for group in one.groups
                    ],
                )
                for one in request.transactions
            ]
        )

    return answer


class TestQuestions:
    async def test_of_one_turn_share_a_request(self, peers: TransactionPeers, wire: Wire) -> None:
        wire.answer = codes(ErrorCode.NONE)
        of_a, of_b = await asyncio.gather(
            peers.ask_coordinator(question("a", T0, T1, U0), add=True),
            peers.ask_coordinator(question("b", T0, groups=("g",)), add=True),
        )
        assert of_a == dict.fromkeys((T0, T1, U0), ErrorCode.NONE)
        assert of_b == {T0: ErrorCode.NONE, "g": ErrorCode.NONE}
        ((broker, api, version, request),) = wire.sent
        assert (broker, api, version) == (THERE, ApiKey.ADD_PARTITIONS_TO_TXN, 5)
        first, second = request.transactions
        assert (first.producer_id, first.producer_epoch, first.verify_only) == (7, 3, False)
        assert [(one.name, one.partitions) for one in first.topics] == [("t", [0, 1]), ("u", [0])]
        assert second.groups == ["g"]

    async def test_that_only_verify_go_apart_from_those_that_add(
        self, peers: TransactionPeers, wire: Wire
    ) -> None:
        wire.answer = codes(ErrorCode.TRANSACTION_ABORTABLE)
        for answer in await asyncio.gather(
            peers.ask_coordinator(question("a", T0), add=True),
            peers.ask_coordinator(question("a", T0), add=False),
        ):
            assert answer == {T0: ErrorCode.TRANSACTION_ABORTABLE}
        verifies = [request.transactions[0].verify_only for *_, request in wire.sent]
        assert sorted(verifies) == [False, True]

    async def test_about_transactions_of_this_broker_are_answered_here(
        self, peers: TransactionPeers, wire: Wire, services: Services
    ) -> None:
        services.leader = BrokerInfo(HERE, "here", 9092)
        assert await peers.ask_coordinator(question("a", T0), add=True) == {T0: ErrorCode.NONE}
        assert wire.sent == []

    async def test_fail_for_all_who_asked_when_a_broker_is_not_reached(
        self, peers: TransactionPeers
    ) -> None:
        answers = await asyncio.gather(
            peers.ask_coordinator(question("a", T0), add=True),
            peers.ask_coordinator(question("b", T0), add=True),
            return_exceptions=True,
        )
        assert all(isinstance(answer, PeerError) for answer in answers)

    @pytest.mark.parametrize(
        ("response", "message"),
        [
            (
                AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
                "CLUSTER_AUTHORIZATION_FAILED",
            ),
            (AddPartitionsToTxnResponse(), "answers 0 of 1"),
            (
                AddPartitionsToTxnResponse(
                    results_by_transaction=[
                        AddPartitionsToTxnResult(
                            transactional_id="a",
                            topic_results=[
                                AddPartitionsToTxnTopicResult(
                                    name="t",
                                    results_by_partition=[
                                        AddPartitionsToTxnPartitionResult(
                                            partition_index=0, partition_error_code=31_999
                                        )
                                    ],
                                )
                            ],
                        )
                    ]
                ),
                "cannot be read",
            ),
        ],
    )
    async def test_fail_when_the_answer_is_none(
        self, peers: TransactionPeers, wire: Wire, response: Struct, message: str
    ) -> None:
        wire.answer = lambda _: response
        with pytest.raises(QbusError, match=message):
            async with asyncio.timeout(5):
                await peers.ask_coordinator(question("a", T0), add=True)

    async def test_without_a_coordinator_are_refused(
        self, peers: TransactionPeers, services: Services
    ) -> None:
        services.leader = None
        with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
            await peers.ask_coordinator(question("a", T0), add=True)

    async def test_that_nobody_waits_for_any_more_hinder_no_other(
        self, peers: TransactionPeers, wire: Wire
    ) -> None:
        wire.answer = codes(ErrorCode.NONE)
        gone = asyncio.ensure_future(peers.ask_coordinator(question("a", T0), add=True))
        asked = asyncio.ensure_future(peers.ask_coordinator(question("b", T0), add=True))
        await asyncio.sleep(0)
        gone.cancel()
        assert await asked == {T0: ErrorCode.NONE}


class TestMarkers:
    async def test_are_sent_with_the_transaction_version(
        self, peers: TransactionPeers, wire: Wire
    ) -> None:
        wire.answer = lambda request: WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=6 if index else 0
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )
        marker = Marker(7, 4, 9, True, 2, (T0, T1))
        assert await peers.write(THERE, [marker]) == {
            (7, T0): ErrorCode.NONE,
            (7, T1): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }
        ((_, api, version, request),) = wire.sent
        assert (api, version) == (ApiKey.WRITE_TXN_MARKERS, 2)
        (sent,) = request.markers
        assert (sent.producer_epoch, sent.coordinator_epoch) == (4, 9)
        assert (sent.transaction_result, sent.transaction_version) == (True, 2)

    async def test_have_a_connection_of_their_own(
        self, peers: TransactionPeers, wire: Wire
    ) -> None:
        wire.answer = codes(ErrorCode.NONE)
        await peers.ask_coordinator(question("a", T0), add=True)
        wire.answer = lambda _: WriteTxnMarkersResponse()
        await peers.write(THERE, [Marker(7, 4, 9, True, 2, (T0,))])
        assert wire.clients == 2
        peers.close()
        assert wire.is_closed

    async def test_are_not_written_before_the_broker_is_there(self, wire: Wire) -> None:
        starting = TransactionPeers(HERE, wire.connect)
        with pytest.raises(ApiError, match="is starting"):
            starting.write_own(HERE, [Marker(7, 4, 9, True, 2, (T0,))], print)

    async def test_for_partitions_of_another_broker_are_sent(
        self, peers: TransactionPeers, wire: Wire
    ) -> None:
        assert not peers.write_own(THERE, [Marker(7, 4, 9, True, 2, (T0,))], print)
        assert wire.sent == []


class TestGroups:
    async def test_are_told_by_their_coordinator(self, peers: TransactionPeers, wire: Wire) -> None:
        wire.answer = lambda _: EndGroupTransactionResponse()
        await peers.end_group("g", 7, 3, committed=True)
        ((broker, api, _, request),) = wire.sent
        assert (broker, api) == (THERE, ApiKey.END_GROUP_TRANSACTION)
        assert (request.group_id, request.producer_id, request.producer_epoch) == ("g", 7, 3)
        assert request.committed

    async def test_of_this_broker_are_told_here(
        self, peers: TransactionPeers, wire: Wire, services: Services
    ) -> None:
        services.leader = BrokerInfo(HERE, "here", 9092)
        await peers.end_group("g", 7, 3, committed=False)
        assert services.ended == [("g", 7, 3, False)]
        assert wire.sent == []

    async def test_that_refuse_have_to_be_told_again(
        self, peers: TransactionPeers, wire: Wire, services: Services
    ) -> None:
        wire.answer = lambda _: EndGroupTransactionResponse(error_code=16, error_message="moved")
        with pytest.raises(ApiError, match="moved"):
            await peers.end_group("g", 7, 3, committed=True)
        services.leader = None
        with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
            await peers.end_group("g", 7, 3, committed=True)
