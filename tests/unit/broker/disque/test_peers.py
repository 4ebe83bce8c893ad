"""What other nodes are asked: who waits stands before nobody, and hears why he waits in vain."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import hiredis
import pytest

from qbus.broker.disque import service
from qbus.broker.disque.errors import CommandError
from qbus.broker.disque.nodes import Node
from qbus.broker.disque.peers import Link, NodeConnection, NodeUnavailableError, Peers
from qbus.config import Address
from tests.support.data_plane import NODE
from tests.support.waiting import eventually

from .jobs import Jobs

WAITING = {b"ADDJOB", b"ACKJOB", b"GETJOB"}


class FarNode:
    """A node that answers, on each connection in order; what waits there waits for a test."""

    def __init__(self) -> None:
        self.connections: list[asyncio.StreamWriter] = []
        self.asked: list[list[bytes]] = []
        self.may_answer = asyncio.Event()
        self.is_stopped = False
        self.ended = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])
        self.node = Node(NODE + 1, "f" * 40, self.address)

    async def stop(self) -> None:
        self._server.close()
        for writer in self.connections:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        commands = hiredis.Reader()
        while data := await reader.read(1 << 16):
            commands.feed(data)
            while (words := commands.gets()) is not False:
                self.asked.append(words)
                if self.is_stopped:
                    continue
                name = words[1] if words[0] == b"QBUS.LOCAL" else words[0]
                if name in WAITING:
                    await self.may_answer.wait()
                writer.write(self._reply(name))
        self.ended += 1

    def _reply(self, name: bytes) -> bytes:
        if name == b"AUTH":
            return b"-WRONGPASS it is another one\r\n"
        return {b"ADDJOB": b"+D-id\r\n", b"GETJOB": b"*-1\r\n"}.get(name, b":1\r\n")


@pytest.fixture
async def far() -> AsyncIterator[FarNode]:
    made = FarNode()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    made = Peers(Link(), 5.0)
    yield made
    made.close()


class TestCommands:
    async def test_what_waits_stands_before_nothing_that_does_not(
        self, far: FarNode, peers: Peers
    ) -> None:
        waiting = [
            asyncio.create_task(peers.call_patiently(far.address, "ADDJOB", "q", number, 0))
            for number in range(40)
        ]
        await eventually(lambda: len(far.connections) > 1)
        assert await asyncio.wait_for(peers.call(far.address, "SHOW", "D-id"), 2) == 1
        await asyncio.wait_for(peers.greet(far.address, 2), 2)
        assert not any(one.done() for one in waiting)
        assert len(far.connections) <= 16 + 2, "many that wait share connections"
        far.may_answer.set()
        assert await asyncio.gather(*waiting) == [b"D-id"] * 40

    async def test_one_whose_time_is_up_ends_it_for_nobody_else(
        self, far: FarNode, peers: Peers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("qbus.broker.disque.peers._MOST_PATIENT", 1)  # all share one
        patient = asyncio.create_task(peers.call_patiently(far.address, "ADDJOB", timeout_s=5))
        with pytest.raises(NodeUnavailableError) as caught:
            await peers.call_patiently(far.address, "ACKJOB", "D-secret", timeout_s=0.05)
        host, port = far.address
        assert str(caught.value) == f"{host}:{port} did not answer ACKJOB within 0.05 s"
        assert not patient.done()
        following = asyncio.create_task(peers.call_patiently(far.address, "ADDJOB", timeout_s=5))
        await eventually(lambda: len(far.connections) == 2)
        far.may_answer.set()
        assert await patient == await following == b"D-id"
        await peers.call_patiently(far.address, "NACK")
        assert len(far.connections) == 2, "only what was late is left"

    async def test_who_goes_away_costs_the_others_nothing(self, far: FarNode, peers: Peers) -> None:
        first, second = (
            asyncio.create_task(peers.call(far.address, "SHOW", name)) for name in "ab"
        )
        await asyncio.sleep(0)
        first.cancel()
        assert await asyncio.wait_for(second, 2) == 1
        assert await asyncio.wait_for(peers.call(far.address, "SHOW", "c"), 2) == 1

    async def test_a_connection_that_ends_tells_all_who_wait_what_they_waited_for(
        self, far: FarNode, peers: Peers
    ) -> None:
        waiting = [
            asyncio.create_task(peers.call_patiently(far.address, name))
            for name in ("ADDJOB", "ACKJOB")
        ]
        await eventually(lambda: len(far.asked) == 2)
        for writer in far.connections:
            writer.transport.abort()
        for one, name in zip(waiting, ("ADDJOB", "ACKJOB"), strict=True):
            with pytest.raises(NodeUnavailableError, match=f"has not answered {name}"):
                await one
        far.may_answer.set()
        assert await peers.call_patiently(far.address, "ADDJOB") == b"D-id", "by another one"

    async def test_where_no_node_is_any_more_no_connection_stays_once_nobody_waits(
        self, far: FarNode, peers: Peers
    ) -> None:
        waiting = asyncio.create_task(peers.call_patiently(far.address, "ADDJOB"))
        await peers.call(far.address, "SHOW", "D-id")
        await peers.greet(far.address, 2)
        await eventually(lambda: len(far.connections) == 3)
        peers.keep({far.address})
        await peers.call(far.address, "SHOW", "D-id")
        assert far.ended == 0
        peers.keep(())
        await eventually(lambda: far.ended == 2)
        far.may_answer.set()
        assert await waiting == b"D-id"
        peers.keep(())
        await eventually(lambda: far.ended == 3)
        assert await peers.call(far.address, "SHOW", "D-id") == 1, "it may come back"

    async def test_closing_tells_who_waits(self, far: FarNode, peers: Peers) -> None:
        waiting = asyncio.create_task(peers.call_patiently(far.address, "ADDJOB"))
        await eventually(lambda: far.asked)
        peers.close()
        with pytest.raises(NodeUnavailableError, match="was closed by this node"):
            await waiting

    async def test_one_that_is_not_there_is_said_not_to_be(
        self, far: FarNode, peers: Peers
    ) -> None:
        await far.stop()
        for _ in range(2):
            with pytest.raises(NodeUnavailableError, match=r"cannot be reached: .* SHOW"):
                await peers.call(far.address, "SHOW", "D-id")

    async def test_one_that_refuses_this_one_says_so_to_all(self, far: FarNode) -> None:
        connection = NodeConnection(far.address, Link("", b"secret"))
        calls = [connection.call(["SHOW"], 5) for _ in range(3)]
        outcomes: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        for outcome in outcomes:
            assert isinstance(outcome, NodeUnavailableError)
            assert "refuses this node: WRONGPASS it is another one" in str(outcome)
            assert "secret" not in str(outcome)
        assert connection.is_closed

    async def test_replies_that_nobody_asked_for_end_the_connection(
        self, far: FarNode, peers: Peers
    ) -> None:
        await peers.call(far.address, "SHOW")
        far.connections[0].write(b":1\r\n")
        await eventually(lambda: far.ended == 1)
        assert await peers.call(far.address, "SHOW") == 1


class TestSilence:
    @pytest.fixture(autouse=True)
    async def knows(self, jobs: Jobs, far: FarNode, monkeypatch: pytest.MonkeyPatch) -> None:
        """The other node leads the queue, as far as is known here."""
        monkeypatch.setattr(service, "_PATIENCE_S", 0.1)
        monkeypatch.setattr(jobs.service, "others_with", lambda _: [far.node])
        jobs.service.need_queue(b"q")

    async def test_a_node_that_waits_for_its_followers_is_not_silent(
        self,
        jobs: Jobs,
        far: FarNode,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        peers = jobs.service.peers
        greet = peers.greet
        monkeypatch.setattr(peers, "greet", lambda address, _: greet(address, 10.0))
        await jobs.add()
        assert await jobs.bodies() == ["body"]
        assert await jobs.ask("CLUSTER LEAVING yes") == "OK"
        adding = jobs.begin("ADDJOB q slow 5000")
        await eventually(lambda: any(b"ADDJOB" in words for words in far.asked))
        assert await jobs.ask("CLUSTER LEAVING no") == "OK"
        assert await jobs.ask("GETJOB NOHANG FROM q") is None
        await eventually(lambda: [b"QBUS.LOCAL", b"PING"] in far.asked)
        await asyncio.sleep(0.15)
        assert "does not answer in time" not in caplog.text
        assert await jobs.service.ask(far.node, "SHOW", "D-id") == 1
        far.may_answer.set()
        assert await asyncio.wait_for(adding, 5) == b"+D-id\r\n"

    async def test_one_that_answers_nothing_is_and_is_named(
        self, jobs: Jobs, far: FarNode, caplog: pytest.LogCaptureFixture
    ) -> None:
        far.is_stopped = True
        assert await jobs.ask("GETJOB NOHANG FROM q") is None
        await eventually(lambda: "does not answer in time" in caplog.text)
        (line,) = [text for text in caplog.messages if "does not answer in time" in text]
        host, port = far.address
        assert f"ffffffff does not answer in time ({host}:{port} did not answer PING" in line

    async def test_a_client_is_told_which_node_has_not_answered_what(
        self, jobs: Jobs, far: FarNode
    ) -> None:
        with pytest.raises(CommandError) as caught:
            await jobs.service.ask_patiently(far.node, "ACKJOB", "D-id", timeout_s=0.05)
        host, port = far.address
        why = f"{host}:{port} did not answer ACKJOB within 0.05 s"
        assert str(caught.value) == f"ERR node ffffffff cannot be asked: {why}"
