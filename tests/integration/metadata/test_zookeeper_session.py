"""The session: what it survives, what ends it, and its states."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable

import pytest

from qbus.metadata import Create, Node, SessionState, Set, StoreUnavailable, StoreUnusable
from qbus.service.event_loop import run
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.support.zookeeper_process import ZooKeeperProcess

from .sessions import CONNECTED, LOST, SUSPENDED, expire, open_files, session

pytestmark = pytest.mark.integration


async def test_it_survives_a_killed_server(server: ZooKeeperProcess) -> None:
    async with session(server.bootstrap) as store:
        await store.transaction([Create("/e", b"mine", ephemeral=True), Create("/a", b"0")])
        server.kill()
        await store.enters(SUSPENDED)
        with pytest.raises(StoreUnavailable, match="not connected"):
            await store.get("/a")
        with pytest.raises(StoreUnavailable, match="not connected"):
            await store.transaction([])
        await asyncio.to_thread(server.start)
        await store.enters(CONNECTED)
        assert await store.get("/e") == Node(b"mine", 0), "the session is the same"
        assert await store.transaction([Set("/a", b"1", version=0)]) == [1]
    assert store.states == [CONNECTED, SUSPENDED, CONNECTED, LOST]


async def test_watches_fire_when_the_connection_is_gone(server: ZooKeeperProcess) -> None:
    """Changes during a disconnection would otherwise be missed."""
    async with session(server.bootstrap) as store:
        told: list[object] = []
        await store.children("/a", lambda: told.append(store.state))
        server.kill()
        await eventually(lambda: told == [SUSPENDED])


async def test_a_session_ended_by_zookeeper_is_lost_for_good(server: ZooKeeperProcess) -> None:
    async with session(server.bootstrap) as store, session(server.bootstrap) as other:
        await store.transaction([Create("/e", ephemeral=True), Create("/stays")])
        told: list[int] = []
        await store.children("/a", lambda: told.append(1))
        await expire(store)
        await store.enters(LOST)
        assert told == [1]
        for _ in range(20):  # kazoo would be connected again by now
            with pytest.raises(StoreUnavailable, match="the session has ended"):
                await store.transaction([Create("/after", ephemeral=True)])
            await asyncio.sleep(0.02)
        assert await other.children("/") == ["stays"]
        assert store.states[-1] is LOST
        assert store.states.count(LOST) == 1


async def test_a_new_session_is_the_owners_decision(server: ZooKeeperProcess) -> None:
    async with session(server.bootstrap) as lost:
        await expire(lost)
        await lost.enters(LOST)
        with pytest.raises(StoreUnavailable, match="already started"):
            await lost.start()
    async with session(server.bootstrap) as store:
        assert await store.transaction([Create("/e", ephemeral=True)]) == ["/e"]


async def test_requests_under_way_at_the_end_are_answered(server: ZooKeeperProcess) -> None:
    async with session(server.bootstrap) as store:
        await store.transaction([Create("/n")])
        server.send_signal(signal.SIGSTOP)
        asked = [asyncio.ensure_future(store.transaction([Set("/n", b"x")])) for _ in range(500)]
        reads = [asyncio.ensure_future(store.get("/n")) for _ in range(500)]
        await asyncio.sleep(0.1)
        server.kill()
        for outcome in await asyncio.gather(*asked, *reads, return_exceptions=True):
            assert isinstance(outcome, StoreUnavailable)
            assert "is unknown" in str(outcome)


@pytest.mark.parametrize(("timeout_s", "stopped_s"), [(10.0, 1.0), (2.0, 4.0)])
async def test_a_server_that_stands_still(
    server: ZooKeeperProcess, timeout_s: float, stopped_s: float
) -> None:
    """Pauses shorter and longer than the session; the store reports the true state."""
    async with session(server.bootstrap, timeout=timeout_s) as store:
        await store.transaction([Create("/e", ephemeral=True), Create("/n")])
        server.send_signal(signal.SIGSTOP)
        waiting = asyncio.ensure_future(store.transaction([Set("/n", b"x")]))
        if stopped_s > timeout_s:
            await store.enters(SUSPENDED)
            with pytest.raises(StoreUnavailable):
                await waiting
        await asyncio.sleep(stopped_s)
        server.send_signal(signal.SIGCONT)
        if stopped_s < timeout_s:
            assert await waiting == [1]
            assert store.states == [CONNECTED]
        await store.enters(CONNECTED, LOST)
        async with session(server.bootstrap) as other:
            if store.state is CONNECTED:
                assert await other.get("/e") is not None
            else:
                assert await other.get("/e") is None
            node = await other.get("/n")
            assert node is not None
            assert node in {Node(b"", 0), Node(b"x", 1)}, "at most once"


async def test_a_session_does_not_begin_without_a_server() -> None:
    with pytest.raises(StoreUnusable, match="no ZooKeeper answers"):
        async with session(f"127.0.0.1:{free_port()}", connection_timeout_s=0.3):
            pass


async def test_it_begins_when_the_server_comes_up_in_time(server: ZooKeeperProcess) -> None:
    server.kill()
    starting = asyncio.ensure_future(asyncio.to_thread(server.start))
    async with session(server.bootstrap, timeout=20.0) as store:
        assert store.states == [CONNECTED]
    await starting


async def test_it_ends_while_no_server_answers(server: ZooKeeperProcess) -> None:
    async with session(server.bootstrap) as store:
        server.kill()
        await store.enters(SUSPENDED)
    assert store.states == [CONNECTED, SUSPENDED, LOST]


async def test_nothing_is_left_behind(server: ZooKeeperProcess) -> None:
    async with session(server.bootstrap):
        pass
    threads, files = threading.active_count(), open_files()
    for end_it in (True, False):
        async with session(server.bootstrap) as store:
            if end_it:
                await expire(store)
                await store.enters(LOST)
    assert threading.active_count() <= threads
    assert open_files() <= files


async def test_the_loop_goes_on_while_the_server_does_not(server: ZooKeeperProcess) -> None:
    """More requests than fit into the buffers of the connection and of kazoo."""
    async with session(server.bootstrap, timeout=6.0) as store:
        await store.transaction([Create("/n")])
        server.send_signal(signal.SIGSTOP)
        asked = [
            asyncio.ensure_future(store.transaction([Set("/n", bytes(10_000))]))
            for _ in range(3_000)
        ]
        turns = 0
        while store.state is CONNECTED and turns < 100:
            await asyncio.sleep(0.01)
            turns += 1
        assert turns > 10
        server.send_signal(signal.SIGCONT)
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(outcome, list | StoreUnavailable) for outcome in outcomes)


async def test_a_session_in_doubt_is_suspended_until_zookeeper_has_answered(
    server: ZooKeeperProcess,
) -> None:
    async with session(server.bootstrap) as store:
        await store.transaction([Create("/e", ephemeral=True)])
        store.doubt()
        assert store.state is SUSPENDED, "at once"
        with pytest.raises(StoreUnavailable, match="not connected"):
            await store.get("/e")
        await store.enters(CONNECTED)
        assert await store.get("/e") == Node(b"", 0)
        store.doubt()
        store.doubt()  # it is in doubt already
        await store.enters(CONNECTED)
    assert store.states == [CONNECTED, SUSPENDED, CONNECTED, SUSPENDED, CONNECTED, LOST]


async def test_a_session_in_doubt_that_has_ended_is_never_connected_again(
    server: ZooKeeperProcess,
) -> None:
    async with session(server.bootstrap) as store:
        ending = asyncio.ensure_future(expire(store))
        while not ending.done():
            store.doubt()
            await asyncio.sleep(0)
        before = len(store.states)
        store.doubt()
        await store.enters(LOST)
        assert CONNECTED not in store.states[before:]


def keep_the_lock(seconds: float) -> None:
    """Compute in C, where no other thread of the interpreter runs."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(10_000_000))


@pytest.mark.parametrize(
    "hold", [time.sleep, pytest.param(keep_the_lock, marks=pytest.mark.nightly)]
)
def test_a_session_ends_while_its_loop_stands_still_and_lives_through_a_shorter_stall(
    zookeeper: ZooKeeperProcess, hold: Callable[[float], None]
) -> None:
    async def freeze(seconds: float) -> list[SessionState]:
        async with session(zookeeper.bootstrap, timeout=4.0) as store:
            await store.transaction([Create("/frozen", ephemeral=True)])
            hold(seconds)  # which may leave the interpreter to kazoo's thread
            await asyncio.sleep(0.5)
            await store.enters(CONNECTED, LOST)
            return list(store.states)

    assert run(freeze(3.2)) == [CONNECTED]
    assert LOST in run(freeze(9.0))
