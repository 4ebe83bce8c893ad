"""Transactions, as coordinators and leaders describe them, and those that nobody will end."""

from collections.abc import Callable
from typing import Any

import pytest

from qbus.clients import Admin, HangingTransaction, PartialFailure, TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from qbus.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from qbus.wire.messages.init_producer_id import InitProducerIdResponse
from qbus.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from qbus.wire.messages.list_transactions import TransactionState as Listed
from qbus.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from qbus.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.fake_broker import NODE, FakeBroker

PLACE = TopicPartition("t", 0)
HANGING = HangingTransaction("t", 0, 5, 7, 2, 3, 1_000)


def described(state: str = "Ongoing", epoch: int = 2, **fields: Any) -> Callable[[Any], Any]:
    """An answer to DescribeTransactions about the id "x" of producer 7, which writes to t-0."""

    def answer(request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        (transactional_id,) = request.transactional_ids
        found = TransactionState(
            transactional_id=transactional_id,
            transaction_state=state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=1_000,
            producer_id=7,
            producer_epoch=epoch,
            topics=[TopicData(topic="t", partitions=[0, 1])],
        )
        for name, value in fields.items():
            setattr(found, name, value)
        return DescribeTransactionsResponse(transaction_states=[found])

    return answer


def listing(*names: str) -> Callable[[Any], Any]:
    def answer(_: ListTransactionsRequest) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            transaction_states=[
                Listed(transactional_id=name, producer_id=7, transaction_state="Ongoing")
                for name in names
            ]
        )

    return answer


def producers(*states: ProducerState) -> Callable[[Any], Any]:
    def answer(request: DescribeProducersRequest) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        PartitionResponse(partition_index=index, active_producers=list(states))
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


def open_since(offset: int, producer_id: int = 7, timestamp: int = 1_000) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=2,
        last_timestamp=timestamp,
        coordinator_epoch=3,
        current_txn_start_offset=offset,
    )


def marked(code: ErrorCode = ErrorCode.NONE) -> Callable[[Any], Any]:
    def answer(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=code
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

    return answer


async def test_ids_are_listed_by_name_with_their_coordinator() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.LIST_TRANSACTIONS] = listing("b", "a")
        found = await admin.list_transactions()
        assert [(one.transactional_id, one.coordinator) for one in found] == [
            ("a", NODE),
            ("b", NODE),
        ]


async def test_filters_are_the_broker_s() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.LIST_TRANSACTIONS] = listing()
        await admin.list_transactions(
            states=["Ongoing"], producer_ids=[7], min_duration_ms=5, pattern="a.*"
        )
        (request,) = broker.asked(ApiKey.LIST_TRANSACTIONS)
        assert request == ListTransactionsRequest(
            state_filters=["Ongoing"],
            producer_id_filters=[7],
            duration_filter=5,
            transactional_id_pattern="a.*",
        )


async def test_a_state_that_there_is_not_is_an_error() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.LIST_TRANSACTIONS] = lambda _: ListTransactionsResponse(
            unknown_state_filters=["Sleeping"]
        )
        with pytest.raises(ApiError, match="Sleeping"):
            await admin.list_transactions(states=["Sleeping"])


async def test_ids_of_the_brokers_that_answer() -> None:
    async with (
        FakeBroker() as broker,
        Admin(broker.bootstrap, request_timeout_ms=1000) as admin,
    ):
        honest = broker.metadata

        def with_a_dead_one(request: MetadataRequest) -> MetadataResponse:
            response = honest(request)
            response.brokers.append(MetadataResponseBroker(node_id=9, host="127.0.0.1", port=1))
            return response

        broker.handlers[ApiKey.METADATA] = with_a_dead_one
        broker.handlers[ApiKey.LIST_TRANSACTIONS] = listing("a")
        with pytest.raises(PartialFailure) as caught:
            await admin.list_transactions()
        assert [one.transactional_id for one in caught.value.results[NODE]] == ["a"]


@pytest.mark.parametrize(
    ("state", "start"), [("Ongoing", 1_000), ("PrepareAbort", 1_000), ("CompleteCommit", None)]
)
async def test_an_id_is_described_by_its_coordinator(state: str, start: int | None) -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.DESCRIBE_TRANSACTIONS] = described(state)
        found = (await admin.describe_transactions(["x"]))["x"]
        assert (found.state, found.start_time, found.timeout_ms) == (state, start, 60_000)
        assert (found.producer_id, found.producer_epoch, found.coordinator) == (7, 2, NODE)
        assert found.partitions == (("t", 0), ("t", 1))
        assert {request.key_type for request in broker.asked(ApiKey.FIND_COORDINATOR)} == {1}


async def test_an_id_that_nobody_knows() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        broker.handlers[ApiKey.DESCRIBE_TRANSACTIONS] = described(error_code=code)
        with pytest.raises(ApiError, match="transactional id x") as caught:
            await admin.describe_transaction("x")
        assert caught.value.code is code


async def test_a_coordinator_that_moved_is_looked_for() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        answers = [described(error_code=ErrorCode.NOT_COORDINATOR), described()]

        def answer(request: DescribeTransactionsRequest) -> Any:
            return answers.pop(0)(request)

        broker.handlers[ApiKey.DESCRIBE_TRANSACTIONS] = answer
        assert (await admin.describe_transaction("x")).state == "Ongoing"
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) > 1


async def test_fencing_begins_in_the_place_of_the_producer() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        answers = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
        broker.handlers[ApiKey.INIT_PRODUCER_ID] = lambda _: InitProducerIdResponse(
            error_code=answers.pop(0), producer_id=7, producer_epoch=3
        )
        await admin.fence_producers(["x"])
        first, second = broker.asked(ApiKey.INIT_PRODUCER_ID)
        assert first == second
        assert (first.transactional_id, first.producer_id) == ("x", -1)


class TestHanging:
    async def test_what_no_coordinator_knows_hangs(self) -> None:
        async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
            broker.handlers[ApiKey.DESCRIBE_PRODUCERS] = producers(open_since(5), open_since(-1, 8))
            broker.handlers[ApiKey.LIST_TRANSACTIONS] = listing()
            assert await admin.find_hanging_transactions([PLACE]) == [HANGING]
            (request,) = broker.asked(ApiKey.LIST_TRANSACTIONS)
            assert request.producer_id_filters == [7]

    async def test_what_is_young_is_not_looked_at(self) -> None:
        async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
            young = open_since(5, timestamp=2**50)
            broker.handlers[ApiKey.DESCRIBE_PRODUCERS] = producers(young)
            assert await admin.find_hanging_transactions([PLACE]) == []
            assert not broker.asked(ApiKey.LIST_TRANSACTIONS)

    @pytest.mark.parametrize(
        ("answer", "hangs"),
        [
            (described(), False),
            (described(epoch=3), True),
            (described(topics=[TopicData(topic="t", partitions=[1])]), True),
            (described(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), True),
        ],
    )
    async def test_a_coordinator_must_know_of_it_there_and_in_this_epoch(
        self, answer: Callable[[Any], Any], hangs: bool
    ) -> None:
        async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
            broker.handlers[ApiKey.DESCRIBE_PRODUCERS] = producers(open_since(5))
            broker.handlers[ApiKey.LIST_TRANSACTIONS] = listing("x")
            broker.handlers[ApiKey.DESCRIBE_TRANSACTIONS] = answer
            assert bool(await admin.find_hanging_transactions([PLACE])) is hangs

    async def test_a_coordinator_that_fails_is_an_error(self) -> None:
        async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
            broker.handlers[ApiKey.DESCRIBE_PRODUCERS] = producers(open_since(5))
            broker.handlers[ApiKey.LIST_TRANSACTIONS] = listing("x")
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            broker.handlers[ApiKey.DESCRIBE_TRANSACTIONS] = described(error_code=code)
            with pytest.raises(ApiError):
                await admin.find_hanging_transactions([PLACE])

    async def test_it_is_aborted_by_a_marker_in_its_partition_alone(self) -> None:
        async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
            broker.handlers[ApiKey.WRITE_TXN_MARKERS] = marked()
            await admin.abort_transaction(HANGING)
            ((marker,),) = [each.markers for each in broker.asked(ApiKey.WRITE_TXN_MARKERS)]
            assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (
                7,
                2,
                3,
            )
            assert marker.transaction_result is False
            assert [(t.name, t.partition_indexes) for t in marker.topics] == [("t", [0])]

    @pytest.mark.parametrize(
        "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    )
    async def test_a_partition_that_knows_better_refuses(self, code: ErrorCode) -> None:
        async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
            broker.handlers[ApiKey.WRITE_TXN_MARKERS] = marked(code)
            with pytest.raises(ApiError) as caught:
                await admin.abort_transaction(HANGING)
            assert caught.value.code is code
