"""TLS, certificates, and who is let in while he has said nothing."""

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest

from qbus.broker.disque import resp
from qbus.broker.disque.authentication import Authentication
from qbus.broker.disque.connection import Client, Reply
from qbus.broker.disque.listener import (
    DisqueListener,
    Encryption,
    Entrance,
    Identity,
    Limits,
)
from qbus.broker.disque.nodes import Node, TlsAddress
from qbus.broker.disque.peers import Link, NodeConnection, NodeUnavailableError
from qbus.broker.disque.serving import identify, is_told_in_clear, use_of
from qbus.broker.net.listener import bind
from qbus.broker.net.memory_budget import MemoryBudget
from qbus.broker.net.peer import Principal
from qbus.broker.quotas import ClientQuotas
from qbus.config import Address
from qbus.metadata.client_quotas import QuotaEntity
from qbus.security.principals import PrincipalMapper
from tests.support.certificates import self_signed
from tests.support.secure_broker import certificates
from tests.support.waiting import eventually

LIMITS = Limits(1 << 20, 100, 0.0, 30.0, 30.0, authentication_s=30.0, handshake_s=5.0)


class Commands:
    """Answers each command with its last word; AUTH with a refusal, where there is one."""

    def __init__(self) -> None:
        self.is_paused = False
        self.refusal = ""

    def is_concurrent(self, arguments: list[bytes]) -> bool:
        return False

    def begin(self, client: Client, arguments: list[bytes]) -> Reply:
        if arguments[0] == b"AUTH" and self.refusal:
            return resp.error(self.refusal)
        return resp.bulk(arguments[-1])


class Served:
    """A listener with TLS, and how clients reach it."""

    def __init__(
        self,
        limits: Limits = LIMITS,
        authentication: Authentication | None = None,
        *,
        asks: bool = False,
    ) -> None:
        made = certificates()
        server = made.context(asks=asks)
        if not asks:
            server.verify_mode = ssl.CERT_NONE
        sock, address = bind(Address("127.0.0.1", 0))
        plain, self.plain = bind(Address("127.0.0.1", 0))
        mapper = PrincipalMapper("RULE:^CN=client$/alice/")
        self.commands = Commands()
        self.listener = DisqueListener(
            [
                Entrance(
                    sock, address, Encryption(lambda: server, lambda der: identify(mapper, der))
                ),
                Entrance(plain, self.plain),
            ],
            self.commands,
            limits,
            MemoryBudget(1 << 30),
            authentication,
        )
        self.address = address
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(
        self, *, certificate: str | None = None, tls: bool = True
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client."""
        address, context = (self.address, client(certificate)) if tls else (self.plain, None)
        reader, writer = await asyncio.open_connection(*address, ssl=context)
        self._writers.append(writer)
        return reader, writer

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self.listener.close()


def client(certificate: str | None = None) -> ssl.SSLContext:
    made = certificates()
    context = ssl.create_default_context(cafile=made.ca)
    if certificate is not None:
        context.load_cert_chain(getattr(made, certificate), getattr(made, f"{certificate}_key"))
    return context


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served()
    await made.listener.start()
    yield made
    made.close()


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"*1\r\n$4\r\nECHO\r\n")
    return await asyncio.wait_for(reader.readline(), 5)


class TestTls:
    async def test_both_entrances_lead_to_the_same_commands(self, served: Served) -> None:
        for tls in (True, False):
            assert await answered(*await served.connect(tls=tls))
        encrypted = [one.client.is_encrypted for one in served.listener.clients()]
        assert encrypted == [True, False]
        assert served.listener.connections == 2

    async def test_what_is_no_tls_is_turned_away(self, served: Served) -> None:
        reader, writer = await asyncio.open_connection(*served.address)
        writer.write(b"PING\r\n")
        await asyncio.wait_for(reader.read(), 5)  # an alert, if anything
        writer.transport.abort()
        await eventually(lambda: served.listener.failed_handshakes == 1)
        assert served.listener.connections == 0
        assert await answered(*await served.connect())

    async def test_many_that_are_none_do_not_fill_the_log(
        self, served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        for number in range(20):
            _, writer = await asyncio.open_connection(*served.address)
            writer.write(b"PING\r\n" * 10)
            await eventually(lambda: served.listener.failed_handshakes > number)  # noqa: B023
            writer.transport.abort()
        assert caplog.text.count("a TLS handshake failed") == 1

    async def test_a_handshake_has_its_time(self) -> None:
        served = Served(LIMITS._replace(handshake_s=0.1))
        await served.listener.start()
        reader, writer = await asyncio.open_connection(*served.address)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.transport.abort()
        await eventually(lambda: served.listener.failed_handshakes == 1)
        served.close()

    async def test_half_open_ones_keep_nobody_out(self) -> None:
        served = Served(LIMITS._replace(max_handshakes=5))
        await served.listener.start()
        idle = [await asyncio.open_connection(*served.address) for _ in range(20)]
        assert await answered(*await served.connect())
        assert served.listener.unfinished_handshakes <= 5
        for _, writer in idle:
            writer.transport.abort()
        served.close()

    async def test_large_replies_and_commands(self, served: Served) -> None:
        reader, writer = await served.connect()
        body = b"x" * 300_000
        writer.write(b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (len(body), body))
        assert await asyncio.wait_for(reader.readline(), 5)


class TestCertificates:
    async def test_say_who_the_client_is(self) -> None:
        noted: list[tuple[str, ...]] = []
        note = lambda *more: noted.append(more)  # noqa: E731
        served = Served(asks=True, authentication=Authentication(b"secret", note=note))
        await served.listener.start()
        assert await answered(*await served.connect(certificate="client"))
        (connection,) = served.listener.clients()
        assert connection.client.principal == Principal("User", "alice")
        assert connection.client.is_authenticated, "it need not say a password"
        assert noted == [("alice", "TLS", "127.0.0.1", "")]
        assert connection.client.expires_at > asyncio.get_running_loop().time()
        served.close()

    async def test_that_name_nobody_are_turned_away(self) -> None:
        served = Served(asks=True)
        await served.listener.start()
        reader, _ = await served.connect(certificate="server")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 5)
        await eventually(lambda: served.listener.connections == 0)
        served.close()

    async def test_are_asked_for(self) -> None:
        served = Served(asks=True)
        await served.listener.start()

        async def ask() -> None:
            reader, writer = await served.connect()
            writer.write(b"PING\r\n")
            await asyncio.wait_for(reader.readexactly(1), 5)

        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await ask()
        assert served.listener.connections == 0
        served.close()

    def test_that_cannot_be_read_name_nobody(self) -> None:
        assert identify(PrincipalMapper(), b"\x30\x03\x02\x01\x01") is None
        empty = PrincipalMapper("RULE:^.*$//")
        assert identify(empty, self_signed([("CN", "alice")])) is None
        assert Identity(Principal("User", "a"), 1.0).principal.name == "a"


class TestWhoHasSaidNothing:
    async def test_has_little_time(self) -> None:
        limits = LIMITS._replace(authentication_s=0.2)
        served = Served(limits, Authentication(b"secret"))
        await served.listener.start()
        reader, _ = await served.connect(tls=False)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        served.close()

    async def test_may_send_little(self) -> None:
        served = Served(authentication=Authentication(b"secret"))
        await served.listener.start()
        reader, writer = await served.connect(tls=False)
        writer.write(b"*2\r\n$4\r\nAUTH\r\n$%d\r\n" % 100_000)
        line = await asyncio.wait_for(reader.readline(), 5)
        assert line == b"-ERR Protocol error: invalid bulk length\r\n"
        served.close()

    async def test_may_send_as_much_as_others_once_it_has(self) -> None:
        authentication = Authentication(b"secret")
        served = Served(authentication=authentication)
        await served.listener.start()
        reader, writer = await served.connect(tls=False)
        assert await answered(reader, writer)
        (connection,) = served.listener.clients()
        await authentication.authenticate(connection.client, None, b"secret")
        body = b"x" * 200_000
        writer.write(b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (len(body), body))
        reply = await asyncio.wait_for(reader.readline(), 5)
        assert b"Protocol error" not in reply
        served.close()

    async def test_makes_room_for_others(self) -> None:
        served = Served(LIMITS._replace(max_clients=3), Authentication(b"secret"))
        await served.listener.start()
        first = await served.connect(tls=False)
        await eventually(lambda: served.listener.connections == 1)
        for _ in range(3):
            await served.connect(tls=False)
        assert await asyncio.wait_for(first[0].read(), 5) == b"", "the oldest one is closed"
        assert served.listener.connections == 3
        served.close()

    async def test_but_not_who_has(self) -> None:
        authentication = Authentication(b"secret")
        served = Served(LIMITS._replace(max_clients=1), authentication)
        await served.listener.start()
        reader, writer = await served.connect(tls=False)
        await eventually(lambda: served.listener.connections == 1)
        (connection,) = served.listener.clients()
        await authentication.authenticate(connection.client, None, b"secret")
        other, _ = await served.connect(tls=False)
        assert b"max number of clients" in await asyncio.wait_for(other.readline(), 5)
        assert await answered(reader, writer)
        served.close()


async def test_one_address_has_so_many_connections() -> None:
    served = Served(LIMITS._replace(max_clients_per_address=2))
    await served.listener.start()
    for _ in range(2):
        assert await answered(*await served.connect(tls=False))
    reader, _ = await served.connect(tls=False)
    assert b"max number of clients" in await asyncio.wait_for(reader.readline(), 5)
    served.close()


class TestOtherNodes:
    def node(self, served: Served) -> Node:
        return Node(2, "n" * 40, served.plain, tls_address=served.address)

    async def test_are_reached_with_tls_where_they_speak_it(self, served: Served) -> None:
        address = self.node(served).for_nodes
        assert isinstance(address, TlsAddress)
        connection = NodeConnection(address, Link(tls=client))
        assert await connection.call(["ECHO"], 5) is not None
        (known,) = served.listener.clients()
        assert known.client.is_encrypted
        connection.close()

    async def test_must_be_who_they_say(self, served: Served) -> None:
        def trusting_another() -> ssl.SSLContext:
            return ssl.create_default_context(cafile=certificates().other_ca)

        connection = NodeConnection(self.node(served).for_nodes, Link(tls=trusting_another))
        with pytest.raises(NodeUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await connection.call(["ECHO"], 5)

    def test_should_not_tell_their_password_in_the_clear(self) -> None:
        link, near, far = Link("b", b"secret"), Address("127.0.0.1", 1), Address("10.0.0.1", 1)
        assert is_told_in_clear(link, far, None)
        assert not is_told_in_clear(link, far, far), "they take the one with TLS"
        assert not is_told_in_clear(link, near, None)
        assert not is_told_in_clear(link, None, far)
        assert not is_told_in_clear(Link(), far, None)

    async def test_are_not_reached_without_means(self, served: Served) -> None:
        connection = NodeConnection(self.node(served).for_nodes, Link())
        with pytest.raises(NodeUnavailableError, match="speaks TLS"):
            await connection.call(["ECHO"], 5)

    async def test_that_refuse_this_one_say_so(self, served: Served) -> None:
        served.commands.refusal = "WRONGPASS no"
        connection = NodeConnection(served.plain, Link("broker", b"wrong"))
        with pytest.raises(NodeUnavailableError, match="refuses this node: WRONGPASS no"):
            await connection.call(["ECHO"], 5)
        connection.close()

    def test_clients_are_told_where_they_can_go(self, served: Served) -> None:
        node = self.node(served)
        assert node.for_client(is_encrypted=False) == served.plain
        assert node.for_client(is_encrypted=True) == served.address
        alone = Node(2, "n" * 40, served.plain)
        assert alone.for_client(is_encrypted=True) == alone.for_nodes == served.plain


class TestQuotas:
    async def served(self, rate: float) -> tuple[Served, ClientQuotas]:
        quotas = ClientQuotas()
        limits = {"producer_byte_rate": rate, "consumer_byte_rate": rate}
        quotas.set_quotas({QuotaEntity(user="ANONYMOUS"): limits})
        made = Served()
        made.listener._use = use_of(quotas)
        await made.listener.start()
        return made, quotas

    async def test_whoever_sends_too_much_is_answered_later(self) -> None:
        served, _ = await self.served(200_000.0)
        reader, writer = await served.connect(tls=False)
        loop = asyncio.get_running_loop()
        body = b"x" * 100_000
        ask = b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (len(body), body)
        started = loop.time()
        for _ in range(24):  # 11 s worth of it are free
            writer.write(ask)
            await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)
            await asyncio.wait_for(reader.readexactly(len(body) + 2), 10)
        assert loop.time() - started > 0.3
        served.close()

    async def test_others_are_not_kept_waiting(self) -> None:
        served, _ = await self.served(1.0)
        greedy = await served.connect(tls=False)
        greedy[1].write(b"*2\r\n$4\r\nECHO\r\n$3000\r\n" + b"x" * 3000 + b"\r\n")
        await asyncio.wait_for(greedy[0].readline(), 5)
        greedy[1].write(b"PING\r\n")
        (connection,) = served.listener.clients()
        await eventually(lambda: connection._muted_until > 0)
        served.listener._use = use_of(ClientQuotas())
        assert await answered(*await served.connect(tls=False))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(greedy[0].readuntil(b"PING"), 0.2)
        assert connection.overdue(loop_time() + 5, idle_s=1, command_s=1, stall_s=60) is None
        served.close()


def loop_time() -> float:
    return asyncio.get_running_loop().time()
