"""What becomes of records when brokers do not do as they should, and when the buffer is full."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from qbus.clients import BufferFull, ClientClosed, Delivery, Producer, RequestTimedOut, Spooled
from qbus.clients.spool import Spool
from qbus.errors import ApiError, ErrorCode
from qbus.records import iter_records, read_header
from qbus.wire import ApiKey
from qbus.wire.messages.init_producer_id import InitProducerIdResponse
from qbus.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.fake_broker import FakeBroker, Hangup
from tests.support.fake_cluster import FakeCluster
from tests.support.waiting import eventually

LIMIT = 100
"""Bytes that the strict broker takes at once."""


def answer(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
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


def strict(broker: FakeBroker) -> None:
    """Let the broker refuse batches of more than a few bytes."""

    def produce(request: ProduceRequest) -> Any:
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        if len(data.records or b"") > LIMIT:
            return answer(request, ErrorCode.MESSAGE_TOO_LARGE)
        return broker.produce(request)

    broker.handlers[ApiKey.PRODUCE] = produce


def die(broker: FakeBroker) -> None:
    """Let the broker end every connection, also new ones."""

    def hang_up(_: Any) -> None:
        raise Hangup

    broker.handlers[ApiKey.API_VERSIONS] = hang_up
    broker.hangup()


@pytest.mark.parametrize("acks", ["all", 1])
async def test_batches_that_are_too_large_are_split(acks: Any) -> None:
    async with FakeBroker() as broker:
        strict(broker)
        async with Producer(broker.bootstrap, acks=acks, retry_backoff_ms=1) as producer:
            many = await producer.send_many("t", [b"%d" % number for number in range(50)])
            large = await producer.send("t", bytes(LIMIT))
            last = await producer.send("t", b"last", key=b"k")
            await producer.flush()
        assert sum(run.records_count for run in many.result()) == 50
        refused = large.exception()
        assert isinstance(refused, ApiError)
        assert refused.code is ErrorCode.MESSAGE_TOO_LARGE
        values = [b"%d" % number for number in range(50)] + [b"last"]
        assert sorted(map(str, broker.logs["t", 0].values())) == sorted(map(str, values))
        if acks == "all":
            assert broker.logs["t", 0].values() == values, "in order"
        assert last.offset >= 0


async def test_keyless_records_go_where_a_broker_lives() -> None:
    async with FakeCluster(2, {"t": 2}) as cluster:
        cluster.move("t", 1, to=2)
        cluster.publish()
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            await producer.partitions("t")
            die(cluster.nodes[2])
            sent = [await producer.send("t", b"%d" % number) for number in range(50)]
            places = [await asyncio.wait_for(delivery, 10) for delivery in sent]
        assert {place.partition for place in places} == {0}
        assert len(cluster.logs["t", 0].values()) == 50


@pytest.mark.parametrize("harm", ["refuses", "silent"])
async def test_a_dead_broker_does_not_hold_up_the_others(harm: str) -> None:
    async with FakeCluster(2, {"t": 2}) as cluster:
        cluster.move("t", 1, to=2)
        cluster.publish()
        if harm == "silent":
            cluster.nodes[2].handlers[ApiKey.API_VERSIONS] = lambda _: asyncio.sleep(60)
        else:
            die(cluster.nodes[2])
        options: Any = {"request_timeout_ms": 300, "delivery_timeout_ms": 700}
        async with Producer(cluster.nodes[1].bootstrap, **options) as producer:
            dead = await producer.send("t", b"dead", partition=1)
            for _ in range(5):
                assert (await (await producer.send("t", b"v", partition=0))).offset >= 0
            with pytest.raises(RequestTimedOut, match="not delivered in"):
                await asyncio.wait_for(dead, 5)


async def test_a_late_answer_changes_nothing() -> None:
    async with FakeBroker() as broker:
        gate = asyncio.Event()

        async def produce(request: ProduceRequest) -> Any:
            await gate.wait()
            return broker.produce(request)

        broker.handlers[ApiKey.PRODUCE] = produce
        async with Producer(broker.bootstrap, delivery_timeout_ms=200) as producer:
            late = await producer.send("t", b"late")
            with pytest.raises(RequestTimedOut):
                await asyncio.wait_for(late, 5)
            gate.set()
            broker.handlers[ApiKey.PRODUCE] = broker.produce
            assert (await (await producer.send("t", b"next"))).offset == 1
        assert broker.logs["t", 0].values() == [b"late", b"next"]
        with pytest.raises(RequestTimedOut):
            late.result()


@pytest.mark.parametrize(
    "code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]
)
async def test_an_unknown_producer_continues_with_the_next_epoch(code: ErrorCode) -> None:
    async with FakeBroker() as broker, Producer(broker.bootstrap, retry_backoff_ms=1) as producer:
        await (await producer.send("t", b"first"))
        codes = [code]
        broker.handlers[ApiKey.PRODUCE] = lambda request: (
            answer(request, codes.pop()) if codes else broker.produce(request)
        )
        await (await producer.send("t", b"second"))
        first, second = map(read_header, broker.logs["t", 0].batches)
        assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
        assert second.base_sequence == 0
        assert len(broker.asked(ApiKey.INIT_PRODUCER_ID)) == 1


async def test_all_partitions_share_one_producer_id() -> None:
    async with FakeBroker({"t": 5}) as broker, Producer(broker.bootstrap) as producer:
        for partition in range(5):
            await (await producer.send("t", b"v", partition=partition))
        assert len(broker.asked(ApiKey.INIT_PRODUCER_ID)) == 1


async def test_without_a_producer_id_all_deliveries_fail() -> None:
    async with FakeBroker() as broker:
        broker.handlers[ApiKey.INIT_PRODUCER_ID] = lambda _: InitProducerIdResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        async with Producer(broker.bootstrap) as producer:
            sent = [await producer.send("t", b"v") for _ in range(3)]
            for delivery in sent:
                with pytest.raises(ApiError) as caught:
                    await asyncio.wait_for(delivery, 5)
                assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            with pytest.raises(ApiError):
                await producer.send("t", b"v")


async def test_five_requests_are_in_flight_without_sequences_too() -> None:
    async with FakeBroker({"t": 1}) as broker:
        options: Any = {"acks": 1, "linger_ms": 0, "max_in_flight": 3}
        async with Producer(broker.bootstrap, **options) as producer:
            connection = producer._cluster
            await (await producer.send("t", b"first"))
            hold = asyncio.Event()

            async def produce(request: ProduceRequest) -> Any:
                await hold.wait()
                return broker.produce(request)

            broker.handlers[ApiKey.PRODUCE] = produce
            for number in range(5):
                await producer.send("t", b"%d" % number)
                await asyncio.sleep(0.01)
            open_connection = await connection.connection(1)
            await eventually(lambda: open_connection.load == 3)
            hold.set()
        assert broker.logs["t", 0].values() == [b"first", b"0", b"1", b"2", b"3", b"4"]


async def test_a_full_buffer_may_raise() -> None:
    async with FakeBroker() as broker:
        broker.handlers[ApiKey.PRODUCE] = lambda _: asyncio.sleep(60)
        options: Any = {"buffer_bytes": 2000, "batch_bytes": 500, "on_full": "raise"}
        producer = Producer(broker.bootstrap, delivery_timeout_ms=300, **options)
        await producer.send_many("t", [bytes(100)] * 30)
        with pytest.raises(BufferFull) as caught:
            await producer.send("t", b"v")
        assert caught.value.retriable
        with pytest.raises(BufferFull):
            await producer.send_many("t", [b"v"])
        await producer.close()


async def test_a_flush_has_a_time_out_and_a_close_gives_up() -> None:
    async with FakeBroker() as broker:
        broker.handlers[ApiKey.PRODUCE] = lambda _: asyncio.sleep(60)
        producer = Producer(broker.bootstrap)
        told: list[Delivery] = []
        delivery = await producer.send("t", b"v", on_delivery=told.append)
        with pytest.raises(RequestTimedOut):
            await producer.flush(0.05)
        await producer.close(0.05)
        assert isinstance(delivery.exception(), ClientClosed)
        assert told == [delivery]


async def test_what_is_not_delivered_is_kept(tmp_path: Path) -> None:
    async with FakeBroker({"t": 2}) as broker:

        def hang_up(_: Any) -> None:
            raise Hangup

        broker.handlers[ApiKey.PRODUCE] = hang_up
        options: Any = {"delivery_timeout_ms": 300, "spool_dir": tmp_path}
        async with Producer(broker.bootstrap, **options) as producer:
            kept = await producer.send("t", b"kept", partition=1)
            with pytest.raises(Spooled, match=str(tmp_path)):
                await asyncio.wait_for(kept, 5)
            at_close = await producer.send("t", b"at close", partition=1)
            await producer.close(0.05)
            assert isinstance(at_close.exception(), Spooled)
    (queue,) = Spool(tmp_path).queues()
    assert queue.name == ("t", 1)
    values = [record.value for _, batch in queue.batches() for record in iter_records(batch)]
    assert values == [b"kept", b"at close"]


async def test_where_nothing_can_be_kept_the_delivery_fails(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    async with FakeBroker() as broker:
        broker.handlers[ApiKey.PRODUCE] = lambda _: asyncio.sleep(60)
        options: Any = {"delivery_timeout_ms": 200, "spool_dir": spool}
        async with Producer(broker.bootstrap, **options) as producer:
            spool.touch()  # something else lies there by now
            delivery = await producer.send("t", b"v")
            with pytest.raises(RequestTimedOut) as caught:
                await asyncio.wait_for(delivery, 5)
            assert isinstance(caught.value.__cause__, OSError)
