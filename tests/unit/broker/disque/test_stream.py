"""Streams: what is received and sent, slow clients, and how they end."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from qbus.broker.disque import stream as module
from qbus.broker.disque.stream import PlainStream
from tests.support.waiting import eventually

MUCH = 8 << 20


class Receiver:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.events: list[str] = []
        self.error: Exception | None = None

    def connection_made(self, transport: Any) -> None:
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append("lost")
        self.error = error

    def pause_writing(self) -> None:
        self.events.append("full")

    def resume_writing(self) -> None:
        self.events.append("free")


class Pair:
    """A stream, and its client's end."""

    def __init__(self) -> None:
        own, self.client = socket.socketpair()
        for sock in (own, self.client):
            sock.setblocking(False)
        self.receiver = Receiver()
        self.stream = PlainStream(asyncio.get_running_loop(), own, ("host", 7), self.receiver)
        self.stream.start()

    async def read(self, count: int) -> bytes:
        """What the client gets: so many bytes, or fewer at the end."""
        data = bytearray()
        while len(data) < count:
            some = await asyncio.wait_for(
                asyncio.get_running_loop().sock_recv(self.client, 1 << 20), 5
            )
            if not some:
                break
            data += some
        return bytes(data)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    yield made
    made.stream.abort()
    made.client.close()
    await asyncio.sleep(0)


async def test_what_comes_is_handed_on_and_what_is_written_goes_out(pair: Pair) -> None:
    assert pair.stream.get_extra_info("peername") == ("host", 7)
    assert pair.stream.get_extra_info("ssl_object") is None
    pair.client.send(b"question")
    await eventually(lambda: pair.receiver.received == b"question")
    pair.stream.write(b"answer")
    assert await pair.read(6) == b"answer"


async def test_nothing_is_received_during_a_pause(pair: Pair) -> None:
    pair.stream.pause_reading()
    pair.client.send(b"early")
    await asyncio.sleep(0.01)
    assert not pair.receiver.received
    pair.stream.resume_reading()
    await eventually(lambda: pair.receiver.received == b"early")


async def test_what_a_slow_client_does_not_take_yet_is_kept_in_order(pair: Pair) -> None:
    pair.stream.set_write_buffer_limits(high=1000)
    pair.stream.write(b"a" * MUCH)
    pair.stream.write(b"b" * 5)
    assert pair.receiver.events == ["made", "full"]
    assert pair.stream.get_write_buffer_size() > 1000
    data = await pair.read(MUCH + 5)
    assert data == b"a" * MUCH + b"b" * 5
    await eventually(lambda: pair.receiver.events == ["made", "full", "free"])
    assert pair.stream.get_write_buffer_size() == 0


async def test_closing_waits_until_all_is_sent(pair: Pair) -> None:
    pair.stream.write(b"a" * MUCH)
    pair.stream.close()
    await asyncio.sleep(0.01)
    assert pair.receiver.events[-1] != "lost"
    assert len(await pair.read(MUCH + 1)) == MUCH
    await eventually(lambda: pair.receiver.events[-1] == "lost")
    assert pair.receiver.error is None


async def test_aborting_does_not(pair: Pair) -> None:
    pair.stream.write(b"a" * MUCH)
    pair.stream.abort()
    await eventually(lambda: pair.receiver.events[-1] == "lost")
    assert len(await pair.read(MUCH)) < MUCH
    pair.stream.write(b"more")
    pair.stream.close()
    await asyncio.sleep(0.01)
    assert pair.receiver.events.count("lost") == 1


async def test_the_end_of_the_client_is_told_once(pair: Pair) -> None:
    pair.client.close()
    await eventually(lambda: pair.receiver.events == ["made", "lost"])


async def test_so_is_a_broken_one(pair: Pair) -> None:
    pair.stream.pause_reading()
    pair.client.close()
    pair.stream.write(b"to nobody")
    await eventually(lambda: pair.receiver.events == ["made", "lost"])
    assert isinstance(pair.receiver.error, OSError)


async def test_a_defect_of_who_receives_ends_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def data_received(data: bytes) -> None:
        raise RuntimeError(f"a defect with {len(data)} bytes")

    monkeypatch.setattr(pair.receiver, "data_received", data_received)
    pair.client.send(b"question")
    await eventually(lambda: pair.receiver.events == ["made", "lost"])
    assert isinstance(pair.receiver.error, RuntimeError)
    assert "a defect with 8 bytes" in caplog.text
    assert await pair.read(1) == b""


@pytest.mark.sources
async def test_closing_waits_for_nobody_who_does_not_read(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_CLOSING_S", 0.02)
    pair.stream.write(b"a" * MUCH)
    pair.stream.close()
    await eventually(lambda: pair.receiver.events[-1] == "lost")
    assert pair.receiver.error is None
    assert len(await pair.read(MUCH)) < MUCH
