"""Sends that somebody waits for: they do not linger, and share requests all the same."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from qbus import Producer as BlockingProducer
from qbus import QbusError
from qbus.clients import Producer
from qbus.wire import ApiKey
from tests.support.fake_broker import FakeBroker

LONG = 60_000
"""A linger in milliseconds that no test waits for."""


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 2}) as broker:
        yield broker


def requests_of(broker: FakeBroker) -> int:
    return sum(api is ApiKey.PRODUCE for api, _, _ in broker.requests)


async def test_one_record_after_another(broker: FakeBroker) -> None:
    async with asyncio.timeout(10), Producer(broker.bootstrap, linger_ms=LONG) as producer:
        for number in range(3):
            stored = await producer.send_and_wait("t", b"%d" % number, partition=0)
            assert stored.offset == number


async def test_what_lingers_already_goes_with_it_in_its_order(broker: FakeBroker) -> None:
    async with asyncio.timeout(10), Producer(broker.bootstrap, linger_ms=LONG) as producer:
        first = await producer.send("t", b"first", partition=0)
        other = await producer.send("t", b"other", partition=1)
        assert (await producer.send_and_wait("t", b"second", partition=0)).offset == 1
        assert first.done()
        assert not other.done(), "nobody waits for that"
        assert broker.logs["t", 0].values() == [b"first", b"second"]


async def test_many_tasks_share_requests(broker: FakeBroker) -> None:
    async with asyncio.timeout(10), Producer(broker.bootstrap, linger_ms=LONG) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        before = requests_of(broker)
        values = [b"%d" % number for number in range(50)]
        sends = [producer.send_and_wait("t", value, partition=0) for value in values]
        stored = await asyncio.gather(*sends)
        assert [one.offset for one in stored] == list(range(1, 51))
        assert requests_of(broker) == before + 1


async def test_what_comes_while_one_is_in_flight_shares_the_next(broker: FakeBroker) -> None:
    gate = asyncio.Event()
    produce = broker.handlers[ApiKey.PRODUCE]

    async def slowly(request: Any) -> Any:
        await gate.wait()
        return produce(request)

    async with asyncio.timeout(10), Producer(broker.bootstrap, linger_ms=LONG) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        broker.handlers[ApiKey.PRODUCE] = slowly
        before = requests_of(broker)
        sends = []
        for number in range(5):
            send = producer.send_and_wait("t", b"%d" % number, partition=0)
            sends.append(asyncio.create_task(send))
            await asyncio.sleep(0.01)
        assert requests_of(broker) == before + 1
        gate.set()
        await asyncio.gather(*sends)
        assert requests_of(broker) == before + 2
        assert broker.logs["t", 0].values()[1:] == [b"%d" % number for number in range(5)]


async def test_many_threads(broker: FakeBroker) -> None:
    def use() -> None:
        with BlockingProducer(broker.bootstrap, linger_ms=LONG) as producer:

            def send(name: int) -> None:
                for number in range(20):
                    producer.send_and_wait("t", b"%d:%02d" % (name, number), partition=0)

            threads = [threading.Thread(target=send, args=(name,)) for name in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)

    await asyncio.to_thread(use)
    values = broker.logs["t", 0].values()
    assert len(values) == 100
    for name in range(5):
        own = [value for value in values if (value or b"").startswith(b"%d:" % name)]
        assert own == [b"%d:%02d" % (name, number) for number in range(20)]


async def test_a_caller_that_is_interrupted_keeps_nobody_else_from_being_sent(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind it were sent too: when the sender looked around, which it does each second."""

    def use() -> int:
        with BlockingProducer(broker.bootstrap, linger_ms=LONG) as producer:
            producer.send_and_wait("t", b"first", partition=0)
            loop = producer._thread.loop
            call, calls = loop.call_soon_threadsafe, 0

            def interrupt(*args: Any, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == 1:
                    raise KeyboardInterrupt
                return call(*args, **options)

            with monkeypatch.context() as patched:
                patched.setattr(loop, "call_soon_threadsafe", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    producer.send_and_wait("t", b"second", partition=0)
                producer.send_and_wait("t", b"third", partition=0)
            return calls

    assert await asyncio.to_thread(use) == 2
    assert broker.logs["t", 0].values() == [b"first", b"second", b"third"]


async def test_a_callback_cannot_wait_and_sends_nothing(broker: FakeBroker) -> None:
    def use() -> list[Exception]:
        raised: list[Exception] = []
        with BlockingProducer(broker.bootstrap, linger_ms=0) as producer:

            def wait(_: object) -> None:
                try:
                    producer.send_and_wait("t", b"never", partition=0)
                except QbusError as error:
                    raised.append(error)

            producer.send("t", b"v", partition=0, on_delivery=wait)
            producer.flush(10)
        return raised

    (error,) = await asyncio.to_thread(use)
    assert "qbus.aio" in str(error)
    assert broker.logs["t", 0].values() == [b"v"]
