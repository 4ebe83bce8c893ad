"""Requests to other brokers by id, over connections that are shared, kept and given up."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from qbus.broker.metadata.image import BrokerInfo
from qbus.broker.peers import client as client_module
from qbus.broker.peers.client import PeerClient, PeerSettings
from qbus.broker.peers.connection import PeerError
from qbus.wire import ApiKey
from qbus.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tests.support.fake_leader import FakeLeader
from tests.support.ports import free_port
from tests.support.waiting import eventually

REQUEST = ListOffsetsRequest(replica_id=1, topics=[])
PEER = 2


class Registered:
    """The registrations, as a test states them."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerInfo] = {}

    def register(self, port: int, broker_id: int = PEER) -> None:
        self.brokers[broker_id] = BrokerInfo(broker_id, "127.0.0.1", port)


@pytest.fixture
def registered() -> Registered:
    return Registered()


@pytest.fixture
async def client(registered: Registered) -> AsyncIterator[PeerClient]:
    made = PeerClient(
        registered,
        PeerSettings(client_id="test", connect_timeout_s=5, backoff_s=0.2, max_frame=1000),
    )
    yield made
    made.close()


@pytest.fixture
async def peer(registered: Registered) -> AsyncIterator[FakeLeader]:
    async with FakeLeader() as leader:
        registered.register(leader.port)
        yield leader


async def send(client: PeerClient, timeout: float = 5.0, **rest: Any) -> Any:
    return await client.send(PEER, ApiKey.LIST_OFFSETS, 7, REQUEST, timeout, **rest)


async def test_all_requests_share_one_connection(client: PeerClient, peer: FakeLeader) -> None:
    responses = await asyncio.gather(*(send(client) for _ in range(5)))
    responses.append(await send(client))
    assert [type(response) for response in responses] == [ListOffsetsResponse] * 6
    assert peer.connections == 1


@pytest.mark.usefixtures("peer")
async def test_a_response_can_be_read_while_it_is_valid(client: PeerClient) -> None:
    assert await send(client, read=lambda response: len(response.topics)) == 0


async def test_an_unknown_broker(client: PeerClient) -> None:
    with pytest.raises(PeerError, match="broker 2 is not registered"):
        await send(client)
    with pytest.raises(PeerError, match="broker 2 is not registered"):
        async with client.connect(PEER):
            pass


async def test_a_late_response_closes_the_connection(client: PeerClient, peer: FakeLeader) -> None:
    peer.silent = True
    with pytest.raises(PeerError, match="no response to LIST_OFFSETS in time"):
        await send(client, timeout=0.05)
    peer.silent = False
    assert await send(client)
    assert peer.connections == 2


async def test_a_connection_that_is_cut_fails_its_requests_and_is_replaced(
    client: PeerClient, peer: FakeLeader
) -> None:
    peer.silent = True
    waiting = asyncio.create_task(send(client))
    await eventually(lambda: peer.connections == 1)
    peer.hang_up()
    with pytest.raises(PeerError, match=r"clos|reset"):
        await waiting
    peer.silent = False
    assert await send(client)


async def test_a_broker_that_registers_elsewhere_is_found(
    client: PeerClient, peer: FakeLeader, registered: Registered
) -> None:
    await send(client)
    async with FakeLeader() as moved:
        registered.register(moved.port)
        assert await send(client)
        assert (peer.connections, moved.connections) == (1, 1)


async def test_attempts_to_connect_are_apart_and_end_in_time(
    client: PeerClient, registered: Registered
) -> None:
    registered.register(free_port())
    failures = 0
    loop = asyncio.get_running_loop()
    start = loop.time()
    while loop.time() - start < 0.3:
        with pytest.raises(PeerError):
            await send(client)
        failures += 1
    assert failures <= 6
    for _ in range(3):
        with pytest.raises(PeerError):
            await send(client)
    with pytest.raises(PeerError, match=r"broker 2 was not reached within 0\.01 s"):
        await send(client, timeout=0.01)


async def test_a_broker_that_comes_back_is_reached(
    client: PeerClient, registered: Registered
) -> None:
    registered.register(free_port())
    with pytest.raises(PeerError):
        await send(client)
    async with FakeLeader() as leader:
        registered.register(leader.port)
        assert await send(client)


async def test_closing_fails_what_is_outstanding_and_what_follows(
    client: PeerClient, peer: FakeLeader
) -> None:
    peer.silent = True
    waiting = asyncio.create_task(send(client))
    await eventually(lambda: peer.connections == 1)
    client.close()
    with pytest.raises(PeerError, match="closed"):
        await waiting
    with pytest.raises(PeerError, match="closed"):
        await send(client)


async def test_what_waits_for_a_broker_that_is_registered_no_more_fails(
    client: PeerClient, peer: FakeLeader, registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_LOOK_S", 0.02)
    peer.silent = True
    waiting = asyncio.create_task(send(client, 60.0))
    await eventually(lambda: peer.connections == 1)
    await asyncio.sleep(0.1)
    assert not waiting.done(), "it is registered"
    del registered.brokers[PEER]
    with pytest.raises(PeerError, match="broker 2 is not registered any more"):
        await waiting
    registered.register(peer.port)
    peer.silent = False
    assert await send(client)


async def test_an_idle_connection_is_closed(
    client: PeerClient, peer: FakeLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_IDLE_S", 0.02)
    await send(client)
    await eventually(lambda: not peer.open_connections)
    assert await send(client)
    assert peer.connections == 2


async def test_a_connection_that_waits_for_a_response_is_not_idle(
    client: PeerClient, peer: FakeLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_IDLE_S", 0.02)
    peer.silent = True
    waiting = asyncio.create_task(send(client))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert peer.open_connections == 1
    client.close()
    with pytest.raises(PeerError):
        await waiting


async def test_a_connection_of_ones_own_is_closed_on_exit(
    client: PeerClient, peer: FakeLeader
) -> None:
    async with client.connect(PEER) as first, client.connect(PEER) as second:
        assert await first.request(ApiKey.LIST_OFFSETS, 7, REQUEST, 5)
        assert await second.request(ApiKey.LIST_OFFSETS, 7, REQUEST, 5)
        assert peer.open_connections == 2
    await eventually(lambda: not peer.open_connections)
