"""A muted connection is read no further for a time; what it asked for is answered meanwhile."""

import asyncio
from time import monotonic

import pytest

from qbus.broker.net.connection import HoldRequest
from qbus.broker.net.memory_budget import MemoryBudget
from qbus.broker.net.peer import Peer
from qbus.broker.net.transport import Part

from .test_listener import PATIENT, Deferred, connected, framed, listening, settle


class Muting:
    """Echoes, and mutes after each request for ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.times: list[float] = []
        self.peers: list[Peer] = []

    def __call__(self, peer: Peer, frame: memoryview) -> list[Part]:
        self.times.append(monotonic())
        self.peers.append(peer)
        peer.mute(self.seconds)
        return [framed(bytes(frame))]


async def test_the_answer_comes_first_and_the_next_request_waits() -> None:
    muting = Muting(0.3)
    async with listening(muting) as listener, connected(listener) as client:
        client.send(b"a", b"b")
        began = monotonic()
        assert await client.receive() == b"a"
        assert monotonic() - began < 0.2
        assert await client.receive() == b"b"
    assert muting.times[1] - muting.times[0] >= 0.29


async def test_a_request_that_comes_meanwhile_waits_unread() -> None:
    muting = Muting(0.3)
    async with listening(muting) as listener, connected(listener) as client:
        client.send(b"a")
        assert await client.receive() == b"a"
        client.send(b"b")
        assert await client.receive() == b"b"
    assert muting.times[1] - muting.times[0] >= 0.29


async def test_a_longer_mute_holds_and_a_shorter_one_does_not_end_it() -> None:
    times: list[float] = []

    def dispatch(peer: Peer, frame: memoryview) -> list[Part]:
        times.append(monotonic())
        for seconds in (0.05, 0.4, 0.1):
            peer.mute(seconds)
        return [framed(bytes(frame))]

    async with listening(dispatch) as listener, connected(listener) as client:
        client.send(b"a", b"b")
        assert await client.receive() == b"a"
        assert await client.receive() == b"b"
    assert 0.39 <= times[1] - times[0] < 1.0


async def test_answers_that_come_later_go_out_while_it_is_muted() -> None:
    deferred = Deferred()
    peers: list[Peer] = []

    def dispatch(peer: Peer, frame: memoryview) -> object:
        peers.append(peer)
        return deferred(peer, frame)

    async with listening(dispatch) as listener, connected(listener) as client:  # type: ignore[arg-type]
        client.send(b"a")
        await settle()
        peers[0].mute(60.0)
        deferred.futures[0].set_result(b"A")
        assert await asyncio.wait_for(client.receive(), 5) == b"A"


async def test_a_muted_client_is_not_idle() -> None:
    muting = Muting(60.0)
    times = PATIENT._replace(idle=0.1, frame=0.1)
    async with listening(muting, times=times) as listener, connected(listener) as client:
        client.send(b"a")
        assert await client.receive() == b"a"
        client.send(b"half a frame")
        await asyncio.sleep(2.5)  # the sweep comes every second
        assert listener.connections == 1


async def test_a_muted_connection_is_closed_with_the_listener() -> None:
    muting = Muting(60.0)
    async with listening(muting) as listener, connected(listener) as client:
        client.send(b"a")
        assert await client.receive() == b"a"
        listener.close()
        assert await client.closed()
        muting.peers[0].mute(60.0)  # nobody is there any more


async def test_draining_does_not_wait_for_the_end_of_a_mute() -> None:
    muting = Muting(60.0)
    async with listening(muting) as listener, connected(listener) as client:
        client.send(b"a", b"b")
        assert await client.receive() == b"a"
        began = monotonic()
        await listener.drain(10)
        assert monotonic() - began < 1


@pytest.mark.parametrize("size", [10, 300_000])
async def test_a_request_that_is_held_is_looked_at_again_whole(size: int) -> None:
    held: list[float] = []
    seen: list[bytes] = []

    def dispatch(_peer: Peer, frame: memoryview) -> list[Part]:
        if len(held) < 2:
            held.append(monotonic())
            raise HoldRequest(0.1)
        seen.append(bytes(frame))
        return [framed(bytes(frame[:10]))]

    first, second = b"a" * size, b"b" * size
    async with listening(dispatch) as listener, connected(listener) as client:
        client.send(first, second)
        assert await client.receive() == b"a" * 10
        assert await client.receive() == b"b" * 10
    assert seen == [first, second]
    assert held[1] - held[0] >= 0.09


async def test_memory_for_held_requests_is_within_the_budget_and_given_back() -> None:
    budget = MemoryBudget(8 << 20)

    def dispatch(peer: Peer, frame: memoryview) -> list[Part]:
        if peer.quota is None:
            peer.quota = "held"
            raise HoldRequest(0.2)
        return [framed(bytes(frame[:1]))]

    async with listening(dispatch, budget) as listener, connected(listener) as client:
        client.send(b"x" * 500_000)
        assert await client.receive() == b"x"
        await settle()
        assert budget.used == 0


async def test_whoever_leaves_while_it_is_held_leaves_nothing() -> None:
    budget = MemoryBudget(8 << 20)

    def dispatch(_peer: Peer, _frame: memoryview) -> list[Part]:
        raise HoldRequest(0.2)

    async with listening(dispatch, budget) as listener, connected(listener) as client:
        client.send(b"x" * 500_000)
        await settle()
        assert budget.used > 0
    assert budget.used == 0
