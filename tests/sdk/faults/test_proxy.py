"""The proxy does what it is told, or every test that relies on it proves nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from tests.support.fault_proxy import FaultProxy
from tests.support.frame_cutter import FrameCutter

FRAME = b"\0\0\0\x06abcdef"


@pytest_asyncio.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    """A proxy in front of a server that echoes."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, FaultProxy(server.sockets[0].getsockname()[1]) as proxy:
        yield proxy


class Client:
    """A connection through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await self.hear(len(data))

    async def hear(self, count: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(count), 5)

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), 5)

    async def hears_nothing(self) -> bool:
        try:
            await asyncio.wait_for(self.reader.read(1), 0.05)
        except TimeoutError:
            return True
        return False


Connect = Callable[[], Awaitable[Client]]


@pytest_asyncio.fixture
async def connect(proxy: FaultProxy) -> AsyncIterator[Connect]:
    """Connects; what it connected is closed at the end."""
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(Client(*await asyncio.open_connection("127.0.0.1", proxy.port)))
        return clients[-1]

    yield connect
    for client in clients:
        client.writer.close()
    await asyncio.gather(*(c.writer.wait_closed() for c in clients), return_exceptions=True)


async def test_it_forwards_both_ways(proxy: FaultProxy, connect: Connect) -> None:
    client = await connect()
    assert await client.ask(FRAME) == FRAME
    assert (proxy.to_server.passed, proxy.to_client.passed) == (10, 10)
    assert (proxy.accepted, proxy.connections) == (1, 1)


@pytest.mark.parametrize("count", [1, 3, 4, 9, 11, 25])
async def test_it_cuts_after_so_many_bytes(proxy: FaultProxy, connect: Connect, count: int) -> None:
    client = await connect()
    proxy.to_client.cut_after(count)
    client.writer.write(FRAME * 3)
    assert await client.rest() == (FRAME * 3)[:count]
    assert proxy.cuts == 1
    assert not proxy.to_client.will_cut
    assert await (await connect()).ask(FRAME) == FRAME


@pytest.mark.parametrize("count", [0, 10, 20])
async def test_a_cut_between_two_frames_goes_into_the_next(
    proxy: FaultProxy, connect: Connect, count: int
) -> None:
    client = await connect()
    proxy.to_client.cut_after(count)
    client.writer.write(FRAME * 3)
    assert await client.rest() == (FRAME * 3)[: count + 1]


async def test_it_resets(proxy: FaultProxy, connect: Connect) -> None:
    client = await connect()
    proxy.to_server.cut_after(5, reset=True)
    client.writer.write(FRAME)
    with pytest.raises(ConnectionResetError):
        await client.rest()


async def test_it_cuts_everything_at_once(proxy: FaultProxy, connect: Connect) -> None:
    clients = [await connect() for _ in range(3)]
    for client in clients:
        await client.ask(FRAME)
    assert proxy.cut() == 3
    assert [await client.rest() for client in clients] == [b"", b"", b""]


async def test_it_stalls_and_goes_on(proxy: FaultProxy, connect: Connect) -> None:
    client = await connect()
    proxy.to_client.stall()
    client.writer.write(FRAME)
    assert await client.hears_nothing()
    proxy.heal()
    assert await client.hear(len(FRAME)) == FRAME


async def test_swallowed_bytes_are_lost(proxy: FaultProxy, connect: Connect) -> None:
    client = await connect()
    proxy.to_server.swallow()
    client.writer.write(FRAME)
    assert await client.hears_nothing()
    assert proxy.to_server.swallowed == len(FRAME)
    proxy.heal()
    assert await client.ask(FRAME) == FRAME


async def test_it_trickles(proxy: FaultProxy, connect: Connect) -> None:
    client = await connect()
    proxy.to_client.trickle(1, every=0.001)
    client.writer.write(FRAME)
    first = await asyncio.wait_for(client.reader.read(100), 5)
    assert first != FRAME
    assert first + await client.hear(len(FRAME) - len(first)) == FRAME


async def test_it_lets_nobody_in(proxy: FaultProxy, connect: Connect) -> None:
    client = await connect()
    await client.ask(FRAME)
    await proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await connect()
    assert await client.ask(FRAME) == FRAME
    await proxy.listen()
    assert await (await connect()).ask(FRAME) == FRAME


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 100])
def test_frames_are_followed_through_any_pieces(piece: int) -> None:
    stream = FRAME + b"\0\0\0\0" + FRAME
    cutter = FrameCutter()
    for start in range(0, len(stream), piece):
        data = stream[start : start + piece]
        assert cutter.advance(data, None) == len(data)
    assert not cutter.is_inside
