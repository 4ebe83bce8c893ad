"""The producer against a broker that fails: each record once, in order, and every future told."""

import asyncio
import random
from contextvars import ContextVar
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qbus.clients import ClientClosed, Delivery, Producer, RequestTimedOut
from qbus.clients.net.connection import Connection
from qbus.clients.producer import producer as module
from qbus.clock import ManualClock
from qbus.errors import ApiError, ConfigError, ErrorCode, QbusError
from qbus.records import Compression, read_header
from qbus.wire import ApiKey
from qbus.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.fake_broker import FakeBroker, Hangup
from tests.support.waiting import eventually


def refusal(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


async def delivery_of(delivery: Delivery) -> Any:
    """The offset, or the kind of error."""
    try:
        return (await delivery).offset
    except QbusError as error:
        return type(error)


class Faults:
    """Spoils the next Produce requests: one fault each, in turn."""

    def __init__(self, broker: FakeBroker, *faults: str | ErrorCode) -> None:
        self._broker = broker
        self._faults = list(faults)
        broker.handlers[ApiKey.PRODUCE] = self

    def __call__(self, request: ProduceRequest) -> Any:
        fault = self._faults.pop(0) if self._faults else "none"
        if isinstance(fault, ErrorCode):
            return refusal(request, fault)
        if fault == "lose the request":
            raise Hangup
        response = self._broker.produce(request)
        if fault == "lose the answer":
            raise Hangup
        if fault == "time out":
            return refusal(request, ErrorCode.REQUEST_TIMED_OUT)
        return response


async def test_a_record_is_told_where_it_went() -> None:
    async with FakeBroker() as broker, Producer(broker.bootstrap) as producer:
        first = await producer.send("t", b"a")
        second = await producer.send("t", b"b", key=b"k", headers=[("h", b"x")], timestamp=5)
        assert (await first)[:3] == ("t", 0, 0)
        assert await second == ("t", 0, 1, 5)
        assert broker.logs["t", 0].values() == [b"a", b"b"]


async def test_many_are_told_where_they_went() -> None:
    async with FakeBroker({"t": 3}) as broker, Producer(broker.bootstrap) as producer:
        values = [b"%d" % number for number in range(1000)]
        batches = await (await producer.send_many("t", values, partition=2))
        assert sum(batch.records_count for batch in batches) == 1000
        assert broker.logs["t", 2].values() == values


@pytest.mark.parametrize("compression", [codec.name.lower() for codec in Compression])
async def test_compression(compression: str) -> None:
    async with FakeBroker() as broker:
        async with Producer(broker.bootstrap, compression=compression) as producer:
            await producer.send_many("t", [b"a line of text"] * 1000)
        (batch,) = broker.logs["t", 0].batches
        assert read_header(batch).compression is Compression[compression.upper()]
        assert len(broker.logs["t", 0].values()) == 1000


async def test_leaving_waits_for_everything() -> None:
    async with FakeBroker() as broker:
        async with Producer(broker.bootstrap, linger_ms=60_000) as producer:
            await producer.send("t", b"a")
        assert broker.logs["t", 0].values() == [b"a"]


async def test_records_wait_for_each_other_to_make_batches() -> None:
    async with FakeBroker() as broker, Producer(broker.bootstrap, linger_ms=60_000) as producer:
        for _ in range(100):
            await producer.send("t", b"a")
        await producer.flush()
        assert len(broker.logs["t", 0].batches) == 1


async def test_a_batch_is_sent_within_its_linger_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop's timers are late by up to one millisecond; who allows six gets no more."""
    clock = ManualClock()
    monkeypatch.setattr("qbus.clients.producer.producer.SystemClock", lambda: clock)
    async with FakeBroker() as broker, Producer(broker.bootstrap, linger_ms=6) as producer:
        await producer.send("t", b"before")
        await producer.flush()
        delivery = await producer.send("t", b"a")
        clock.advance(0.004)
        await asyncio.sleep(0.02)
        assert broker.logs["t", 0].values() == [b"before"]
        clock.advance(0.001)
        assert (await delivery).offset == 1


async def test_who_awaits_a_delivery_in_the_producers_loop_needs_no_wake_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For each wake-up writes to a socket: thousands may wait for one batch."""
    loop, woken = asyncio.get_running_loop(), 0
    wake = loop.call_soon_threadsafe

    def count(*args: Any, **options: Any) -> asyncio.Handle:
        nonlocal woken
        woken += 1
        return wake(*args, **options)

    async with FakeBroker() as broker, Producer(broker.bootstrap, linger_ms=50) as producer:
        await producer.partitions("t")
        deliveries = [await producer.send("t", b"v", partition=0) for _ in range(5)]
        monkeypatch.setattr(loop, "call_soon_threadsafe", count)
        assert await asyncio.gather(*map(delivery_of, deliveries)) == [0, 1, 2, 3, 4]
        assert woken == 0


async def test_a_delivery_is_awaited_in_another_loop_too() -> None:
    async with FakeBroker() as broker, Producer(broker.bootstrap, linger_ms=20) as producer:
        delivery = await producer.send("t", b"v")
        assert await asyncio.to_thread(asyncio.run, delivery_of(delivery)) == 0


async def test_who_only_sends_lets_others_work() -> None:
    """A batch that is open all the time does not keep the event loop busy for itself."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with FakeBroker() as broker, Producer(broker.bootstrap, linger_ms=60_000) as producer:
        await producer.send("t", b"first")
        other = asyncio.create_task(count())
        await asyncio.sleep(0)
        turns = 0
        for _ in range(5000):
            await producer.send("t", b"a", b"key")
        other.cancel()
        assert 5 <= turns < 100


async def test_turns_run_in_no_sender_s_context() -> None:
    """Whose record is sent at last is not whose delivery is told of."""
    request: ContextVar[str] = ContextVar("request", default="none")
    seen: list[str] = []

    async def serve(name: str) -> None:
        request.set(name)
        delivery = await producer.send("t", b"a", on_delivery=lambda _: seen.append(request.get()))
        await delivery

    async with FakeBroker() as broker, Producer(broker.bootstrap) as producer:
        await (await producer.send("t", b"first"))
        await asyncio.create_task(serve("one"))
        await asyncio.create_task(serve("another"))
    assert seen == ["none", "none"]


@pytest.mark.parametrize("is_refused", [False, True])
async def test_an_answer_comes_while_the_producer_is_stopped(
    is_refused: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is taken in: what was delivered is not lost, and the halves of what was too large are."""
    may_answer = asyncio.Event()

    async def produce(request: ProduceRequest) -> ProduceResponse | None:
        await may_answer.wait()
        return refusal(request, ErrorCode.MESSAGE_TOO_LARGE) if is_refused else answer(request)

    async with FakeBroker() as broker:
        answer = broker.produce
        broker.handlers[ApiKey.PRODUCE] = produce
        producer = Producer(broker.bootstrap, linger_ms=0)
        deliveries = [await producer.send("t", b"%d" % number) for number in range(2)]
        await eventually(lambda: bool(producer._sender._awaited))
        closing = asyncio.create_task(producer.close())
        receive = Connection.buffer_updated

        def receive_at_last(self: Connection, nbytes: int) -> None:
            closing.cancel()
            receive(self, nbytes)

        await asyncio.sleep(0)
        monkeypatch.setattr(Connection, "buffer_updated", receive_at_last)
        may_answer.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
        async with asyncio.timeout(5):
            told = [await delivery_of(one) for one in deliveries]
    assert told == ([ClientClosed] * 2 if is_refused else [0, 1])
    assert not caplog.records


async def test_without_acks_everything_is_sent_and_offsets_are_unknown() -> None:
    async with FakeBroker() as broker:
        async with Producer(broker.bootstrap, acks=0) as producer:
            delivery = await producer.send("t", b"a")
            assert (await delivery).offset == -1
            with pytest.raises(QbusError, match="acks=0"):
                await delivery.cancel()
        await eventually(lambda: broker.logs["t", 0].values() == [b"a"])
        assert broker.asked(ApiKey.INIT_PRODUCER_ID) == []


async def test_only_acks_all_is_idempotent() -> None:
    async with FakeBroker() as broker:
        async with Producer(broker.bootstrap, acks=1) as producer:
            await producer.send("t", b"a")
        async with Producer(broker.bootstrap) as producer:
            await producer.send("t", b"a")
        plain, idempotent = (read_header(batch) for batch in broker.logs["t", 0].batches)
        assert not plain.has_producer_id
        assert (idempotent.producer_id, idempotent.base_sequence) == (1, 0)


@pytest.mark.parametrize(
    ("fault", "acks"),
    [
        (fault, acks)
        for fault in ["lose the request", "lose the answer", "time out", *ErrorCode]
        for acks in ["all", 1]
        if not isinstance(fault, ErrorCode)
        or fault
        in {
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.CORRUPT_MESSAGE,
        }
    ],
)
async def test_what_passes_is_tried_again(fault: str | ErrorCode, acks: Any) -> None:
    async with FakeBroker() as broker:
        Faults(broker, fault, fault)
        async with Producer(broker.bootstrap, acks=acks) as producer:
            delivery = await producer.send("t", b"a")
            assert (await delivery).offset >= 0
        if acks == "all":
            assert broker.logs["t", 0].values() == [b"a"], "once"


async def test_what_does_not_pass_is_told() -> None:
    async with FakeBroker() as broker, Producer(broker.bootstrap) as producer:
        Faults(broker, ErrorCode.MESSAGE_TOO_LARGE, "none")
        refused = await producer.send("t", b"large")
        with pytest.raises(ApiError) as caught:
            await refused
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert (await (await producer.send("t", b"small"))).offset == 0
        assert broker.logs["t", 0].values() == [b"small"]


async def test_after_a_refusal_the_records_behind_it_still_arrive_in_order() -> None:
    async with FakeBroker() as broker:
        async with Producer(broker.bootstrap, linger_ms=0) as producer:
            await (await producer.send("t", b"first"))
            Faults(broker, ErrorCode.MESSAGE_TOO_LARGE)
            refused = await producer.send("t", b"refused")
            await asyncio.sleep(0)
            behind = []
            for number in range(20):
                behind.append(await producer.send("t", b"%d" % number))
                await asyncio.sleep(0)
            with pytest.raises(ApiError):
                await refused
            await asyncio.gather(*behind)
        assert broker.logs["t", 0].values() == [b"first"] + [b"%d" % n for n in range(20)]


FAULTS = st.lists(
    st.sampled_from(
        [
            "none",
            "lose the request",
            "lose the answer",
            "time out",
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ]
    ),
    max_size=8,
)


@example(faults=["none", "time out", "none", "lose the request", "time out"], partitions=1, seed=0)
@settings(max_examples=100)
@given(faults=FAULTS, partitions=st.integers(1, 3), seed=st.integers(0, 2**32))
async def test_each_record_is_stored_once_and_in_order_after_any_failure(
    faults: list[str | ErrorCode], partitions: int, seed: int
) -> None:
    pauses = random.Random(seed)
    async with FakeBroker({"t": partitions}) as broker:
        Faults(broker, *faults)
        deliveries = []
        options: Any = {"linger_ms": 0, "batch_bytes": 60, "retry_backoff_ms": 1}
        async with Producer(broker.bootstrap, **options) as producer:
            for number in range(60):
                deliveries.append(
                    await producer.send("t", b"%d" % number, partition=number % partitions)
                )
                if pauses.random() < 0.3:
                    await asyncio.sleep(0)
        for partition in range(partitions):
            sent = [b"%d" % number for number in range(partition, 60, partitions)]
            assert broker.logs["t", partition].values() == sent
        assert [(await delivery).offset for delivery in deliveries] == [
            number // partitions for number in range(60)
        ]


async def test_a_leader_that_moved_is_found_again() -> None:
    async with FakeBroker() as broker, FakeBroker() as other:
        metadata = broker.metadata

        def moved(request: Any) -> Any:
            response = metadata(request)
            response.brokers[0].port = other.port
            return response

        def not_leader(request: ProduceRequest) -> ProduceResponse:
            broker.handlers[ApiKey.METADATA] = moved
            return refusal(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)

        broker.handlers[ApiKey.PRODUCE] = not_leader
        other.handlers[ApiKey.METADATA] = moved
        async with Producer(broker.bootstrap) as producer:
            await (await producer.send("t", b"a"))
        assert other.logs["t", 0].values() == [b"a"]


async def test_a_partition_without_a_leader_waits_for_one() -> None:
    async with FakeBroker({"t": 2}) as broker, Producer(broker.bootstrap) as producer:
        broker.leaders["t", 1] = -1
        waiting = await producer.send("t", b"a", partition=1)
        assert (await (await producer.send("t", b"b", partition=0))).offset == 0
        assert not waiting.done()
        del broker.leaders["t", 1]
        assert (await waiting).offset == 0


async def test_a_topic_that_does_not_exist() -> None:
    async with FakeBroker() as broker:
        async with Producer(broker.bootstrap, request_timeout_ms=100) as producer:
            with pytest.raises(ApiError) as caught:
                await producer.send("missing", b"a")
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert all(request.allow_auto_topic_creation for request in broker.asked(ApiKey.METADATA))


async def test_nothing_waits_longer_than_the_delivery_time_out() -> None:
    async with FakeBroker() as broker:
        producer = Producer(broker.bootstrap, delivery_timeout_ms=300, request_timeout_ms=100)
        broker.handlers[ApiKey.PRODUCE] = lambda request: refusal(
            request, ErrorCode.NOT_ENOUGH_REPLICAS
        )
        refused = await producer.send("t", b"a")
        waiting = [await producer.send("t", b"b") for _ in range(3)]
        with pytest.raises(ApiError) as caught:
            await refused
        assert caught.value.code in {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT}
        for delivery in waiting:
            with pytest.raises(ApiError):
                await delivery
        await producer.close()


async def test_a_broker_that_never_answers() -> None:
    async with FakeBroker() as broker:
        broker.handlers[ApiKey.PRODUCE] = lambda _: asyncio.sleep(60)
        producer = Producer(broker.bootstrap, delivery_timeout_ms=200, request_timeout_ms=100)
        delivery = await producer.send("t", b"a")
        with pytest.raises(RequestTimedOut):
            await delivery
        await producer.close()


async def test_an_answer_that_leaves_the_partition_out() -> None:
    async with FakeBroker() as broker, Producer(broker.bootstrap) as producer:
        answers = [ProduceResponse()]
        broker.handlers[ApiKey.PRODUCE] = lambda request: (
            answers.pop() if answers else broker.produce(request)
        )
        assert (await (await producer.send("t", b"a"))).offset == 0


async def test_a_full_buffer_makes_senders_wait() -> None:
    async with FakeBroker() as broker:
        gate = asyncio.Event()

        async def produce(request: ProduceRequest) -> Any:
            await gate.wait()
            return broker.produce(request)

        broker.handlers[ApiKey.PRODUCE] = produce
        async with Producer(broker.bootstrap, buffer_bytes=2000, batch_bytes=500) as producer:
            sending = asyncio.create_task(producer.send_many("t", [bytes(100)] * 100))
            await eventually(lambda: producer._accumulator.buffered_bytes >= 2000)
            await asyncio.sleep(0.02)
            assert producer._accumulator.buffered_bytes <= 2500
            assert not sending.done()
            gate.set()
            await (await sending)
        assert len(broker.logs["t", 0].values()) == 100


async def test_an_invalid_record_is_refused_without_side_effects() -> None:
    async with FakeBroker() as broker, Producer(broker.bootstrap) as producer:
        wrong: Any = "text"
        good = await producer.send("t", b"a")
        with pytest.raises(TypeError):
            await producer.send("t", wrong)
        with pytest.raises(TypeError):
            await producer.send_many("t", [b"a", wrong])
        assert (await good).offset == 0


async def test_a_closed_producer_sends_nothing() -> None:
    async with FakeBroker() as broker:
        async with Producer(broker.bootstrap) as producer:
            pass
        await producer.close()
        with pytest.raises(QbusError, match="closed"):
            await producer.send("t", b"a")


@pytest.mark.parametrize(
    "options",
    [{"acks": 2}, {"acks": "some"}, {"compression": "rar"}, {"acks": 1, "idempotent": True}],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Producer("127.0.0.1:1", **options)


async def test_what_is_lost_is_counted_also_where_warnings_are_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeBroker({"t": 1}) as broker:
        producer = Producer(broker.bootstrap, linger_ms=10_000)
        await producer.send("t", b"one")
        await producer.send("t", b"two")
        with pytest.raises(ResourceWarning, match="not closed"):  # as everywhere in these tests
            module._say_undelivered()
        await producer.close()
    assert "2 records were not delivered" in caplog.text
