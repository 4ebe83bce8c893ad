"""What is written arrives whole and in order, however little the socket takes at a time."""

import asyncio
import os
import random
import socket
import ssl

import pytest

from qbus.clients.net.write_buffer import TlsWriteBuffer, WriteBuffer, write_buffer_of
from tests.support.secure_broker import certificates
from tests.support.waiting import eventually


class Sender(asyncio.Protocol):
    """As a connection does it: whenever asyncio has nothing left, the outbox goes on."""

    outbox: WriteBuffer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.outbox = write_buffer_of(transport)

    def pause_writing(self) -> None:
        if hasattr(self, "outbox"):
            self.outbox.pause()

    def resume_writing(self) -> None:
        if hasattr(self, "outbox"):
            self.outbox.resume()


async def pair() -> tuple[Sender, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    theirs.setblocking(False)
    _, sender = await asyncio.get_running_loop().create_connection(Sender, sock=ours)
    return sender, theirs


async def receive(sock: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        received += await asyncio.get_running_loop().sock_recv(sock, 10_000)
    return received


async def test_many_parts_of_all_sizes_in_order() -> None:
    sender, theirs = await pair()
    rng = random.Random(7)
    sent = b""
    for _ in range(30):
        parts = [rng.randbytes(rng.choice((0, 1, 100, 70_000, 200_000))) for _ in range(5)]
        sent += b"".join(parts)
        sender.outbox.send([memoryview(part) for part in parts])
    assert not sender.outbox.is_empty.is_set()
    assert await receive(theirs, len(sent)) == sent
    async with asyncio.timeout(5):
        await sender.outbox.is_empty.wait()
    sender.transport.close()
    theirs.close()


async def test_little_of_what_waits_is_copied() -> None:
    sender, theirs = await pair()
    sender.outbox.send([bytes(5_000_000)])
    assert 0 < sender.transport.get_write_buffer_size() <= 64 * 1024
    sender.transport.abort()
    theirs.close()


async def test_more_parts_than_the_system_takes_at_once() -> None:
    sender, theirs = await pair()
    parts = [i.to_bytes(2, "big") for i in range(3000)]
    sender.outbox.send(list(parts))
    assert await receive(theirs, 6000) == b"".join(parts)
    sender.transport.close()
    theirs.close()


async def test_what_waits_is_sent_before_the_end() -> None:
    sender, theirs = await pair()
    sender.outbox.send([bytes(300_000), b"end"])
    sender.outbox.hand_over()
    assert sender.outbox.is_empty.is_set()
    sender.transport.close()
    assert (await receive(theirs, 300_003)).endswith(b"end")
    theirs.close()


async def test_what_is_forgotten_is_not_sent() -> None:
    sender, theirs = await pair()
    sender.outbox.send([bytes(300_000)])
    sender.outbox.clear()
    assert sender.outbox.is_empty.is_set()
    size = sender.transport.get_write_buffer_size()
    assert size <= 64 * 1024
    sender.transport.abort()
    theirs.close()


async def test_a_broken_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, theirs = await pair()

    def broken(fd: int, parts: list[memoryview]) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(os, "writev", broken)
    with pytest.raises(BrokenPipeError):
        sender.outbox.send([b"x"])
    sender.transport.abort()
    theirs.close()


async def test_over_tls_parts_arrive_in_order_and_little_is_kept_by_asyncio() -> None:
    received = bytearray()
    may_read = asyncio.Event()

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await may_read.wait()
        while data := await reader.read(100_000):
            received.extend(data)
        writer.close()

    server = await asyncio.start_server(read, "127.0.0.1", 0, ssl=certificates().context())
    context = ssl.create_default_context(cafile=certificates().ca)
    _, sender = await asyncio.get_running_loop().create_connection(
        Sender, *server.sockets[0].getsockname()[:2], ssl=context, server_hostname="localhost"
    )
    assert isinstance(sender.outbox, TlsWriteBuffer)
    rng = random.Random(7)
    sent = b""
    for _ in range(60):
        parts = [rng.randbytes(rng.choice((0, 1, 100, 20_000, 500_000))) for _ in range(5)]
        sent += b"".join(parts)
        sender.outbox.send([memoryview(part) for part in parts])
    assert not sender.outbox.is_empty.is_set()
    assert sender.transport.get_write_buffer_size() < 1024 * 1024
    may_read.set()
    async with asyncio.timeout(10):
        await sender.outbox.is_empty.wait()
    sender.outbox.send([b"the end"])
    sender.outbox.hand_over()
    sender.transport.close()
    await eventually(lambda: len(received) == len(sent) + 7)
    assert bytes(received) == sent + b"the end"
    server.close()
    await server.wait_closed()
