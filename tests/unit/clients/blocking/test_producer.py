"""The producer without asyncio: the same, from any thread."""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from qbus import Producer, QbusError, aio
from qbus.clients import BufferFull, ClientClosed, RequestTimedOut, TopicPartition
from qbus.wire import ApiKey
from tests.support.fake_broker import FakeBroker


async def with_broker(use: Callable[[FakeBroker], None], **topics: int) -> FakeBroker:
    async with FakeBroker(topics or None) as broker:
        await asyncio.to_thread(use, broker)
        return broker


def test_both_faces_have_the_same_arguments() -> None:
    names = [n for n, f in inspect.getmembers(aio.Producer, callable) if not n.startswith("_")]
    for name in ("__init__", *names):
        theirs = dict(inspect.signature(getattr(aio.Producer, name)).parameters)
        ours = inspect.signature(getattr(Producer, name)).parameters
        assert dict(ours) == theirs, name


async def test_records_arrive_in_order_and_are_told_of() -> None:
    def use(broker: FakeBroker) -> None:
        with Producer(broker.bootstrap, batch_bytes=300) as producer:
            sent = [producer.send("t", b"%d" % number) for number in range(500)]
            assert [delivery.result(10).offset for delivery in sent] == list(range(500))
            assert producer.partitions("t") == [TopicPartition("t", 0)]

    broker = await with_broker(use)
    assert broker.logs["t", 0].values() == [b"%d" % number for number in range(500)]


async def test_many_threads_share_a_producer() -> None:
    def use(broker: FakeBroker) -> None:
        told: list[Any] = []
        with Producer(broker.bootstrap, batch_bytes=500, on_delivery=told.append) as producer:

            def send(name: int) -> None:
                for number in range(300):
                    key = b"%d" % name if number % 3 else None
                    producer.send("t", b"%d:%03d" % (name, number), key=key, partition=0)
                producer.send_many("t", [b"%d:%03d" % (name, n) for n in range(300, 400)])

            threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            producer.flush(10)
        assert len(told) == 1600
        assert all(delivery.exception() is None for delivery in told)

    values = [value or b"" for value in (await with_broker(use)).logs["t", 0].values()]
    assert len(values) == 1600
    for name in range(4):
        own = [value for value in values if value.startswith(b"%d:" % name)]
        assert own == sorted(own)
        assert len(own) == 400


async def test_a_full_buffer_makes_a_sender_wait_or_raises() -> None:
    def use(broker: FakeBroker) -> None:
        produce = broker.handlers[ApiKey.PRODUCE]
        broker.handlers[ApiKey.PRODUCE] = lambda _: asyncio.sleep(60)
        options: Any = {"buffer_bytes": 1000, "batch_bytes": 200, "request_timeout_ms": 300}
        with Producer(broker.bootstrap, **options) as producer:
            for _ in range(9):
                producer.send("t", bytes(100))
            waiting = threading.Thread(target=producer.send, args=("t", bytes(100)))
            waiting.start()
            waiting.join(0.05)
            assert waiting.is_alive()
            broker.handlers[ApiKey.PRODUCE] = produce
            waiting.join(10)
            assert not waiting.is_alive()
        broker.handlers[ApiKey.PRODUCE] = lambda _: asyncio.sleep(60)
        producer = Producer(broker.bootstrap, on_full="raise", **options)
        producer.send_many("t", [bytes(100)] * 100)
        with pytest.raises(BufferFull):
            producer.send("t", b"v")
        producer.close(0.05)

    assert len((await with_broker(use)).logs["t", 0].values()) == 10


async def test_callbacks_may_send_but_not_wait() -> None:
    def use(broker: FakeBroker) -> None:
        errors: list[Exception] = []
        with Producer(broker.bootstrap) as producer:

            def again(_: object) -> None:
                producer.send("t", b"second")
                try:
                    producer.flush()
                except QbusError as error:
                    errors.append(error)

            producer.send("t", b"first", on_delivery=again).result(10)
        assert "callback" in str(errors[0])

    assert (await with_broker(use)).logs["t", 0].values() == [b"first", b"second"]


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_an_exit_in_a_callback_ends_nothing_that_others_wait_for(
    caplog: pytest.LogCaptureFixture, end: type[BaseException]
) -> None:
    def leave(_: object) -> None:
        raise end

    def use(broker: FakeBroker) -> None:
        with Producer(broker.bootstrap) as producer:
            first = producer.send("t", b"first", on_delivery=leave)
            first.add_done_callback(leave)
            second = producer.send("t", b"second")
            assert (first.result(10).offset, second.result(10).offset) == (0, 1)
            assert producer.send_and_wait("t", b"third").offset == 2

    await with_broker(use)
    what = "called sys.exit" if end is SystemExit else f"raised {end.__name__}"
    assert caplog.text.count(f"{what}, which ends no program in this thread") == 2


async def test_a_closed_producer_takes_nothing_and_leaves_nobody_waiting() -> None:
    def use(broker: FakeBroker) -> None:
        broker.handlers[ApiKey.PRODUCE] = lambda _: asyncio.sleep(60)
        producer = Producer(broker.bootstrap)
        delivery = producer.send("t", b"v")
        with pytest.raises(RequestTimedOut):
            delivery.result(0.01)
        with pytest.raises(RequestTimedOut):
            producer.flush(0.01)
        producer.close(0.01)
        producer.close()
        assert isinstance(delivery.exception(0), ClientClosed)
        for _ in range(2):
            with pytest.raises(ClientClosed):
                producer.send("t", b"v")

    await with_broker(use)


async def test_a_fork_is_told_that_it_has_no_producer() -> None:
    def use(broker: FakeBroker) -> None:
        with Producer(broker.bootstrap, linger_ms=60_000) as producer:
            producer.send("t", b"v")
            child = os.fork()
            if child == 0:
                try:
                    producer.send("t", b"of the child")
                except QbusError:
                    os._exit(7)
                os._exit(1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 7

    assert (await with_broker(use)).logs["t", 0].values() == [b"v"]
