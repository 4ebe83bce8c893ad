"""Connections: requests in, answers out in order, within bounds."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from struct import pack, unpack
from typing import Any

import pytest

from qbus.broker.kafka.dispatch import PendingReply
from qbus.broker.net.connection import (
    MAX_OPEN_REPLIES,
    CloseConnection,
    Dispatch,
    Reply,
    TimeLimits,
)
from qbus.broker.net.limits import ConnectionLimits
from qbus.broker.net.listener import Gate, Listener, ListenerLimits, Tls, bind
from qbus.broker.net.memory_budget import MemoryBudget
from qbus.broker.net.peer import Peer
from qbus.broker.net.transport import Part
from qbus.config import Address, ListenerInfo, SecurityProtocol
from qbus.errors import WireError

PATIENT = TimeLimits(idle=60, frame=60, stall=60)


def framed(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


def echo(_peer: Peer, frame: memoryview) -> list[Part]:
    return [framed(bytes(frame))]


def limits(**changes: Any) -> ListenerLimits:
    base = ListenerLimits(max_frame=1 << 20, max_connections=100, times=PATIENT)
    return base._replace(**changes)


@asynccontextmanager
async def listening(
    dispatch: Dispatch,
    budget: MemoryBudget | None = None,
    *,
    protocol: str = "PLAINTEXT",
    shared: ConnectionLimits | None = None,
    gates: Sequence[Gate] = (),
    tls: Tls | None = None,
    **changes: Any,
) -> Any:
    sock, address = bind(Address("127.0.0.1", 0))
    listener = Listener(
        sock,
        ListenerInfo(protocol, SecurityProtocol(protocol), address),
        dispatch,
        limits(**changes),
        budget or MemoryBudget(64 << 20),
        shared=shared,
        tls=tls,
        gates=gates,
    )
    listener.start()
    try:
        yield listener
    finally:
        await listener.drain(0)
        listener.close()


class Client:
    """The other end, on asyncio's own streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *bodies: bytes) -> None:
        self.writer.write(b"".join(framed(body) for body in bodies))

    async def receive(self) -> bytes:
        (size,) = unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def closed(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(), 10) == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def connected(listener: Listener) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


class Deferred:
    """A dispatch whose answers come when the test says so."""

    def __init__(self, *, exclusive: bool = False) -> None:
        self.exclusive = exclusive
        self.asked: list[bytes] = []
        self.futures: list[asyncio.Future[bytes]] = []

    def __call__(self, _peer: Peer, frame: memoryview) -> Reply:
        self.asked.append(bytes(frame))
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        return PendingReply(future, lambda done: [framed(done.result())], exclusive=self.exclusive)


async def settle() -> None:
    """Let what is on its way through loopback arrive."""
    await asyncio.sleep(0.05)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with listening(echo) as listener, connected(listener) as client:
        client.send(*(b"%d" % n for n in range(1000)))
        assert [await client.receive() for _ in range(1000)] == [b"%d" % n for n in range(1000)]


async def test_a_large_request_and_its_answer_pass_whole() -> None:
    body = bytes(range(256)) * 4000
    async with listening(echo) as listener, connected(listener) as client:
        client.send(body, b"after")
        assert await client.receive() == body
        assert await client.receive() == b"after"


async def test_answers_keep_the_order_of_their_requests() -> None:
    dispatch = Deferred()
    async with listening(dispatch) as listener, connected(listener) as client:
        client.send(b"a", b"b", b"c")
        await settle()
        assert dispatch.asked == [b"a", b"b", b"c"]
        for index in (2, 1, 0):
            dispatch.futures[index].set_result(b"answer %d" % index)
        assert [await client.receive() for _ in range(3)] == [b"answer %d" % n for n in range(3)]


async def test_an_exclusive_request_holds_back_the_next() -> None:
    dispatch = Deferred(exclusive=True)
    async with listening(dispatch) as listener, connected(listener) as client:
        client.send(b"a", b"b")
        await settle()
        assert dispatch.asked == [b"a"]
        dispatch.futures[0].set_result(b"1")
        assert await client.receive() == b"1"
        await settle()
        assert dispatch.asked == [b"a", b"b"]


async def test_a_request_without_answer_is_passed_over() -> None:
    def answer_b_only(_peer: Peer, frame: memoryview) -> list[Part] | None:
        return [framed(b"B")] if bytes(frame) == b"b" else None

    async with listening(answer_b_only) as listener, connected(listener) as client:
        client.send(b"a", b"b")
        assert await client.receive() == b"B"


async def test_too_many_open_replies_stop_the_reading() -> None:
    dispatch = Deferred()
    async with listening(dispatch) as listener, connected(listener) as client:
        client.send(*(b"x" for _ in range(MAX_OPEN_REPLIES * 3)))
        await settle()
        assert len(dispatch.asked) == MAX_OPEN_REPLIES
        done = 0
        while done < MAX_OPEN_REPLIES * 3:
            dispatch.futures[done].set_result(b"y")
            assert await client.receive() == b"y"
            done += 1
            await asyncio.sleep(0)


async def test_answers_behind_an_open_one_are_bounded() -> None:
    waiting = Deferred()
    asked = 0

    def dispatch(peer: Peer, frame: memoryview) -> list[Part] | Reply:
        nonlocal asked
        asked += 1
        return waiting(peer, frame) if asked == 1 else [framed(bytes(1 << 20))]

    async with listening(dispatch) as listener, connected(listener) as client:
        client.send(*(b"x" for _ in range(50)))
        await settle()
        assert asked < 5
        waiting.futures[0].set_result(b"first")
        assert await client.receive() == b"first"
        assert [len(await client.receive()) for _ in range(49)] == [1 << 20] * 49


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    asked = 0

    def megabyte(_peer: Peer, _frame: memoryview) -> list[Part]:
        nonlocal asked
        asked += 1
        return [framed(bytes(1 << 20))]

    async with listening(megabyte, send_buffer=65536) as listener:
        sock = socket.create_connection(("127.0.0.1", listener.address.port))
        sock.sendall(framed(b"x") * 1000)
        await settle()
        assert asked < 20
        stalled = asked
        await settle()
        assert asked == stalled
        sock.close()


async def test_a_client_that_never_reads_is_closed_in_the_end() -> None:
    def much(_peer: Peer, _frame: memoryview) -> list[Part]:
        return [framed(bytes(32 << 20))]

    times = PATIENT._replace(stall=0.1)
    async with listening(much, times=times, send_buffer=65536) as listener:
        sock = socket.create_connection(("127.0.0.1", listener.address.port))
        sock.sendall(framed(b"x"))
        await settle()
        assert listener.connections == 1
        await wait_until(lambda: listener.connections == 0)
        sock.close()


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the listener has no event for this
            await asyncio.sleep(0.02)


async def test_an_unfinished_request_times_out() -> None:
    times = PATIENT._replace(frame=0.1)
    async with listening(echo, times=times) as listener, connected(listener) as client:
        client.writer.write(pack(">i", 100) + b"half")
        assert await client.closed()


async def test_an_idle_client_times_out_but_one_that_waits_for_its_answer_does_not() -> None:
    dispatch = Deferred()
    times = PATIENT._replace(idle=0.1)
    async with (
        listening(dispatch, times=times) as listener,
        connected(listener) as idle,
        connected(listener) as waiting,
    ):
        waiting.send(b"long poll")
        assert await idle.closed()
        dispatch.futures[0].set_result(b"at last")
        assert await waiting.receive() == b"at last"


@pytest.mark.parametrize("length", [-1, 0, (1 << 20) + 1, 2**31 - 1])
async def test_an_impossible_length_closes_the_connection(length: int) -> None:
    async with listening(echo) as listener, connected(listener) as client:
        client.writer.write(pack(">i", length) + b"rest")
        assert await client.closed()
        assert listener.connections == 0


@pytest.mark.parametrize("error", [WireError("nonsense"), CloseConnection("no such API")])
async def test_a_request_without_a_possible_answer_closes_the_connection(error: Exception) -> None:
    def refuse(_peer: Peer, _frame: memoryview) -> list[Part]:
        raise error

    async with listening(refuse) as listener, connected(listener) as client:
        client.send(b"x")
        assert await client.closed()


async def test_a_defect_closes_the_connection_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_peer: Peer, _frame: memoryview) -> list[Part]:
        raise ZeroDivisionError

    async with listening(fail) as listener, connected(listener) as client:
        client.send(b"x")
        assert await client.closed()
    assert "could not be answered" in caplog.text


async def test_an_answer_that_fails_later_closes_the_connection_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatch = Deferred()
    async with listening(dispatch) as listener, connected(listener) as client:
        client.send(b"a", b"b")
        await settle()
        dispatch.futures[1].set_result(b"behind it")
        dispatch.futures[0].set_exception(ZeroDivisionError())
        assert await client.closed()
    assert "could not be answered" in caplog.text


async def test_a_client_that_leaves_cancels_what_it_waited_for() -> None:
    dispatch = Deferred()
    async with listening(dispatch) as listener:
        async with connected(listener) as client:
            client.send(b"x")
            await settle()
        await wait_until(lambda: listener.connections == 0)
        assert dispatch.futures[0].cancelled()


async def test_who_wants_to_know_is_told_that_a_client_is_gone() -> None:
    told: list[int] = []

    def dispatch(peer: Peer, _: memoryview) -> list[Part]:
        number = len(told)
        peer.on_close += (lambda: told.append(number), lambda: told.append(number))
        return [framed(b"ok")]

    async with listening(dispatch) as listener:
        async with connected(listener) as client:
            client.send(b"x")
            await client.receive()
            assert told == []
        await wait_until(lambda: listener.connections == 0)
        assert told == [0, 0]


async def test_connections_above_the_limit_are_turned_away() -> None:
    async with (
        listening(echo, max_connections=1) as listener,
        connected(listener) as first,
        connected(listener) as second,
    ):
        assert await second.closed()
        first.send(b"still here")
        assert await first.receive() == b"still here"
        assert listener.refused == 1


async def test_connections_of_one_address_are_limited() -> None:
    async with (
        listening(echo, shared=ConnectionLimits(per_ip=1)) as listener,
        connected(listener) as first,
    ):
        async with connected(listener) as second:
            assert await second.closed()
        first.writer.close()
        await wait_until(lambda: listener.connections == 0)
        async with connected(listener) as third:
            third.send(b"welcome")
            assert await third.receive() == b"welcome"


async def test_a_gate_says_who_is_not_let_in(caplog: pytest.LogCaptureFixture) -> None:
    asked = []

    def gate(info: ListenerInfo, host: str) -> str | None:
        asked.append((info.name, host))
        return "it guessed passwords" if len(asked) == 1 else None

    async with listening(echo, gates=[gate]) as listener:
        async with connected(listener) as client:
            assert await client.closed()
        async with connected(listener) as client:
            client.send(b"x")
            assert await client.receive() == b"x"
    assert asked == [("PLAINTEXT", "127.0.0.1")] * 2
    assert warnings(caplog) == ["turned a connection from 127.0.0.1 away: it guessed passwords"]


async def test_a_client_by_ipv4_is_known_by_that_where_both_families_come_in() -> None:
    sock, address = bind(Address("", 0))

    def host(peer: Peer, _: memoryview) -> list[Part]:
        return [framed(peer.host.encode())]

    info = ListenerInfo.plaintext(*address)
    listener = Listener(sock, info, host, limits(), MemoryBudget(1 << 20))
    listener.start()
    async with connected(listener) as client:
        client.send(b"x")
        assert await client.receive() == b"127.0.0.1"
    listener.close()


async def test_later_connections_have_greater_numbers_through_whichever_listener() -> None:
    def number(peer: Peer, _: memoryview) -> list[Part]:
        return [framed(b"%d" % peer.connection_id)]

    async with listening(number) as one, listening(number) as other:
        numbers = []
        for listener in (one, one, other, one):
            async with connected(listener) as client:
                client.send(b"x")
                numbers.append(int(await client.receive()))
    assert numbers == sorted(set(numbers))


# Clients that have to authenticate


def authenticate(peer: Peer, frame: memoryview) -> list[Part]:
    """Lets in who says please, and echoes."""
    peer.is_authenticated = peer.is_authenticated or bytes(frame) == b"please"
    return [framed(bytes(frame[:10]))]


async def test_before_that_only_small_requests_are_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(
        authenticate, protocol="SASL_PLAINTEXT", max_frame_before=1000
    ) as listener:
        async with connected(listener) as client:
            client.send(bytes(1001))
            assert await client.closed()
        assert "1001 bytes, and the limit is 1000" in warnings(caplog)[0]
        async with connected(listener) as client:
            client.send(bytes(1000))
            await client.receive()
            client.send(b"please")
            await client.receive()
            client.send(bytes(500_000))
            assert await client.receive() == bytes(10)


async def test_where_nobody_has_to_requests_may_be_large_at_once() -> None:
    async with listening(echo, max_frame_before=1000) as listener, connected(listener) as client:
        client.send(bytes(5000))
        assert len(await client.receive()) == 5000


async def test_there_is_a_time_to_do_it_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbus.broker.net.listener._SWEEP_SECONDS", 0.02)
    impatient = PATIENT._replace(authentication=0.2)
    async with (
        listening(authenticate, protocol="SASL_PLAINTEXT", times=impatient) as listener,
        connected(listener) as slow,
        connected(listener) as quick,
    ):
        quick.send(b"please")
        await quick.receive()
        assert await slow.closed()
        quick.send(b"still here")
        assert await quick.receive() == b"still here"


async def test_where_too_many_have_not_done_it_the_oldest_is_closed() -> None:
    arguments: dict[str, Any] = {"protocol": "SASL_PLAINTEXT", "max_unauthenticated": 2}
    async with listening(authenticate, **arguments) as listener, connected(listener) as known:
        known.send(b"please")
        await known.receive()
        async with (
            connected(listener) as oldest,
            connected(listener) as other,
            connected(listener) as newest,
        ):
            assert await oldest.closed()
            for one in (other, newest, known):
                one.send(b"please")
                assert await one.receive() == b"please"
        assert listener.unauthenticated.closed == 1


async def test_where_nobody_has_to_none_is_closed_for_that() -> None:
    async with (
        listening(echo, max_unauthenticated=1) as listener,
        connected(listener) as one,
        connected(listener) as other,
    ):
        for client in (one, other):
            client.send(b"a")
            assert await client.receive() == b"a"
        assert len(listener.unauthenticated) == 0


async def test_a_refusal_is_answered_before_the_connection_is_closed() -> None:
    dispatched = []

    def dispatch(peer: Peer, frame: memoryview) -> list[Part]:
        dispatched.append(bytes(frame))
        peer.closes_after_reply = "the password is wrong"
        return [framed(b"no")]

    async with listening(dispatch) as listener, connected(listener) as client:
        client.send(b"let me in", b"and do this")
        assert await client.receive() == b"no"
        assert await client.closed()
    assert dispatched == [b"let me in"]


async def test_so_is_a_late_one() -> None:
    deferred, peers = Deferred(exclusive=True), []

    def dispatch(peer: Peer, frame: memoryview) -> Reply:
        peers.append(peer)
        return deferred(peer, frame)

    async with listening(dispatch) as listener, connected(listener) as client:
        client.send(b"let me in", b"and do this")
        await settle()
        peers[0].closes_after_reply = "the password is wrong"
        deferred.futures[0].set_result(b"no")
        assert await client.receive() == b"no"
        assert await client.closed()
    assert deferred.asked == [b"let me in"]


async def test_whoever_holds_the_peer_can_close_it() -> None:
    peers = []

    def dispatch(peer: Peer, _: memoryview) -> list[Part]:
        peers.append(peer)
        return [framed(b"ok")]

    async with listening(dispatch) as listener, connected(listener) as client:
        client.send(b"x")
        await client.receive()
        peers[0].close("the user was removed")
        assert await client.closed()
        peers[0].close("again, which changes nothing")
        assert listener.connections == 0


async def test_memory_for_unfinished_requests_is_bounded_and_all_get_through() -> None:
    budget = MemoryBudget(1 << 20)
    peak = 0

    def watch(_peer: Peer, frame: memoryview) -> list[Part]:
        nonlocal peak
        peak = max(peak, budget.used)
        return [framed(b"%d" % len(frame))]

    size = 900_000
    async with listening(watch, budget) as listener:

        async def send_one() -> bytes:
            async with connected(listener) as client:
                client.writer.write(pack(">i", size) + bytes(size // 2))
                await asyncio.sleep(0.1)
                client.writer.write(bytes(size - size // 2))
                answer: bytes = await client.receive()
                return answer

        answers = await asyncio.gather(*(send_one() for _ in range(20)))
    assert answers == [b"%d" % size] * 20
    assert peak <= (1 << 20) + 20 * 256 * 1024 + (1 << 20)
    assert budget.used == 0
    assert budget.waiting == 0


async def test_draining_answers_what_was_asked() -> None:
    dispatch = Deferred()
    async with listening(dispatch) as listener, connected(listener) as client:
        client.send(b"x")
        await settle()
        drained = asyncio.ensure_future(listener.drain(5))
        await settle()
        dispatch.futures[0].set_result(b"done")
        await drained
        assert await client.receive() == b"done"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", listener.address.port)


async def test_draining_that_takes_long_says_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("qbus.broker.net.listener._DRAIN_SILENCE_SECONDS", 0.01)
    async with listening(Deferred()) as listener, connected(listener) as client:
        client.send(b"x")
        await settle()
        await listener.drain(0.1)
    first, *_ = warnings(caplog)
    assert first == (
        "stopping waits for requests of 1 connections, one of them from 127.0.0.1;"
        " it ends after 0.1 s at the latest"
    )


async def test_an_address_in_use_is_named() -> None:
    async with listening(echo) as listener:
        with pytest.raises(OSError, match="cannot listen on") as refused:
            bind(listener.address)
    assert refused.value.strerror == (
        f"cannot listen on {listener.address}: Address already in use"
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "the other side speaks HTTP, not Kafka's protocol"),
        (b"\x16\x03\x01\x02\x00\x01", "the other side speaks TLS, not Kafka's protocol"),
        (
            b"\xff\xff\xff\xff",
            "the other side announces a frame of -1 bytes, and the limit is 1048576: it does not"
            " speak Kafka's protocol, or is set up for larger ones",
        ),
        (b"<!DOCTYPE HTML>", "the other side speaks HTTP, not Kafka's protocol"),
    ],
)
async def test_a_client_that_speaks_something_else_is_told_of(
    sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(echo) as listener, connected(listener) as client:
        client.writer.write(sent)
        assert await client.closed()
    (told,) = warnings(caplog)
    assert told == f"closed a connection from 127.0.0.1: malformed request: {reason}"


async def test_many_such_clients_do_not_flood_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(echo) as listener:

        async def disturb() -> None:
            async with connected(listener) as client:
                client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert await client.closed()

        for _ in range(4):
            await disturb()
        assert len(warnings(caplog)) == 1
        listener._next_warning_at = 0.0  # as if time had passed
        await disturb()
    assert warnings(caplog)[1].endswith("not Kafka's protocol (and 3 others before)")
