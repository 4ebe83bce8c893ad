"""Network faults: lost answers, and servers that accept connections and ignore them."""

import asyncio

import pytest

from qbus.metadata import Create, Node, StoreUnavailable
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import eventually
from tests.support.zookeeper_process import ZooKeeperProcess

from .sessions import CONNECTED, LOST, SUSPENDED, session

pytestmark = pytest.mark.integration


async def test_a_write_whose_answer_is_lost_is_done_once(server: ZooKeeperProcess) -> None:
    async with (
        FaultProxy(server.port) as proxy,
        session(server.bootstrap) as direct,
        session(proxy.bootstrap, timeout=10.0) as store,
    ):
        done = asyncio.Event()
        await direct.children("/", done.set)
        proxy.to_client.swallow()
        writing = asyncio.ensure_future(store.transaction([Create("/a", b"once")]))
        await done.wait()
        proxy.cut()
        with pytest.raises(StoreUnavailable, match="is unknown"):
            await writing
        await store.enters(SUSPENDED)  # told a moment after the answers are given up
        proxy.heal()
        await store.enters(CONNECTED)
        assert await store.get("/a") == Node(b"once", 0)


async def test_a_server_that_accepts_and_forgets_does_not_cost_the_session(
    server: ZooKeeperProcess,
) -> None:
    async with FaultProxy(server.port) as proxy, session(proxy.bootstrap, timeout=9.0) as store:
        await store.transaction([Create("/e", b"mine", ephemeral=True)])
        before = proxy.accepted
        proxy.to_server.swallow()
        proxy.cut()
        await store.enters(SUSPENDED)
        # The connection that was forgotten stays so; the next one is a new chance.
        await eventually(lambda: proxy.accepted >= before + 2)
        proxy.heal()
        await store.enters(CONNECTED, LOST)
        assert store.state is CONNECTED
        assert await store.get("/e") == Node(b"mine", 0)
