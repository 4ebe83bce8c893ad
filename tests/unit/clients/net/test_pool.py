"""Connections are opened once for all, and not again at once where that failed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from qbus.clients.errors import ClientClosed, ConnectionFailed, RequestTimedOut
from qbus.clients.net.pool import ConnectionGroup, ConnectionPool
from tests.support.fake_broker import FakeBroker
from tests.support.waiting import eventually

DEAD = ("127.0.0.1", 1)


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        yield broker


@pytest.fixture
async def pool() -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool("test", connect_timeout=5.0)
    yield pool
    await pool.close()


def address(broker: FakeBroker) -> tuple[str, int]:
    return ("127.0.0.1", broker.port)


async def test_all_who_wait_get_the_same_connection(
    broker: FakeBroker, pool: ConnectionPool
) -> None:
    opened = await asyncio.gather(
        *(pool.connect(address(broker), ConnectionGroup.MAIN) for _ in range(9))
    )
    assert len(set(opened)) == broker.connections == 1
    assert await pool.connect(address(broker), ConnectionGroup.FETCH) is not opened[0]


async def test_all_who_wait_get_the_same_failure(pool: ConnectionPool) -> None:
    failures = await asyncio.gather(
        *(pool.connect(DEAD, ConnectionGroup.MAIN) for _ in range(9)), return_exceptions=True
    )
    assert len(set(map(id, failures))) == 1
    assert isinstance(failures[0], ConnectionFailed)


async def test_who_gives_up_does_not_stop_the_others(
    broker: FakeBroker, pool: ConnectionPool
) -> None:
    first = asyncio.create_task(pool.connect(address(broker), ConnectionGroup.MAIN))
    second = asyncio.create_task(pool.connect(address(broker), ConnectionGroup.MAIN))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).is_open
    assert broker.connections == 1


async def test_a_broken_connection_is_replaced(broker: FakeBroker, pool: ConnectionPool) -> None:
    first = await pool.connect(address(broker), ConnectionGroup.MAIN)
    broker.hangup()
    await eventually(lambda: not first.is_open)
    second = await pool.connect(address(broker), ConnectionGroup.MAIN)
    assert second is not first
    assert second.is_open


async def test_attempts_wait_longer_and_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    pool = ConnectionPool(
        "test", connect_timeout=5.0, reconnect_backoff=10.0, reconnect_backoff_max=35.0
    )
    for _ in range(5):
        with pytest.raises(ConnectionFailed):
            await pool.connect(DEAD, ConnectionGroup.MAIN)
    assert len(pauses) == 4
    for pause, base in zip(pauses, [10, 20, 35, 35], strict=True):
        assert 0.7 * base < pause < 1.2 * base
    await pool.close()


async def test_a_broker_without_an_api_versions_response_has_failed(pool: ConnectionPool) -> None:
    async with FakeBroker() as broker:
        silent = ConnectionPool("test", connect_timeout=0.05)
        broker.handlers.clear()
        with pytest.raises((RequestTimedOut, ConnectionFailed)):
            await silent.connect(address(broker), ConnectionGroup.MAIN)
        assert silent.rank(address(broker)) > silent.rank(DEAD)
        await silent.close()


async def test_the_best_to_ask_is_idle_and_has_not_failed(
    broker: FakeBroker, pool: ConnectionPool
) -> None:
    await pool.connect(address(broker), ConnectionGroup.MAIN)
    unknown = ("192.0.2.1", 9092)
    assert pool.rank(address(broker)) < pool.rank(unknown)
    pool.failed(address(broker))
    assert pool.rank(unknown) < pool.rank(address(broker))
    pool.succeeded(address(broker))
    assert pool.rank(address(broker)) < pool.rank(unknown)


async def test_failures_of_ever_new_addresses_are_forgotten() -> None:
    pool = ConnectionPool("test", connect_timeout=5.0, reconnect_backoff_max=0.0001)
    for port in range(1000):
        pool.failed(("192.0.2.1", port))
        await asyncio.sleep(0.00001)
    remembered = sum(pool.rank(("192.0.2.1", port))[0] for port in range(1000))
    assert remembered < 900
    await pool.close()


async def test_close_ends_open_and_opening_connections(broker: FakeBroker) -> None:
    pool = ConnectionPool("test", connect_timeout=5.0)
    connection = await pool.connect(address(broker), ConnectionGroup.MAIN)
    opening = asyncio.create_task(pool.connect(address(broker), ConnectionGroup.COORDINATOR))
    await asyncio.sleep(0)
    await pool.close()
    assert not connection.is_open
    with pytest.raises(ClientClosed):
        await opening
    with pytest.raises(ClientClosed):
        await pool.connect(address(broker), ConnectionGroup.MAIN)
