"""Connections: pipelines, the order of replies, slow and silent clients, limits."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from qbus.broker.disque import connection as module
from qbus.broker.disque import resp
from qbus.broker.disque.connection import Client, PendingReply, Reply
from qbus.broker.disque.listener import DisqueListener, Entrance, Limits
from qbus.broker.net.listener import bind
from qbus.broker.net.memory_budget import MemoryBudget
from qbus.config import Address
from qbus.service.descriptors import shortages
from tests.support.waiting import eventually

LIMITS = Limits(max_command=1 << 20, max_clients=50, idle_s=0, command_s=30, stall_s=60)


class Commands:
    """``ECHO x`` answers at once, ``LATER x`` and ``ALONE x`` when a test says so."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.open: dict[bytes, asyncio.Future[bytes]] = {}
        self.pending: dict[bytes, PendingReply] = {}
        self.clients: list[Client] = []
        self.is_paused = False

    def is_concurrent(self, arguments: list[bytes]) -> bool:
        return arguments[0] in {b"LATER", b"SOON", b"NOW"}

    def begin(self, client: Client, arguments: list[bytes]) -> Reply:
        self.clients.append(client)
        name, text = arguments[0], arguments[-1]
        self.begun.append(text)
        if name == b"QUIT":
            client.is_over = True
            return resp.OK
        if name == b"BIG":
            return resp.bulk(b"x" * int(text))
        if name == b"BREAK":
            raise RuntimeError("a defect")
        if name == b"ECHO":
            return resp.bulk(text)
        if name == b"SOON":
            return self.pending.setdefault(text, PendingReply())
        if name == b"NOW":  # which has others answered, too
            for one in self.pending:
                self.answer(one)
            return resp.bulk(text)
        future = asyncio.get_running_loop().create_future()
        self.open[text] = future
        return future

    def answer(self, text: bytes) -> None:
        """Answer what was asked with ``text``."""
        if text in self.pending:
            self.pending[text].answer(resp.bulk(text))
        else:
            self.open[text].set_result(resp.bulk(text))


class Served:
    """A listener, and a client of it."""

    def __init__(
        self,
        limits: Limits = LIMITS,
        budget: int = 1 << 30,
        use: Callable[[Client, int, int], float] = lambda *_: 0.0,
    ) -> None:
        self.commands = Commands()
        sock, address = bind(Address("127.0.0.1", 0))
        self.budget = MemoryBudget(budget)
        self.listener = DisqueListener(
            [Entrance(sock, address)], self.commands, limits, self.budget, use=use
        )
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> "Peer":
        """Another client."""
        reader, writer = await asyncio.open_connection(*self.listener.address)
        self._writers.append(writer)
        return Peer(reader, writer)

    def close(self) -> None:
        """Close everything."""
        for writer in self._writers:
            writer.close()
        self.listener.close()


class Peer:
    """A client's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)

    async def line(self) -> bytes:
        """The next line; empty at the end."""
        return await asyncio.wait_for(self.reader.readline(), 5)

    async def text(self) -> bytes:
        """The next bulk string."""
        await self.line()
        return (await self.line()).strip()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served()
    await made.listener.start()
    yield made
    made.close()


async def test_replies_keep_the_order_of_commands(served: Served) -> None:
    peer = await served.connect()
    peer.send(b"LATER a\r\nLATER b\r\nLATER c\r\n")
    await eventually(lambda: served.commands.begun == [b"a", b"b", b"c"])
    served.commands.answer(b"c")
    served.commands.answer(b"b")
    served.commands.answer(b"a")
    assert [await peer.text() for _ in range(3)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
async def test_so_do_those_that_are_told_at_once(served: Served, order: str) -> None:
    peer = await served.connect()
    peer.send(b"SOON a\r\nLATER b\r\nSOON c\r\n")
    await eventually(lambda: served.commands.begun == [b"a", b"b", b"c"])
    for text in order:
        served.commands.answer(text.encode())
    assert [await peer.text() for _ in range(3)] == [b"a", b"b", b"c"]
    peer.send(b"SOON d\r\n")
    await eventually(lambda: served.commands.begun[-1] == b"d")
    served.commands.answer(b"d")
    assert await peer.text() == b"d"


async def test_one_that_is_answered_while_others_are_begun_keeps_its_place(served: Served) -> None:
    peer = await served.connect()
    peer.send(b"ECHO a\r\nSOON b\r\nNOW c\r\nECHO d\r\nSOON e\r\n")
    assert [await peer.text() for _ in range(4)] == [b"a", b"b", b"c", b"d"]
    await eventually(lambda: b"e" in served.commands.pending)
    served.commands.answer(b"e")
    assert await peer.text() == b"e"


async def test_what_waits_behind_one_is_begun_once_it_is_answered(served: Served) -> None:
    peer = await served.connect()
    peer.send(b"SOON a\r\nECHO b\r\n")
    await eventually(lambda: served.commands.begun == [b"a"])
    served.commands.answer(b"a")
    assert [await peer.text(), await peer.text()] == [b"a", b"b"]


async def test_nobody_waits_for_one_whose_client_is_gone(served: Served) -> None:
    peer = await served.connect()
    peer.send(b"SOON a\r\n")
    await eventually(lambda: b"a" in served.commands.pending)
    peer.writer.close()
    reply = served.commands.pending[b"a"]
    await eventually(reply.done)
    reply.answer(b"too late")
    with pytest.raises(asyncio.CancelledError):
        reply.result()


async def test_a_reply_to_come_can_be_awaited() -> None:
    late, early, never = PendingReply(), PendingReply(), PendingReply()
    early.answer(b"early")
    waiting = asyncio.ensure_future(late)
    await asyncio.sleep(0)
    late.answer(b"late")
    late.answer(b"later")
    never.cancel()
    assert (await waiting, await early) == (b"late", b"early")
    with pytest.raises(asyncio.CancelledError):
        await never


async def test_who_would_answer_hears_that_nobody_waits_any_more() -> None:
    heard: list[str] = []
    answered, cancelled, late = PendingReply(), PendingReply(), PendingReply()
    for name, reply in (("answered", answered), ("cancelled", cancelled)):
        reply.on_cancel(partial(heard.append, name))
    answered.answer(b"reply")
    for reply in (answered, cancelled, late):
        reply.cancel()
        reply.cancel()
    assert heard == ["cancelled"]
    answered.on_cancel(partial(heard.append, "answered"))
    late.on_cancel(partial(heard.append, "late"))
    assert heard == ["cancelled", "late"]


async def test_what_comes_together_with_nonsense_is_answered(served: Served) -> None:
    peer = await served.connect()
    peer.send(b"ECHO a\r\n*1\r\n!4\r\n")
    assert await peer.text() == b"a"
    assert (await peer.line()).startswith(b"-ERR Protocol error")


async def test_what_is_not_concurrent_waits_for_those_before_it(served: Served) -> None:
    peer = await served.connect()
    peer.send(b"LATER a\r\nECHO b\r\nLATER c\r\n")
    await eventually(lambda: served.commands.begun == [b"a"])
    await asyncio.sleep(0.01)
    assert served.commands.begun == [b"a"]
    served.commands.answer(b"a")
    assert [await peer.text(), await peer.text()] == [b"a", b"b"]
    await eventually(lambda: served.commands.begun == [b"a", b"b", b"c"])
    served.commands.answer(b"c")
    assert await peer.text() == b"c"


async def test_nothing_passes_a_command_that_waits_alone(served: Served) -> None:
    peer = await served.connect()
    peer.send(b"ALONE a\r\nLATER b\r\n")
    await eventually(lambda: served.commands.begun == [b"a"])
    await asyncio.sleep(0.01)
    assert served.commands.begun == [b"a"]
    served.commands.answer(b"a")
    await eventually(lambda: served.commands.begun == [b"a", b"b"])


@pytest.mark.sources
async def test_a_pipeline_has_a_limit(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPEN_REPLIES", 5)
    peer = await served.connect()
    peer.send(b"".join(b"LATER %d\r\n" % number for number in range(8)))
    await eventually(lambda: len(served.commands.begun) == 5)
    await asyncio.sleep(0.01)
    assert len(served.commands.begun) == 5
    for number in range(8):
        await eventually(partial(served.commands.open.__contains__, b"%d" % number))
        served.commands.answer(b"%d" % number)
        assert await peer.text() == b"%d" % number


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.sources
async def test_what_waits_to_be_begun_is_not_received_on(
    served: Served, monkeypatch: pytest.MonkeyPatch, *, is_paused: bool
) -> None:
    monkeypatch.setattr(module, "MAX_OPEN_REPLIES", 0 if is_paused else 5)
    served.commands.is_paused = is_paused
    peer = await served.connect()
    command = resp.command([b"LATER", b"x" * 60_000])
    for _ in range(400):
        peer.send(command)
    await asyncio.sleep(0.3)
    (connection,) = served.listener.clients()
    assert connection.unread < 3 << 20
    assert served.budget.used < 4 << 20


@pytest.mark.sources
async def test_what_is_begun_counts_until_it_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BEGUN_BYTES", 250_000)
    peer = await served.connect()
    for number in range(5):
        peer.send(resp.command([b"LATER", b"x" * 100_000, b"%d" % number]))
    await eventually(lambda: len(served.commands.begun) == 3)
    await asyncio.sleep(0.05)
    assert len(served.commands.begun) == 3
    assert served.budget.used >= 300_000
    for number in range(5):
        await eventually(partial(served.commands.open.__contains__, b"%d" % number))
        served.commands.answer(b"%d" % number)
        assert await peer.text() == b"%d" % number
    await eventually(lambda: served.budget.used == 0)


async def test_a_client_that_does_not_read_is_not_served_on(served: Served) -> None:
    peer = await served.connect()
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    size = 4 << 20
    for _ in range(20):
        peer.send(b"BIG %d\r\n" % size)
    await eventually(lambda: len(served.commands.begun) > 1)
    await asyncio.sleep(0.05)
    assert len(served.commands.begun) < 10
    peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(20):
        assert len(await asyncio.wait_for(peer.reader.readexactly(size + 12), 10)) == size + 12


async def test_bytes_that_are_no_command_end_the_connection(served: Served) -> None:
    peer = await served.connect()
    peer.send(b"LATER a\r\n*x\r\nECHO b\r\n")
    await eventually(lambda: served.commands.begun == [b"a"])
    served.commands.answer(b"a")
    assert await peer.text() == b"a"
    assert await peer.line() == b"-ERR Protocol error: invalid multibulk length\r\n"
    assert await peer.line() == b""
    assert served.commands.begun == [b"a"]


async def test_quit_is_answered_before_the_end(served: Served) -> None:
    peer = await served.connect()
    peer.send(b"ECHO a\r\nQUIT\r\nECHO b\r\n")
    assert await peer.text() == b"a"
    assert await peer.line() == b"+OK\r\n"
    assert await peer.line() == b""


async def test_a_defect_ends_one_connection_alone(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    peer, other = await served.connect(), await served.connect()
    peer.send(b"BREAK\r\n")
    assert await peer.line() == b""
    assert "a defect" in caplog.text
    other.send(b"ECHO a\r\n")
    assert await other.text() == b"a"


async def test_a_defect_with_a_reply_does_not_reach_who_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def use(client: Client, received: int, sent: int) -> float:
        if sent and client.id == 1:
            raise RuntimeError("a defect")
        return 0.0

    served = Served(use=use)
    await served.listener.start()
    try:
        peer, other = await served.connect(), await served.connect()
        for number, one in enumerate((peer, other)):
            one.send(b"SOON %d\r\n" % number)
            await eventually(partial(served.commands.pending.__contains__, b"%d" % number))
        for number in range(2):
            served.commands.answer(b"%d" % number)
        assert await other.text() == b"1"
        await eventually(lambda: served.listener.connections == 1)
        assert "a defect" in caplog.text
    finally:
        served.close()


async def test_the_end_of_a_connection_cancels_what_it_waits_for(served: Served) -> None:
    peer = await served.connect()
    peer.send(b"ALONE a\r\n")
    await eventually(lambda: b"a" in served.commands.open)
    peer.writer.close()
    await eventually(served.commands.open[b"a"].cancelled)
    assert served.listener.connections == 0


async def test_replies_can_be_switched_off_and_skipped(served: Served) -> None:
    peer = await served.connect()
    peer.send(b"ECHO a\r\n")
    assert await peer.text() == b"a"
    client = served.commands.clients[-1]
    client.is_muted = True
    peer.send(b"ECHO b\r\n")
    await eventually(lambda: served.commands.begun[-1] == b"b")
    client.is_muted = False
    client.skips = 1
    peer.send(b"ECHO c\r\nECHO d\r\n")
    assert await peer.text() == b"d"


async def test_a_pause_of_all_clients_ends(served: Served) -> None:
    peer = await served.connect()
    served.commands.is_paused = True
    peer.send(b"ECHO a\r\n")
    await asyncio.sleep(0.02)
    assert served.commands.begun == []
    served.commands.is_paused = False
    for connection in served.listener.clients():
        connection.go_on()
    assert await peer.text() == b"a"


@pytest.mark.parametrize(
    ("limits", "data", "why"),
    [
        ({"idle_s": 0.2}, b"ECHO a\r\n", "idle"),
        ({"command_s": 0.2}, b"*2\r\n$4\r\nEC", "a command was not whole"),
        ({"command_s": 0.2}, b"ECH", "a command was not whole"),
    ],
)
async def test_clients_have_their_time(
    limits: dict[str, Any], data: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    served = Served(LIMITS._replace(**limits))
    await served.listener.start()
    try:
        peer = await served.connect()
        peer.send(data)
        assert (await asyncio.wait_for(peer.reader.read(), 10))[:1] in {b"", b"$"}
        assert why in caplog.text
    finally:
        served.close()


async def test_one_that_waits_for_its_reply_is_not_idle() -> None:
    served = Served(LIMITS._replace(idle_s=0.2))
    await served.listener.start()
    try:
        peer = await served.connect()
        peer.send(b"ALONE a\r\n")
        await asyncio.sleep(1.5)
        served.commands.answer(b"a")
        assert await peer.text() == b"a"
    finally:
        served.close()


async def test_a_drain_waits_for_nobody_who_does_not_read(served: Served) -> None:
    peer = await served.connect()
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    peer.send(b"BIG 30000000\r\n")
    await eventually(lambda: served.commands.begun == [b"30000000"])
    await asyncio.wait_for(served.listener.drain(20), 5)


async def test_there_are_not_too_many_clients() -> None:
    served = Served(LIMITS._replace(max_clients=2))
    await served.listener.start()
    try:
        first, _, third = [await served.connect() for _ in range(3)]
        assert await third.line() == b"-ERR max number of clients reached\r\n"
        assert await third.line() == b""
        first.send(b"ECHO a\r\n")
        assert await first.text() == b"a"
        assert (served.listener.accepted, served.listener.refused) == (2, 1)
        first.writer.close()
        await eventually(lambda: served.listener.connections == 1)
        fourth = await served.connect()
        fourth.send(b"ECHO a\r\n")
        assert await fourth.text() == b"a"
    finally:
        served.close()


class Scarce(socket.socket):
    """Listens, and has no descriptors for the first times that somebody connects."""

    failures = 2

    def accept(self) -> tuple[socket.socket, Any]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


async def test_who_finds_no_descriptor_is_accepted_later() -> None:
    before = shortages.count
    sock, address = bind(Address("127.0.0.1", 0))
    scarce = Scarce(fileno=sock.detach())
    commands, budget = Commands(), MemoryBudget(1 << 20)
    listener = DisqueListener([Entrance(scarce, address)], commands, LIMITS, budget)
    await listener.start()
    peer = Peer(*await asyncio.open_connection(*address))
    try:
        peer.send(b"ECHO a\r\n")
        assert await peer.text() == b"a"
        assert scarce.failures == 0
        assert shortages.count == before + 1
    finally:
        peer.writer.close()
        listener.close()


async def test_nobody_is_accepted_after_the_end(caplog: pytest.LogCaptureFixture) -> None:
    sock, address = bind(Address("127.0.0.1", 0))
    scarce = Scarce(fileno=sock.detach())
    commands, budget = Commands(), MemoryBudget(1 << 20)
    listener = DisqueListener([Entrance(scarce, address)], commands, LIMITS, budget)
    await listener.start()
    scarce.failures = 1000
    _, writer = await asyncio.open_connection(*address)
    await eventually(lambda: scarce.failures < 1000)
    listener.close()
    left = scarce.failures
    await asyncio.sleep(0.1)
    writer.close()
    assert (scarce.failures, scarce.fileno()) == (left, -1)
    assert "Exception" not in caplog.text


async def test_memory_for_what_is_not_whole_is_bounded() -> None:
    served = Served(budget=300_000)
    await served.listener.start()
    try:
        peers = [await served.connect() for _ in range(4)]
        for number, peer in enumerate(peers):
            peer.send(b"*2\r\n$4\r\nECHO\r\n$250000\r\n%d" % number + b"x" * 150_000)
        await asyncio.sleep(0.05)
        assert served.budget.waiting
        for peer in peers:
            peer.send(b"x" * 99_999 + b"\r\n")
        for number, peer in enumerate(peers):
            assert await peer.line() == b"$250000\r\n"
            body = await asyncio.wait_for(peer.reader.readexactly(250_002), 10)
            assert body[:1] == b"%d" % number
        await eventually(lambda: served.budget.used == 0)
    finally:
        served.close()


async def test_a_drain_finishes_what_was_begun(served: Served) -> None:
    peer, idle = await served.connect(), await served.connect()
    peer.send(b"LATER a\r\n")
    await eventually(lambda: b"a" in served.commands.open)
    draining = asyncio.ensure_future(served.listener.drain(5))
    assert await idle.line() == b""
    served.commands.answer(b"a")
    assert await peer.text() == b"a"
    await asyncio.wait_for(draining, 5)
    host, port = served.listener.address
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port), 1)


@pytest.mark.sources
async def test_two_pipelines_take_turns(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TURN_S", -1.0)
    first, second = await served.connect(), await served.connect()
    first.send(b"".join(b"ECHO a%d\r\n" % number for number in range(50)))
    second.send(b"".join(b"ECHO b%d\r\n" % number for number in range(50)))
    for number in range(50):
        assert await first.text() == b"a%d" % number
        assert await second.text() == b"b%d" % number
    begun = served.commands.begun
    changes = sum(one[:1] != other[:1] for one, other in pairwise(begun))
    assert changes > 50
    first.send(b"ECHO again\r\n")
    assert await first.text() == b"again"


@pytest.mark.sources
async def test_empty_commands_take_turns_too(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of a megabyte of them takes half a second."""
    monkeypatch.setattr(module, "MAX_TURN_S", -1.0)
    first, second = await served.connect(), await served.connect()
    first.send(50 * b"\r\n" + 50 * b"*0\r\n" + b"ECHO a\r\n")
    second.send(b"".join(b"ECHO b%d\r\n" % number for number in range(50)))
    assert await first.text() == b"a"
    begun = served.commands.begun
    assert begun == [*(b"b%d" % number for number in range(50)), b"a"]
