"""Listeners with TLS: who is let in, what strangers cost, and that honest clients do not notice."""

import asyncio
import os
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from qbus.broker.net.connection import Dispatch
from qbus.broker.net.limits import ConnectionLimits
from qbus.broker.net.listener import Listener, Tls
from qbus.broker.net.memory_budget import MemoryBudget
from qbus.broker.net.peer import Peer
from qbus.broker.net.transport import Part
from qbus.security.client import ClientSecurity
from qbus.security.principals import PrincipalMapper
from qbus.security.tls import ServerTls, client_context
from tests.support.certificates import Certificates
from tests.unit.security.test_tls import Settings

from .test_listener import Client, Deferred, echo, framed, listening, settle, wait_until, warnings


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def settings(certificates: Certificates) -> Settings:
    return Settings(ssl_keystore_location=str(certificates.server()))


@pytest.fixture
def mutual(settings: Settings, certificates: Certificates) -> Settings:
    return replace(
        settings, ssl_client_auth="required", ssl_truststore_location=str(certificates.ca)
    )


@pytest.fixture
def swift_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbus.broker.net.listener._SWEEP_SECONDS", 0.02)


@asynccontextmanager
async def secure(
    settings: Settings,
    dispatch: Dispatch = echo,
    *,
    rules: str = "DEFAULT",
    handshake_s: float = 10.0,
    max_handshakes: int = 1000,
    **more: Any,
) -> AsyncIterator[Listener]:
    tls = Tls(ServerTls(settings, "SSL"), PrincipalMapper(rules), handshake_s, max_handshakes)
    async with listening(dispatch, protocol="SSL", tls=tls, **more) as listener:
        yield listener


def trust(certificates: Certificates, own: Path | None = None) -> ssl.SSLContext:
    return client_context(
        ClientSecurity(
            protocol="SSL",
            ssl_ca_location=str(certificates.ca),
            ssl_certificate_location=None if own is None else str(own),
        )
    )


@asynccontextmanager
async def connected(listener: Listener, context: ssl.SSLContext) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", listener.address.port, ssl=context, server_hostname="localhost"
    )
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


class Hello:
    """What a client sends first."""

    def __init__(self, certificates: Certificates) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trust(certificates).wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        self.bytes = outgoing.read()


def stranger(listener: Listener, sent: bytes = b"") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", listener.address.port))
    sock.sendall(sent)
    sock.setblocking(False)
    return sock


async def is_closed(sock: socket.socket) -> bool:
    try:
        while await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 1 << 16), 10):
            pass
    except ConnectionResetError:
        return True
    return True


# Requests


async def test_requests_are_answered(settings: Settings, certificates: Certificates) -> None:
    async with (
        secure(settings) as listener,
        connected(listener, trust(certificates)) as client,
    ):
        for size in (1, 100, 16_384, 16_385, 900_000):
            client.send(os.urandom(size))
            assert len(await client.receive()) == size


async def test_pipelined_requests_that_wait_lie_in_one_record(
    settings: Settings, certificates: Certificates
) -> None:
    dispatch = Deferred(exclusive=True)
    async with (
        secure(settings, dispatch) as listener,
        connected(listener, trust(certificates)) as client,
    ):
        client.send(b"one", b"two", b"three")
        for number, body in enumerate((b"1", b"2", b"3"), 1):
            while len(dispatch.futures) < number:  # noqa: ASYNC110 - it has no event for this
                await asyncio.sleep(0.01)
            dispatch.futures[-1].set_result(body)
            assert await client.receive() == body


async def test_what_is_decrypted_already_is_not_forgotten(
    settings: Settings, certificates: Certificates
) -> None:
    """The rest of a record comes after the piece that had room: the descriptor is silent then."""
    body = os.urandom(600_000)
    async with (
        secure(settings) as listener,
        connected(listener, trust(certificates)) as client,
    ):
        whole = framed(body) * 3
        for cut in (5, 4096, 100_000, 300_001):
            client.writer.write(whole[:cut])
            await asyncio.sleep(0.02)
            client.writer.write(whole[cut:])
            for _ in range(3):
                assert await client.receive() == body


async def test_memory_for_unfinished_requests_is_waited_for(
    settings: Settings, certificates: Certificates
) -> None:
    budget, size = MemoryBudget(1 << 20), 900_000
    async with secure(settings, budget=budget) as listener:

        async def send_one() -> int:
            async with connected(listener, trust(certificates)) as client:
                client.writer.write(pack(">i", size) + bytes(size // 2))
                await asyncio.sleep(0.05)
                client.writer.write(bytes(size - size // 2))
                return len(await client.receive())

        assert await asyncio.gather(*(send_one() for _ in range(8))) == [size] * 8
    assert budget.used == 0


# Who clients are


def name(peer: Peer, _: memoryview) -> list[Part]:
    return [framed(str(peer.principal).encode())]


async def ask_name(listener: Listener, context: ssl.SSLContext) -> bytes:
    async with connected(listener, context) as client:
        client.send(b"who am I?")
        return await client.receive()


async def test_a_client_is_who_its_certificate_is_for(
    mutual: Settings, certificates: Certificates
) -> None:
    alice = trust(certificates, certificates.client("alice"))
    told: list[tuple[str, str]] = []
    async with secure(mutual, name) as listener:
        listener.identified = lambda *who: told.append(who)
        assert await ask_name(listener, alice) == b"User:CN=alice"
    assert told == [("CN=alice", "127.0.0.1")]
    async with secure(mutual, name, rules="RULE:^CN=(.*)$/$1/U") as listener:
        assert await ask_name(listener, alice) == b"User:ALICE"


async def test_without_a_certificate_it_is_anonymous(
    mutual: Settings, certificates: Certificates
) -> None:
    requested = replace(mutual, ssl_client_auth="requested")
    async with secure(requested, name) as listener:
        assert await ask_name(listener, trust(certificates)) == b"User:ANONYMOUS"
        alice = trust(certificates, certificates.client("alice"))
        assert await ask_name(listener, alice) == b"User:CN=alice"


async def test_nobody_is_anonymous_whose_name_fits_no_rule(
    mutual: Settings, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    alice = trust(certificates, certificates.client("alice"))
    asked: list[Peer] = []

    def dispatch(peer: Peer, _: memoryview) -> list[Part]:
        asked.append(peer)
        return []

    async with secure(mutual, dispatch, rules="RULE:^CN=bob$/bob/") as listener:
        async with connected(listener, alice) as client:
            client.send(b"x")
            assert await client.closed()
        assert listener.connections == listener.unfinished_handshakes == 0
    assert asked == []
    assert "no rule of ssl.principal.mapping.rules is for 'CN=alice'" in warnings(caplog)[0]


async def test_a_defect_with_one_certificate_lets_nobody_in_and_keeps_nobody_out(
    mutual: Settings, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = trust(certificates, certificates.client("alice"))
    async with secure(mutual, name) as listener:
        with monkeypatch.context() as defect:
            defect.setattr("qbus.broker.net.listener.subject", lambda _: 1 / 0)
            async with connected(listener, alice) as client:
                client.send(b"x")
                assert await client.closed()
        assert listener.connections == listener.unfinished_handshakes == 0
        assert await ask_name(listener, alice) == b"User:CN=alice"


@pytest.mark.parametrize(
    ("whose", "why"),
    [
        ("nobody", "the client has no certificate, and needs one"),
        ("expired", "the client's certificate is refused: certificate has expired"),
        (
            "mallory",
            "the client's certificate is refused: self-signed certificate in certificate chain",
        ),
    ],
)
async def test_wrong_certificates_are_told_of(
    mutual: Settings,
    certificates: Certificates,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    whose: str,
    why: str,
) -> None:
    own = None
    if whose == "expired":
        own = certificates.expired()
    elif whose == "mallory":
        own = Certificates(tmp_path / "other").client(whose)
    async with secure(mutual) as listener:
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await ask_name(listener, trust(certificates, own))
    (told,) = warnings(caplog)
    assert told == f"closed a connection from 127.0.0.1: TLS handshake failed: {why}"


async def test_the_end_of_a_certificate_is_known(
    mutual: Settings, certificates: Certificates
) -> None:
    peers: list[Peer] = []

    def dispatch(peer: Peer, _: memoryview) -> list[Part]:
        peers.append(peer)
        return [framed(b"ok")]

    ending = certificates.ending("soon", datetime.now(UTC) + timedelta(seconds=100))
    async with secure(mutual, dispatch) as listener:
        await ask_name(listener, trust(certificates, ending))
        assert peers[0].expires_at == pytest.approx(asyncio.get_running_loop().time() + 100, abs=5)


# What is no TLS, and what is none that anybody wants


@pytest.mark.parametrize("sent", [b"\x00\x00\x00\x10\x00\x12\x00\x03", b"GET / HTTP/1.1\r\n\r\n"])
async def test_who_does_not_speak_tls_is_told_of(
    settings: Settings, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    async with secure(settings) as listener:
        with stranger(listener, sent) as sock:
            assert await is_closed(sock)
    (told,) = warnings(caplog)
    assert told.startswith(
        "closed a connection from 127.0.0.1: the client does not speak TLS, which this listener"
    )
    assert "security.protocol=SSL" in told


async def test_random_and_torn_records_are_refused(
    settings: Settings, certificates: Certificates
) -> None:
    hello = Hello(certificates).bytes
    torn = [hello[:cut] + os.urandom(40) for cut in range(5, len(hello), 23)]
    noise = [b"\x16\x03\x01" + pack(">H", size) + os.urandom(size) for size in (1, 40, 500, 9000)]
    long = [b"\x16\x03\x01\xff\xff" + bytes(0xFFFF)]
    async with secure(settings) as listener:
        for sent in [*torn, *noise, *long]:
            sock = stranger(listener)
            with sock:
                try:
                    await asyncio.get_running_loop().sock_sendall(sock, sent)
                    sock.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                assert await is_closed(sock)
        await wait_until(lambda: listener.unfinished_handshakes == 0)
        async with connected(listener, trust(certificates)) as client:
            client.send(b"x")
            assert await client.receive() == b"x"


@pytest.mark.usefixtures("swift_sweeps")
async def test_a_handshake_has_its_time(
    settings: Settings, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    hello = Hello(certificates).bytes
    async with secure(settings, handshake_s=0.2) as listener:
        with stranger(listener, hello[:50]) as slow, stranger(listener) as silent:
            await wait_until(lambda: listener.unfinished_handshakes == 2)
            assert await is_closed(slow)
            assert await is_closed(silent)
        assert listener.handshakes is not None
        assert (listener.handshakes.failed, listener.handshakes.given_up) == (2, 2)
    # One that connects and says nothing may be a probe: nothing to tell of.
    (told,) = warnings(caplog)
    assert told.endswith("its TLS handshake was not over after 0.2 s")


async def test_the_oldest_is_given_up_for_a_new_one(
    settings: Settings, certificates: Certificates
) -> None:
    async with secure(settings, max_handshakes=3) as listener:
        strangers = [stranger(listener) for _ in range(3)]
        await wait_until(lambda: listener.unfinished_handshakes == 3)
        async with connected(listener, trust(certificates)) as client:
            client.send(b"x")
            assert await client.receive() == b"x"
            assert await is_closed(strangers[0])
            assert listener.unfinished_handshakes == 2
        for sock in strangers:
            sock.close()


async def test_unfinished_handshakes_count_as_connections(
    settings: Settings, certificates: Certificates
) -> None:
    shared = ConnectionLimits(per_ip=2)
    async with secure(settings, shared=shared) as listener:
        first, second = stranger(listener), stranger(listener)
        await wait_until(lambda: listener.unfinished_handshakes == 2)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await ask_name(listener, trust(certificates))
        first.close()
        second.close()
        await wait_until(lambda: listener.unfinished_handshakes == 0)
        async with connected(listener, trust(certificates)) as client:
            client.send(b"x")
            assert await client.receive() == b"x"


async def test_stopping_gives_handshakes_up(settings: Settings) -> None:
    async with secure(settings) as listener:
        sock = stranger(listener)
        await wait_until(lambda: listener.unfinished_handshakes == 1)
        await listener.drain(0)
        assert await is_closed(sock)
        sock.close()


# Certificates that change


async def test_new_connections_get_the_new_certificate_and_old_ones_stay(
    certificates: Certificates, tmp_path: Path
) -> None:
    path = tmp_path / "broker.pem"
    path.write_bytes(certificates.server("former").read_bytes())
    async with (
        secure(Settings(ssl_keystore_location=str(path))) as listener,
        connected(listener, trust(certificates)) as former,
    ):
        certificates.replace(path, certificates.server("renewed"))
        await asyncio.sleep(1.05)
        async with connected(listener, trust(certificates)) as renewed:
            assert common_name(renewed) == "renewed"
        assert common_name(former) == "former"
        former.send(b"still here")
        assert await former.receive() == b"still here"


def common_name(client: Client) -> str:
    certificate = client.writer.get_extra_info("peercert")
    return str(dict(part[0] for part in certificate["subject"])["commonName"])


# Floods


@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", ["silent", "half a hello", "hello and nothing more"])
async def test_honest_clients_are_served_during_a_flood_of_half_open_handshakes(
    settings: Settings, certificates: Certificates, count: int, kind: str
) -> None:
    hello = Hello(certificates).bytes
    sent = {"silent": b"", "half a hello": hello[:100]}.get(kind, hello)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 30_000), hard))
    slots = 1000
    strangers: list[socket.socket] = []
    try:
        async with (
            secure(settings, max_handshakes=slots, max_connections=20_000) as listener,
            connected(listener, trust(certificates)) as honest,
        ):
            calm = await slowest(honest, 50)
            before = memory()
            flood = asyncio.create_task(open_all(listener, strangers, sent, count))
            during = [await slowest(honest, 5)]
            while not flood.done():
                during.append(await slowest(honest, 5))
            await flood
            await settle()
            assert listener.unfinished_handshakes <= slots
            async with connected(listener, trust(certificates)) as another:
                another.send(b"x")
                assert await another.receive() == b"x"
            grown = memory() - before
        assert max(during) < calm + 0.25
        assert grown < 100 << 20
    finally:
        for sock in strangers:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def open_all(
    listener: Listener, strangers: list[socket.socket], sent: bytes, count: int
) -> None:
    loop = asyncio.get_running_loop()
    for number in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        strangers.append(sock)
        await loop.sock_connect(sock, ("127.0.0.1", listener.address.port))
        if sent:
            await loop.sock_sendall(sock, sent)
        if number % 50 == 49:
            await asyncio.sleep(0)


async def slowest(client: Client, requests: int) -> float:
    """How long the slowest of some requests took, in seconds."""
    times: Sequence[float] = []
    for _ in range(requests):
        began = time.perf_counter()
        client.send(b"ping")
        await client.receive()
        times = [*times, time.perf_counter() - began]
    return max(times)


def memory() -> int:
    """Memory in use, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
