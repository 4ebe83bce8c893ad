"""TLS under a connection: who is trusted, what is said if nobody is, how data gets through."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qbus.clients import ConnectionFailed, RequestTimedOut, TlsFailed
from qbus.clients.net.connection import Connection
from qbus.errors import ApiError, ConfigError
from qbus.security.client import ClientSecurity
from qbus.security.connecting import OutgoingSecurity
from qbus.wire import ApiKey
from qbus.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from qbus.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.fake_broker import FakeBroker
from tests.support.secure_broker import certificates


def trusting(**more: str | bool | None) -> ClientSecurity:
    return ClientSecurity.of(protocol="SSL", **{"ssl_ca_location": certificates().ca, **more})


async def connect(
    port: int, security: ClientSecurity | None, host: str = "127.0.0.1", timeout: float = 5.0
) -> Connection:
    outgoing = None if security is None else OutgoingSecurity(security)
    return await Connection.open(host, port, "test", timeout, outgoing)


async def refused(
    port: int, security: ClientSecurity | None, host: str = "127.0.0.1", timeout: float = 5.0
) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await connect(port, security, host, timeout)
    assert str(caught.value).startswith(f"{host}:{port}")
    return caught.value


async def ask(connection: Connection, topic: str = "t") -> str | None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    response = await connection.request(ApiKey.METADATA, request, 5.0)
    name: str | None = response.topics[0].name
    return name


@asynccontextmanager
async def serving(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(closing, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_broker_with_a_trusted_certificate(host: str) -> None:
    async with FakeBroker(tls=certificates().context()) as broker:
        connection = await connect(broker.port, trusting(), host)
        names = [f"topic-{number}" for number in range(50)]
        assert await asyncio.gather(*(ask(connection, name) for name in names)) == names
        await connection.close()
        assert not connection.is_open


async def test_large_requests_and_answers_get_through() -> None:
    async with FakeBroker(tls=certificates().context()) as broker:
        name = "t" * 200

        async def long(message: MetadataRequest) -> object:
            await asyncio.sleep(0.05)  # more is written meanwhile
            return broker.metadata(message)

        broker.handlers[ApiKey.METADATA] = long
        broker.topics = {f"{name}{number}": 1 for number in range(20_000)}
        connection = await connect(broker.port, trusting())
        whole = MetadataRequest(topics=None)
        small = [ask(connection, f"small-{number}") for number in range(20)]
        big = connection.request(ApiKey.METADATA, whole, 10.0)
        records = bytes(range(256)) * 4 * 8192
        data = [PartitionProduceData(index=0, records=records)]
        produce = ProduceRequest(
            acks=0, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)]
        )
        broker.handlers[ApiKey.PRODUCE] = lambda _: None
        sent = [connection.send(ApiKey.PRODUCE, produce) for _ in range(3)]
        answers = await asyncio.gather(*small, big, *sent)
        assert len(answers[20].topics) == 20_000
        assert await ask(connection) == "t"
        got = [message.topic_data[0].partition_data[0] for message in broker.asked(ApiKey.PRODUCE)]
        assert [bytes(part.records or b"") for part in got] == [records] * 3
        await connection.close()


async def test_an_authority_that_is_not_trusted() -> None:
    async with FakeBroker(tls=certificates().context()) as broker:
        for ca in (certificates().other_ca, None):
            error = await refused(broker.port, trusting(ssl_ca_location=ca))
            assert isinstance(error, TlsFailed)
            assert not error.retriable
            assert "certificate is not trusted" in str(error)
            assert "ssl.ca.location" in str(error)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_certificate_for_another_host(host: str) -> None:
    async with FakeBroker(tls=certificates().context("elsewhere")) as broker:
        error = await refused(broker.port, trusting(), host)
        assert isinstance(error, TlsFailed)
        assert "its certificate is for another host" in str(error)
        connection = await connect(broker.port, trusting(check_hostname=False), host)
        assert await ask(connection) == "t"
        await connection.close()


async def test_a_certificate_that_has_expired() -> None:
    async with FakeBroker(tls=certificates().context("expired")) as broker:
        error = await refused(broker.port, trusting())
        assert isinstance(error, TlsFailed)
        assert "its certificate has expired" in str(error)


async def test_a_client_with_and_without_the_certificate_that_is_asked_for() -> None:
    made = certificates()
    async with FakeBroker(tls=made.context(asks=True)) as broker:
        error = await refused(broker.port, trusting())
        assert "ssl.certificate.location" in str(error)
        connection = await connect(
            broker.port,
            trusting(ssl_certificate_location=made.client, ssl_key_location=made.client_key),
        )
        assert await ask(connection) == "t"
        await connection.close()


async def test_tls_to_a_listener_without() -> None:
    async with FakeBroker() as broker:
        broker.handlers.clear()

        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        async with serving(hang_up) as port:
            error = await refused(port, trusting())
            assert isinstance(error, ConnectionFailed)
            assert error.retriable  # it may be starting
            assert "does not speak TLS" in str(error)


async def test_no_tls_to_a_listener_with() -> None:
    async with FakeBroker(tls=certificates().context()) as broker:
        error = await refused(broker.port, None)
        assert isinstance(error, TlsFailed | ConnectionFailed)  # it may close before it says so
        assert "security.protocol is SSL or SASL_SSL there" in str(error)


async def test_a_listener_that_answers_garbage() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x00\x00\x00\x04nonsense" * 100)
        await writer.drain()

    async with serving(answer) as port:
        error = await refused(port, trusting())
        assert isinstance(error, TlsFailed)
        assert "does not answer with TLS" in str(error)
    async with serving(answer, certificates().context()) as port:
        error = await refused(port, trusting())
        assert "does not respond like a broker" in str(error)


async def test_a_listener_that_stalls_in_the_handshake() -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        await asyncio.sleep(60)

    async with serving(stall) as port:
        error = await refused(port, trusting(), timeout=0.1)
        assert isinstance(error, RequestTimedOut)
        assert "no TLS handshake in 0.1 s" in str(error)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_only_the_versions_that_are_enabled_are_spoken(version: str) -> None:
    only = ClientSecurity.from_properties(
        {
            "security.protocol": "SSL",
            "ssl.ca.location": certificates().ca,
            "ssl.enabled.protocols": version,
        }
    )
    async with FakeBroker(tls=certificates().context()) as broker:
        connection = await connect(broker.port, only)
        assert connection._transport is not None
        assert connection._transport.get_extra_info("ssl_object").version() == version
        await connection.close()


async def test_a_context_of_ones_own() -> None:
    context = ssl.create_default_context(cafile=certificates().ca)
    async with FakeBroker(tls=certificates().context()) as broker:
        connection = await connect(broker.port, ClientSecurity(protocol="SSL", ssl_context=context))
        assert await ask(connection) == "t"
        await connection.close()


async def test_files_that_change_count_for_the_next_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca = tmp_path / "ca.pem"
    shutil.copy(certificates().other_ca, ca)
    outgoing = OutgoingSecurity(trusting(ssl_ca_location=str(ca)))
    async with FakeBroker(tls=certificates().context()) as broker:
        with pytest.raises(TlsFailed):
            await Connection.open("127.0.0.1", broker.port, "test", 5.0, outgoing)
        shutil.copy(certificates().ca, ca)
        await (await Connection.open("127.0.0.1", broker.port, "test", 5.0, outgoing)).close()
        ca.write_text("half written")
        await (await Connection.open("127.0.0.1", broker.port, "test", 5.0, outgoing)).close()
        assert "what was read before stays in use" in caplog.text


def test_a_file_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match=r"/no/ca\.pem"):
        OutgoingSecurity(ClientSecurity(protocol="SSL", ssl_ca_location="/no/ca.pem"))
