"""Transactions of the producer, with coordinators of version 1 and 2, and when they fail."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest

from qbus import Producer as BlockingProducer
from qbus.clients import (
    Consumer,
    GroupMetadata,
    Producer,
    ProducerFenced,
    RequestTimedOut,
    TransactionAborted,
    TransactionFailed,
)
from qbus.clients.producer.queue import PartitionQueue
from qbus.errors import ApiError, ConfigError, ErrorCode, QbusError
from qbus.records import read_header
from qbus.wire import ApiKey
from qbus.wire.messages.end_txn import EndTxnResponse
from qbus.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from qbus.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from qbus.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.support.fake_broker import FakeBroker, Hangup
from tests.support.fake_transactions import FakeTransactions
from tests.support.waiting import eventually

Honest = Callable[[], Any]
Spoiler = Callable[[Honest], Any]
QUICK: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 10, "retry_backoff_max_ms": 20}

both_versions = pytest.mark.parametrize("version", [1, 2])


@asynccontextmanager
async def transactional(
    version: int = 2, topics: dict[str, int] | None = None, **options: Any
) -> AsyncIterator[tuple[Producer, FakeTransactions]]:
    async with FakeBroker(topics) as broker:
        coordinator = FakeTransactions(broker, version)
        async with Producer(
            broker.bootstrap, transactional_id="id", **{**QUICK, **options}
        ) as producer:
            yield producer, coordinator


async def fail_after(producer: Producer, value: bytes) -> None:
    """Send in a transaction, and fail before its end."""
    async with producer.transaction():
        await producer.send_and_wait("t", value)
        raise ZeroDivisionError


async def send(producer: Producer, value: bytes, then: Callable[[], object]) -> None:
    """Send in a transaction, and do something before its end."""
    async with producer.transaction():
        await producer.send_and_wait("t", value)
        outcome = then()
        if asyncio.iscoroutine(outcome):
            await outcome


def fail_in_thread(producer: BlockingProducer, value: bytes) -> None:
    with producer.transaction():
        producer.send_and_wait("t", value)
        raise ZeroDivisionError


def refusing(code: ErrorCode) -> Spoiler:
    """An answer to EndTxn, InitProducerId or AddOffsetsToTxn that does nothing."""

    def refuse(_: Honest) -> Any:
        return EndTxnResponse(error_code=code)

    return refuse


def losing_the_answer(honest: Honest) -> Any:
    honest()
    raise Hangup


def losing_the_request(_: Honest) -> Any:
    raise Hangup


def refusing_the_batch(code: ErrorCode) -> Spoiler:
    def refuse(_: Honest) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name="t",
                    partition_responses=[PartitionProduceResponse(index=0, error_code=code)],
                )
            ]
        )

    return refuse


def refusing_the_offsets(code: ErrorCode) -> Spoiler:
    def refuse(_: Honest) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
                    ],
                )
            ]
        )

    return refuse


class TestCommit:
    @both_versions
    async def test_leaving_commits_what_was_sent(self, version: int) -> None:
        async with transactional(version) as (producer, coordinator):
            async with producer.transaction():
                delivery = await producer.send("t", b"a")
                await producer.send_many("t", [b"b", b"c"])
            assert coordinator.committed == [[b"a", b"b", b"c"]]
            assert (await delivery).offset == 0

    @both_versions
    async def test_one_transaction_after_another(self, version: int) -> None:
        async with transactional(version, {"t": 1, "u": 3}) as (producer, coordinator):
            for number in range(5):
                async with producer.transaction():
                    await producer.send("t", b"%d" % number)
                    await producer.send_many("u", [b"x"] * 3, partition=number % 3)
            assert [values[0] for values in coordinator.committed] == [b"%d" % n for n in range(5)]
            assert coordinator.aborted == []

    async def test_a_coordinator_of_version_2_raises_the_epoch_each_time(self) -> None:
        async with transactional(2) as (producer, coordinator):
            for _ in range(3):
                async with producer.transaction():
                    await producer.send("t", b"a")
            headers = [read_header(batch) for batch in coordinator.broker.logs["t", 0].batches]
            assert [header.producer_epoch for header in headers] == [0, 1, 2]
            assert [header.base_sequence for header in headers] == [0, 0, 0]
            assert not coordinator.broker.asked(ApiKey.ADD_PARTITIONS_TO_TXN)

    async def test_with_version_1_sequences_go_on_and_partitions_are_told_first(self) -> None:
        async with transactional(1) as (producer, coordinator):
            for _ in range(3):
                async with producer.transaction():
                    await producer.send_many("t", [b"a", b"b"])
            headers = [read_header(batch) for batch in coordinator.broker.logs["t", 0].batches]
            assert {header.producer_epoch for header in headers} == {0}
            assert [header.base_sequence for header in headers] == [0, 2, 4]
            asked = [api for api, _, _ in coordinator.broker.requests]
            assert asked.index(ApiKey.ADD_PARTITIONS_TO_TXN) < asked.index(ApiKey.PRODUCE)

    @pytest.mark.parametrize(("version", "produce", "end"), [(1, 11, 4), (2, 12, 5)])
    async def test_requests_of_version_1_are_in_the_versions_of_that_time(
        self, version: int, produce: int, end: int
    ) -> None:
        async with transactional(version) as (producer, coordinator):
            async with producer.transaction():
                await producer.send("t", b"a")
                await producer.send_offsets({("t", 0): 1}, "g")
            spoken = {api: number for api, number, _ in coordinator.broker.requests}
            assert spoken[ApiKey.PRODUCE] == produce
            assert spoken[ApiKey.END_TXN] == end
            assert spoken[ApiKey.TXN_OFFSET_COMMIT] == (4 if version == 1 else 5)

    @both_versions
    async def test_a_transaction_without_anything_asks_for_no_end(self, version: int) -> None:
        async with transactional(version) as (producer, coordinator):
            async with producer.transaction():
                pass
            assert not coordinator.broker.asked(ApiKey.END_TXN)

    async def test_every_form_of_sending(self) -> None:
        async with transactional(topics={"t": 2}) as (producer, coordinator):
            async with producer.transaction():
                await producer.send("t", b"1", b"key", [("h", b"x")], timestamp=5)
                await producer.send_and_wait("t", b"2")
                await producer.send_many("t", [b"3", b"4"], keys=[b"a", b"b"])
                await producer.send_arrow("t", pa.table({"value": [b"5", b"6"]}))
                await producer.flush()
            (values,) = coordinator.committed
            assert sorted(map(str, values)) == sorted(
                map(str, [b"1", b"2", b"3", b"4", b"5", b"6"])
            )

    async def test_a_transaction_is_begun_and_committed_without_a_block(self) -> None:
        async with transactional() as (producer, coordinator):
            await producer.begin_transaction()
            await producer.send("t", b"a")
            await producer.commit_transaction()
            assert coordinator.committed == [[b"a"]]

    async def test_ending_it_inside_of_the_block_is_an_end(self) -> None:
        async with transactional() as (producer, coordinator):
            async with producer.transaction():
                await producer.send_and_wait("t", b"a")
                await producer.abort_transaction()
            assert (coordinator.committed, coordinator.aborted) == ([], [[b"a"]])

    @both_versions
    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        ],
    )
    async def test_an_end_that_is_put_off_is_asked_for_again(
        self, version: int, code: ErrorCode
    ) -> None:
        async with transactional(version) as (producer, coordinator):
            coordinator.spoil(ApiKey.END_TXN, refusing(code), refusing(code))
            async with producer.transaction():
                await producer.send("t", b"a")
            assert coordinator.committed == [[b"a"]]

    @both_versions
    @pytest.mark.parametrize("loss", [losing_the_request, losing_the_answer])
    async def test_an_end_whose_answer_is_lost_is_asked_for_again(
        self, version: int, loss: Spoiler
    ) -> None:
        async with transactional(version) as (producer, coordinator):
            coordinator.spoil(ApiKey.END_TXN, loss)
            for value in (b"a", b"b"):
                async with producer.transaction():
                    await producer.send("t", value)
            assert coordinator.committed == [[b"a"], [b"b"]]

    @both_versions
    @pytest.mark.parametrize("loss", [losing_the_request, losing_the_answer])
    async def test_batches_are_retried_within_their_transaction(
        self, version: int, loss: Spoiler
    ) -> None:
        async with transactional(version) as (producer, coordinator):
            coordinator.spoil(ApiKey.PRODUCE, loss)
            async with producer.transaction():
                await producer.send("t", b"a")
            assert coordinator.committed == [[b"a"]]

    async def test_while_markers_are_written_the_next_transaction_waits_a_little(self) -> None:
        async with transactional(2) as (producer, coordinator):
            busy = refusing_the_batch(ErrorCode.CONCURRENT_TRANSACTIONS)
            await producer.partitions("t")
            asked = len(coordinator.broker.asked(ApiKey.METADATA))
            coordinator.spoil(ApiKey.PRODUCE, busy, busy)
            async with asyncio.timeout(2), producer.transaction():
                await producer.send("t", b"a")
            assert coordinator.committed == [[b"a"]]
            assert len(coordinator.broker.asked(ApiKey.METADATA)) == asked, "the leader is known"

    @both_versions
    async def test_a_commit_that_is_not_known_is_asked_for_again_by_the_user(
        self, version: int
    ) -> None:
        async with transactional(version, delivery_timeout_ms=300) as (producer, coordinator):
            coordinator.spoil(ApiKey.END_TXN, losing_the_answer, *[losing_the_request] * 100)
            with pytest.raises(RequestTimedOut, match="committed is not known"):
                async with producer.transaction():
                    await producer.send("t", b"a")
            with pytest.raises(QbusError, match="commit_transaction again"):
                await producer.begin_transaction()
            coordinator.spoil(ApiKey.END_TXN)
            await producer.commit_transaction()
            assert coordinator.committed == [[b"a"]]
            async with producer.transaction():
                await producer.send("t", b"b")
            assert coordinator.committed == [[b"a"], [b"b"]]


class TestAbort:
    @both_versions
    async def test_an_exception_aborts(self, version: int) -> None:
        async with transactional(version) as (producer, coordinator):
            with pytest.raises(ZeroDivisionError):
                await fail_after(producer, b"a")
            assert (coordinator.committed, coordinator.aborted) == ([], [[b"a"]])
            async with producer.transaction():
                await producer.send("t", b"b")
            assert coordinator.committed == [[b"b"]]

    @both_versions
    async def test_what_was_not_sent_yet_is_not_sent(self, version: int) -> None:
        async with transactional(version, linger_ms=60_000) as (producer, coordinator):
            await producer.begin_transaction()
            delivery = await producer.send("t", b"a")
            await producer.abort_transaction()
            with pytest.raises(TransactionAborted):
                await delivery
            assert not coordinator.broker.asked(ApiKey.PRODUCE)

    @both_versions
    async def test_what_is_in_flight_is_waited_for(self, version: int) -> None:
        """Otherwise it could get into the next transaction."""
        may_answer = asyncio.Event()
        async with transactional(version) as (producer, coordinator):
            honest = coordinator.broker.handlers[ApiKey.PRODUCE]

            async def slow(request: Any) -> Any:
                await may_answer.wait()
                return honest(request)

            coordinator.broker.handlers[ApiKey.PRODUCE] = slow
            await producer.begin_transaction()
            await producer.send("t", b"a")
            await eventually(lambda: coordinator.broker.asked(ApiKey.PRODUCE))
            aborting = asyncio.create_task(producer.abort_transaction())
            await asyncio.sleep(0.05)
            assert not coordinator.broker.asked(ApiKey.END_TXN)
            may_answer.set()
            await aborting
            assert coordinator.aborted == [[b"a"]]
            async with producer.transaction():
                await producer.send("t", b"b")
            assert coordinator.committed == [[b"b"]]

    async def test_with_version_1_the_next_one_has_another_epoch(self) -> None:
        """What was sent before, and is still on its way, is refused then."""
        async with transactional(1) as (producer, coordinator):
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"a")
            await producer.abort_transaction()
            assert coordinator.entry("id").epoch == 1

    @both_versions
    async def test_an_abort_that_fails_is_made_up_for_before_the_next_transaction(
        self, version: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with transactional(version, delivery_timeout_ms=300) as (producer, coordinator):
            coordinator.spoil(ApiKey.END_TXN, *[losing_the_request] * 100)
            with pytest.raises(ZeroDivisionError):
                await fail_after(producer, b"a")
            assert "the next one begins with it" in caplog.text
            coordinator.spoil(ApiKey.END_TXN)
            async with producer.transaction():
                await producer.send("t", b"b")
            assert (coordinator.committed, coordinator.aborted) == ([[b"b"]], [[b"a"]])

    async def test_a_cancelled_transaction_is_aborted(self) -> None:
        async with transactional() as (producer, coordinator):

            async def work() -> None:
                async with producer.transaction():
                    await producer.send_and_wait("t", b"a")
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await eventually(lambda: coordinator.broker.asked(ApiKey.PRODUCE))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert coordinator.aborted == [[b"a"]]

    async def test_closing_aborts_what_is_open(self) -> None:
        async with FakeBroker() as broker:
            coordinator = FakeTransactions(broker)
            async with Producer(broker.bootstrap, transactional_id="id", **QUICK) as producer:
                await producer.begin_transaction()
                await producer.send_and_wait("t", b"a")
            assert coordinator.aborted == [[b"a"]]


class TestFailure:
    @both_versions
    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.INVALID_RECORD,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ],
    )
    async def test_a_record_that_is_not_stored_aborts_the_transaction(
        self, version: int, code: ErrorCode
    ) -> None:
        async with transactional(version) as (producer, coordinator):
            coordinator.spoil(ApiKey.PRODUCE, refusing_the_batch(code))
            with pytest.raises(TransactionAborted) as caught:
                async with producer.transaction():
                    await producer.send("t", b"a")
            assert caught.value.code is code
            assert not caught.value.is_fatal
            assert coordinator.committed == []
            async with producer.transaction():
                await producer.send("t", b"a")
            assert coordinator.committed == [[b"a"]]

    @pytest.mark.parametrize(
        ("code", "retriable"),
        [
            (ErrorCode.TRANSACTION_ABORTABLE, True),
            (ErrorCode.ILLEGAL_GENERATION, True),
            (ErrorCode.REQUEST_TIMED_OUT, True),
            (ErrorCode.INVALID_RECORD, False),
            (ErrorCode.MESSAGE_TOO_LARGE, False),
            (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
        ],
    )
    def test_what_helps_is_to_do_it_again_unless_a_record_was_refused(
        self, code: ErrorCode, retriable: bool
    ) -> None:
        assert TransactionAborted(code).retriable is retriable

    async def test_a_record_that_expires_aborts_the_transaction(self) -> None:
        async with transactional(delivery_timeout_ms=300) as (producer, coordinator):
            coordinator.spoil(ApiKey.PRODUCE, *[losing_the_request] * 1000)
            with pytest.raises(TransactionAborted) as caught:
                async with producer.transaction():
                    await producer.send("t", b"a")
            assert isinstance(caught.value.__cause__, RequestTimedOut)

    async def test_nothing_more_can_be_sent_in_a_failed_transaction(self) -> None:
        async with transactional() as (producer, coordinator):
            coordinator.spoil(
                ApiKey.PRODUCE,
                refusing_the_batch(ErrorCode.INVALID_RECORD),
                lambda honest: honest(),
            )
            await producer.begin_transaction()
            delivery = await producer.send("t", b"a")
            with pytest.raises(ApiError, match="INVALID_RECORD"):
                await delivery
            with pytest.raises(TransactionAborted):
                await producer.send("t", b"b")
            with pytest.raises(TransactionAborted):
                await producer.send_many("t", [b"b"])
            with pytest.raises(TransactionAborted):
                await producer.send_offsets({("t", 0): 1}, "g")
            with pytest.raises(TransactionAborted):
                await producer.commit_transaction()
            async with producer.transaction():
                await producer.send("t", b"c")
            assert coordinator.committed == [[b"c"]]

    async def test_outside_of_a_transaction_nothing_can_be_sent(self) -> None:
        async with transactional() as (producer, _):
            for _ in range(2):
                with pytest.raises(QbusError, match=r"with producer\.transaction\(\)"):
                    await producer.send("t", b"a")
                async with producer.transaction():
                    await producer.send("t", b"a")

    async def test_a_transaction_is_not_begun_twice(self) -> None:
        async with transactional() as (producer, _), producer.transaction():
            with pytest.raises(QbusError, match="open already"):
                await producer.begin_transaction()

    async def test_nothing_is_ended_that_is_not_open(self) -> None:
        async with transactional() as (producer, _):
            for end in (producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(QbusError, match="no transaction is open"):
                    await end()

    @both_versions
    async def test_a_later_producer_with_the_same_id_fences_this_one(self, version: int) -> None:
        async with transactional(version) as (producer, coordinator):
            async with producer.transaction():
                await producer.send("t", b"a")
            async with Producer(
                coordinator.broker.bootstrap, transactional_id="id", **QUICK
            ) as later:
                await later.init_transactions()
                with pytest.raises(ProducerFenced) as caught:
                    async with producer.transaction():
                        await producer.send("t", b"b")
                assert caught.value.is_fatal
                for _ in range(2):
                    with pytest.raises(ProducerFenced):
                        await producer.begin_transaction()
                    with pytest.raises(ProducerFenced):
                        await producer.send("t", b"c")
                async with later.transaction():
                    await later.send("t", b"d")
            assert coordinator.committed == [[b"a"], [b"d"]]

    @both_versions
    async def test_a_transaction_that_its_coordinator_has_ended_can_be_done_again(
        self, version: int
    ) -> None:
        async with transactional(version) as (producer, coordinator):
            with pytest.raises(TransactionAborted):
                await send(producer, b"a", lambda: coordinator.time_out("id"))
            async with producer.transaction():
                await producer.send("t", b"b")
            assert (coordinator.committed, coordinator.aborted) == ([[b"b"]], [[b"a"]])

    @both_versions
    async def test_an_end_without_a_transaction_is_an_abort(self, version: int) -> None:
        async with transactional(version) as (producer, coordinator):
            coordinator.spoil(ApiKey.END_TXN, refusing(ErrorCode.INVALID_TXN_STATE))
            with pytest.raises(TransactionAborted):
                await send(producer, b"a", lambda: None)
            async with producer.transaction():
                await producer.send("t", b"b")
            assert coordinator.committed == [[b"b"]]

    @pytest.mark.parametrize(
        "code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST]
    )
    async def test_a_refused_identity_is_fatal(self, code: ErrorCode) -> None:
        async with transactional() as (producer, coordinator):
            coordinator.spoil(ApiKey.INIT_PRODUCER_ID, refusing(code))
            with pytest.raises(TransactionFailed) as caught:
                await producer.init_transactions()
            assert caught.value.code is code
            with pytest.raises(TransactionFailed):
                await producer.begin_transaction()

    async def test_a_transaction_that_only_the_coordinator_gives_up(self) -> None:
        async with transactional() as (producer, coordinator):
            coordinator.spoil(ApiKey.END_TXN, refusing(ErrorCode.TRANSACTION_ABORTABLE))
            with pytest.raises(TransactionAborted):
                async with producer.transaction():
                    await producer.send("t", b"a")
            assert coordinator.aborted == [[b"a"]]

    async def test_partitions_that_the_coordinator_refuses_abort_the_transaction(self) -> None:
        async with transactional(1) as (producer, coordinator):
            honest = coordinator.broker.handlers[ApiKey.ADD_PARTITIONS_TO_TXN]

            def refuse(request: Any) -> Any:
                response = honest(request)
                for topic in response.results_by_topic_v3_and_below:
                    for part in topic.results_by_partition:
                        part.partition_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                return response

            coordinator.broker.handlers[ApiKey.ADD_PARTITIONS_TO_TXN] = refuse
            with pytest.raises(TransactionAborted) as caught:
                async with producer.transaction():
                    await producer.send("t", b"a")
            assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert not coordinator.broker.asked(ApiKey.PRODUCE)

    async def test_a_coordinator_that_moves_is_looked_for(self) -> None:
        async with transactional() as (producer, coordinator):
            broker = coordinator.broker
            answers = [
                FindCoordinatorResponse(
                    coordinators=[
                        Coordinator(key="id", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
                    ]
                )
            ]
            broker.handlers[ApiKey.FIND_COORDINATOR] = lambda request: (
                answers.pop() if answers else broker.find_coordinator(request)
            )
            async with producer.transaction():
                await producer.send("t", b"a")
            kinds = {request.key_type for request in broker.asked(ApiKey.FIND_COORDINATOR)}
            assert kinds == {1}

    async def test_orders_are_no_part_of_a_transaction(self) -> None:
        async with transactional() as (producer, _):
            with pytest.raises(QbusError, match="another producer"):
                await producer.cancel("t", 0, 0)

    async def test_without_an_id_there_are_no_transactions(self) -> None:
        async with FakeBroker() as broker, Producer(broker.bootstrap) as producer:
            with pytest.raises(ConfigError, match="transactional_id"):
                producer.transaction()
            with pytest.raises(ConfigError, match="transactional_id"):
                await producer.begin_transaction()

    @pytest.mark.parametrize(
        "options",
        [
            {"transactional_id": ""},
            {"acks": 1},
            {"idempotent": False},
            {"spool_dir": "/tmp/spool"},
            {"transaction_timeout_ms": 0},
        ],
    )
    def test_options_that_contradict_transactions(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            Producer("127.0.0.1:1", **{"transactional_id": "id", **options})


class TestOffsets:
    @both_versions
    async def test_offsets_are_committed_with_the_transaction(self, version: int) -> None:
        async with transactional(version) as (producer, coordinator):
            committed = coordinator.broker.committed
            await producer.begin_transaction()
            await producer.send_offsets({("t", 0): 7}, "g")
            assert committed == {}
            await producer.commit_transaction()
            assert committed == {("g", "t", 0): 7}
            await producer.begin_transaction()
            await producer.send_offsets({("t", 0): 9}, GroupMetadata("g", "m", 3, "i"))
            await producer.abort_transaction()
            assert committed == {("g", "t", 0): 7}
            request = coordinator.broker.asked(ApiKey.TXN_OFFSET_COMMIT)[-1]
            assert (request.member_id, request.generation_id) == ("m", 3)
            assert request.group_instance_id == "i"
            expected = 2 if version == 1 else 0
            assert len(coordinator.broker.asked(ApiKey.ADD_OFFSETS_TO_TXN)) == expected

    @both_versions
    async def test_a_consumer_s_positions_are_committed(self, version: int) -> None:
        async with transactional(version) as (producer, coordinator):
            broker = coordinator.broker
            async with Producer(broker.bootstrap) as plain:
                await (await plain.send_many("t", [b"1", b"2", b"3"]))
            async with Consumer(
                broker.bootstrap, group="g", auto_commit=False, offset_reset="earliest"
            ) as consumer:
                consumer.assign([("t", 0)])
                async with producer.transaction():
                    await eventually(lambda: consumer.poll(0.1))
                    await producer.send_offsets(consumer)
                assert broker.committed == {("g", "t", 0): 3}
                consumer.seek("t", 0, 1)
                consumer.seek_to_committed()
                await eventually(lambda: _polled(consumer))
                assert consumer.position("t", 0) == 3

    @both_versions
    async def test_positions_in_a_deleted_topic_abort_the_transaction(self, version: int) -> None:
        async with transactional(version) as (producer, coordinator):
            broker = coordinator.broker
            broker.ids["t"] = b"1" * 16
            async with Producer(broker.bootstrap) as plain:
                await (await plain.send_many("t", [b"1", b"2", b"3"]))
            async with Consumer(
                broker.bootstrap, group="g", auto_commit=False, offset_reset="earliest"
            ) as consumer:
                consumer.assign([("t", 0)])
                await eventually(lambda: consumer.poll(0.1))
                broker.ids["t"] = b"2" * 16
                with pytest.raises(TransactionAborted, match="deleted and created again"):
                    async with producer.transaction():
                        await producer.send_offsets(consumer)
            assert broker.committed == {}

    async def test_a_consumer_that_commits_by_itself_is_refused(self) -> None:
        async with (
            transactional() as (producer, coordinator),
            Consumer(coordinator.broker.bootstrap, group="g") as consumer,
            producer.transaction(),
        ):
            with pytest.raises(ConfigError, match="auto_commit=False"):
                await producer.send_offsets(consumer)

    async def test_offsets_need_a_group_and_a_consumer_has_one(self) -> None:
        async with (
            transactional() as (producer, coordinator),
            Consumer(coordinator.broker.bootstrap, group="g", auto_commit=False) as consumer,
            producer.transaction(),
        ):
            with pytest.raises(TypeError, match="need a group"):
                await producer.send_offsets({("t", 0): 1})
            with pytest.raises(TypeError, match="has a group"):
                await producer.send_offsets(consumer, "g")

    async def test_no_offsets_are_no_request(self) -> None:
        async with transactional() as (producer, coordinator):
            async with producer.transaction():
                await producer.send_offsets({}, "g")
            assert not coordinator.broker.asked(ApiKey.TXN_OFFSET_COMMIT)
            assert not coordinator.broker.asked(ApiKey.END_TXN)

    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ],
    )
    async def test_a_group_that_refuses_aborts_the_transaction(self, code: ErrorCode) -> None:
        async with transactional() as (producer, coordinator):
            coordinator.spoil(ApiKey.TXN_OFFSET_COMMIT, refusing_the_offsets(code))
            with pytest.raises(TransactionAborted) as caught:
                await send(producer, b"a", lambda: producer.send_offsets({("t", 0): 1}, "g"))
            assert caught.value.code is code
            assert coordinator.aborted == [[b"a"]]

    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ],
    )
    async def test_a_group_that_is_not_ready_is_asked_again(self, code: ErrorCode) -> None:
        async with transactional() as (producer, coordinator):
            coordinator.spoil(ApiKey.TXN_OFFSET_COMMIT, refusing_the_offsets(code))
            async with producer.transaction():
                await producer.send_offsets({("t", 0): 1}, "g")
            assert coordinator.broker.committed == {("g", "t", 0): 1}


async def _polled(consumer: Consumer) -> bool:
    await consumer.poll(0.05)
    return consumer.position("t", 0) is not None


class TestBlocking:
    @both_versions
    async def test_the_blocking_producer_does_the_same(self, version: int) -> None:
        async with FakeBroker() as broker:
            coordinator = FakeTransactions(broker, version)

            def work() -> None:
                with BlockingProducer(broker.bootstrap, transactional_id="id", **QUICK) as producer:
                    with producer.transaction():
                        producer.send("t", b"a")
                        producer.send_offsets({("t", 0): 1}, "g")
                    with pytest.raises(ZeroDivisionError):
                        fail_in_thread(producer, b"b")
                    with pytest.raises(QbusError, match="inside of a transaction"):
                        producer.send("t", b"c")
                    producer.begin_transaction()
                    producer.send("t", b"d")
                    producer.commit_transaction()

            await asyncio.to_thread(work)
            assert coordinator.committed == [[b"a"], [b"d"]]
            assert coordinator.aborted == [[b"b"]]
            assert broker.committed == {("g", "t", 0): 1}


def test_in_a_transaction_a_partition_keeps_its_identity() -> None:
    """A batch refused as out of sequence displaces the partition, and waits to be given up."""
    from qbus.clients.producer.batch import ProducerIdentity
    from qbus.clients.producer.lists import ListBatch
    from qbus.clients.types import TopicPartition

    place = TopicPartition("t", 0)
    queue = PartitionQueue(
        place, batch_bytes=100, max_in_flight=5, idempotent=True, transactional=True
    )
    identity = ProducerIdentity(1, 0, is_transactional=True)
    queue.set_identity(identity)
    batch = ListBatch(place, 0, 0.0)
    batch.add(b"a")
    queue.push(batch)
    assert queue.take(1.0, 0.0) is batch
    queue.number(batch)
    queue.failed(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert queue.is_displaced
    assert queue.identity == batch.identity == identity
    assert queue.expired(float("inf")) == [batch]
