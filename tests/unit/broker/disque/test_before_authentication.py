"""Anything at all from clients that have not said who they are, beside one that has.

What is tried is made from seeds: the short run has few of them, the nightly one many.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.disque.authentication import Authentication
from qbus.broker.disque.listener import DisqueListener, Entrance, Limits
from qbus.broker.disque.resp import command
from qbus.broker.net.listener import bind
from qbus.broker.net.memory_budget import MemoryBudget
from qbus.broker.net.peer import Principal
from qbus.config import Address

from .jobs import Jobs
from .test_authentication import Users

WORDS = [
    *(
        b"AUTH",
        b"HELLO",
        b"auth",
        b"3",
        b"2",
        b"SETNAME",
        b"alice",
        b"right",
        b"default",
        b"",
        b"*",
    ),
    *(b"PING", b"QLEN", b"QBUS.LOCAL", b"CLIENT", b"KILL", b"SHUTDOWN", b"DEBUG", b"FLUSHALL"),
    *(b"GETJOB", b"FROM", b"q", b"ADDJOB", b"0", b"\0\xff", b"x" * 2000, b"COMMAND", b"QUIT"),
]


def some_bytes(seed: int) -> bytes:
    """Commands that nearly make sense, cut, joined and broken."""
    chance = random.Random(seed)
    parts = []
    for _ in range(chance.randint(1, 6)):
        data = command([chance.choice(WORDS) for _ in range(chance.randint(1, 6))])
        if chance.random() < 0.3:
            position = chance.randrange(len(data))
            data = data[:position] + chance.randbytes(chance.randint(0, 3)) + data[position + 1 :]
        if chance.random() < 0.1:
            data = b"*%d\r\n$%d\r\n" % (chance.randint(-5, 1 << 40), chance.randint(-5, 1 << 40))
        parts.append(data)
    return b"".join(parts)


class Node:
    """A node with users, and its listener."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.budget = MemoryBudget(64 << 20)
        jobs.service.authentication = Authentication(b"secret", Users(), delay_s=0.005)
        sock, self.address = bind(Address("127.0.0.1", 0))
        self.listener = DisqueListener(
            [Entrance(sock, self.address)],
            jobs.dispatcher,
            Limits(1 << 20, 200, 0.0, 30.0, 30.0, authentication_s=5.0),
            self.budget,
            jobs.service.authentication,
        )
        jobs.admin.listener = self.listener


@pytest.fixture
async def node(jobs: Jobs) -> AsyncIterator[Node]:
    made = Node(jobs)
    await made.listener.start()
    yield made
    made.listener.close()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *words: str) -> bytes:
    writer.write(command(words))
    return await asyncio.wait_for(reader.readline(), 5)


async def try_bytes(node: Node, seed: int) -> bytes:
    """What is answered before the end."""
    reader, writer = await asyncio.open_connection(*node.address)
    try:
        writer.write(some_bytes(seed))
        if writer.can_write_eof():
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(300, id="short"),
        pytest.param(20_000, id="long", marks=[pytest.mark.nightly, pytest.mark.timeout(900)]),
    ],
)
async def test_anything_is_answered_or_closed(node: Node, count: int) -> None:
    honest = await asyncio.open_connection(*node.address)
    assert await ask(*honest, "AUTH", "alice", "right") == b"+OK\r\n"
    slowest = 0.0
    loop = asyncio.get_running_loop()
    for first in range(0, count, 20):
        tries = [asyncio.create_task(try_bytes(node, seed)) for seed in range(first, first + 20)]
        started = loop.time()
        assert await ask(*honest, "PING") == b"+PONG\r\n"
        slowest = max(slowest, loop.time() - started)
        for answer in await asyncio.gather(*tries):
            assert b"+PONG" not in answer or b"+OK" in answer or b"server" in answer
    assert slowest < 1.0
    assert node.budget.used < 1 << 20
    honest[1].close()


async def test_guessing_passwords_is_slow_and_disturbs_nobody(node: Node) -> None:
    honest = await asyncio.open_connection(*node.address)
    assert await ask(*honest, "AUTH", "alice", "right") == b"+OK\r\n"
    guessed = 0

    async def guess() -> None:
        nonlocal guessed
        while True:
            reader, writer = await asyncio.open_connection(*node.address)
            try:
                while line := await ask(reader, writer, "AUTH", "alice", f"guess {guessed}"):
                    assert line.startswith(b"-WRONGPASS")
                    guessed += 1
            except ConnectionError:
                pass
            finally:
                writer.transport.abort()

    guessing = [asyncio.create_task(guess()) for _ in range(20)]
    for _ in range(50):
        assert await ask(*honest, "PING") == b"+PONG\r\n"
        await asyncio.sleep(0.005)
    for task in guessing:
        task.cancel()
    await asyncio.gather(*guessing, return_exceptions=True)
    assert 0 < guessed <= 20 * (0.005 * 50 * 4 / 0.005)
    assert node.jobs.service.authentication.failed >= guessed
    honest[1].close()


async def test_unfinished_commands_hold_little(node: Node) -> None:
    idle = []
    for _ in range(150):
        _, writer = await asyncio.open_connection(*node.address)
        writer.write(b"*2\r\n$4\r\nAUTH\r\n$60000\r\n" + b"x" * 50_000)
        await writer.drain()
        idle.append(writer)
    honest = await asyncio.open_connection(*node.address)
    assert await ask(*honest, "AUTH", "secret") == b"+OK\r\n"
    held = sum(one.unread for one in node.listener.clients())
    assert held <= 150 * (64 << 10)
    for writer in idle:
        writer.transport.abort()
    honest[1].close()


async def test_nobody_is_somebody_by_accident(tmp_path: Path) -> None:
    made = Jobs(tmp_path)
    await made.start()
    made.service.authentication = Authentication(users=Users(), delay_s=0)
    chance = random.Random(7)
    for _ in range(2000):
        client = made.new_client()
        words = [chance.choice(WORDS[:12]) for _ in range(chance.randint(1, 6))]
        reply = made.dispatcher.begin(client, words)
        if not isinstance(reply, bytes):
            reply = await reply
        if client.is_authenticated:
            assert b"right" in words
            assert client.principal == Principal("User", "alice")
        assert reply[:1] in b"-+%*$:"
    await made.stop()
