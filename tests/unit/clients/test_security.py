"""Options of security: one list, in every client and both faces, and what a client does with it."""

import asyncio
import inspect
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qbus
from qbus import aio
from qbus.clients import (
    AuthenticationFailed,
    ClientSecurity,
    ConnectionFailed,
    ConsumerRecord,
    RequestTimedOut,
    SecurityOptions,
    Spooled,
    TlsFailed,
)
from qbus.clients.blocking.loop import LoopThread
from qbus.clients.security import security_of
from qbus.errors import ConfigError
from qbus.wire import ApiKey
from tests.support.secure_broker import SecureBroker, certificates
from tests.support.waiting import eventually

CLIENTS = ["Admin", "Consumer", "Producer", "Queue", "ShareConsumer"]
ALICE = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "secret",
}


@pytest.mark.parametrize("face", [qbus, aio])
@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_takes_the_one_list(face: Any, name: str) -> None:
    client = getattr(face, name)
    (options,) = [
        parameter
        for parameter in inspect.signature(client).parameters.values()
        if parameter.kind is parameter.VAR_KEYWORD
    ]
    assert "SecurityOptions" in str(options.annotation)
    assert "SecurityOptions" in (inspect.getdoc(client.__init__) or "")


def made(name: str, **options: Any) -> Any:
    positional: dict[str, list[Any]] = {"Queue": ["q"], "ShareConsumer": ["g", ["t"]]}
    more = positional.get(name, [])
    return getattr(aio, name)("127.0.0.1:1", *more, **options)


@pytest.mark.parametrize("name", CLIENTS)
async def test_every_client_says_what_is_wrong_when_it_is_made(name: str) -> None:
    with pytest.raises(ConfigError, match=r"needs sasl\.mechanism"):
        made(name, security_protocol="SASL_SSL")
    with pytest.raises(ConfigError, match=r"/no/ca\.pem"):
        made(name, security_protocol="SSL", ssl_cafile="/no/ca.pem")
    with pytest.raises(
        TypeError, match=f"{name} got an unexpected keyword argument 'sasl_pasword'"
    ):
        made(name, sasl_pasword="x")


def test_kafka_pythons_names() -> None:
    context = ssl.create_default_context()
    found = security_of(
        "Producer",
        security_protocol="sasl_ssl",
        ssl_cafile="/ca.pem",
        ssl_certfile="/client.pem",
        ssl_keyfile="/client.key",
        ssl_password="p",
        ssl_check_hostname=False,
        ssl_context=context,
        sasl_mechanism="PLAIN",
        sasl_plain_username="alice",
        sasl_plain_password="secret",
    )
    assert found == ClientSecurity(
        protocol="SASL_SSL",
        ssl_ca_location="/ca.pem",
        ssl_certificate_location="/client.pem",
        ssl_key_location="/client.key",
        ssl_key_password="p",
        check_hostname=False,
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="secret",
    )
    assert found.ssl_context is context


def test_everything_in_one_and_more_beside_it() -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    whole = ClientSecurity.from_properties(properties)
    assert security_of("Admin", security=whole) is whole
    assert security_of("Admin", security=properties) == whole
    assert security_of("Admin", security=whole, sasl_username="bob").sasl_username == "bob"
    with pytest.raises(ConfigError, match="not a int"):
        security_of("Admin", security=7)  # type: ignore[arg-type]


def test_a_provider_of_tokens_may_be_an_object_as_in_kafka_python() -> None:
    class Provider:
        def token(self) -> str:
            return "good"

    for provider in (Provider(), Provider().token):
        found = security_of(
            "Admin",
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=provider,
        )
        assert found.oauth_token is not None
        assert found.oauth_token() == "good"


def test_the_list_has_an_option_for_each_field() -> None:
    assert set(inspect.get_annotations(SecurityOptions)) >= {"security", "security_protocol"}


async def test_producer_and_consumer_over_tls_and_scram() -> None:
    tls = {"security_protocol": "SASL_SSL", "ssl_cafile": certificates().ca}
    async with SecureBroker(tls=certificates().context()) as broker:
        options: Any = {**ALICE, **tls}
        async with aio.Producer(broker.bootstrap, **options) as producer:
            for number in range(100):
                await producer.send("t", b"%d" % number * 1000)
        found: list[ConsumerRecord] = []
        async with aio.Consumer(broker.bootstrap, offset_reset="earliest", **options) as consumer:
            consumer.assign([("t", 0)])
            while len(found) < 100:
                for part in await consumer.poll(1.0):
                    found.extend(part.records)
        assert [record.value for record in found] == [b"%d" % n * 1000 for n in range(100)]


@pytest.fixture
def secure() -> Any:
    thread = LoopThread("fake broker")
    broker: SecureBroker = thread.run(SecureBroker().__aenter__())
    yield broker
    thread.run(broker.__aexit__())
    thread.close()


def test_the_blocking_face(secure: SecureBroker) -> None:
    options: Any = ALICE
    with qbus.Producer(secure.bootstrap, **options) as producer:
        assert producer.send("t", b"x").result().offset == 0
    with qbus.Admin(secure.bootstrap, **options) as admin:
        assert admin.describe_cluster().cluster_id == "fake"
    wrong: Any = {**ALICE, "sasl_password": "hunter2"}
    with qbus.Admin(secure.bootstrap, **wrong) as admin, pytest.raises(AuthenticationFailed):
        admin.describe_cluster()


async def within(seconds: float, work: Any) -> float:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.timeout(seconds):
        await work
    return loop.time() - begun


async def poll(bootstrap: str, **options: Any) -> None:
    async with aio.Consumer(bootstrap, group="g", **options) as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(10.0)


async def produce(bootstrap: str, **options: Any) -> None:
    async with aio.Producer(bootstrap, **options) as producer:
        await (await producer.send("t", b"x"))


async def administrate(bootstrap: str, **options: Any) -> None:
    async with aio.Admin(bootstrap, **options) as admin:
        await admin.list_topics()


async def take(bootstrap: str, **options: Any) -> None:
    async with aio.ShareConsumer(bootstrap, "g", ["t"], **options) as consumer:
        await consumer.poll(10.0)


async def add(bootstrap: str, **options: Any) -> None:
    async with aio.Queue(bootstrap, "q", **options) as queue:
        await queue.add(b"job")


USES: list[Callable[..., Any]] = [poll, produce, administrate, take, add]


@pytest.mark.parametrize("use", USES)
async def test_a_wrong_password_is_said_at_once_by_every_client(use: Callable[..., Any]) -> None:
    async with SecureBroker() as broker:
        options: Any = {**ALICE, "sasl_password": "hunter2"}
        with pytest.raises(AuthenticationFailed, match="'alice' with SCRAM-SHA-256") as caught:
            await within(5.0, use(broker.bootstrap, **options))
        assert "hunter2" not in str(caught.value)
        assert broker.connections <= 3


@pytest.mark.parametrize("use", USES)
async def test_a_wrong_authority_is_said_at_once_by_every_client(use: Callable[..., Any]) -> None:
    async with SecureBroker(tls=certificates().context()) as broker:
        options: Any = {"security_protocol": "SSL", "ssl_cafile": certificates().other_ca}
        with pytest.raises(TlsFailed, match="not trusted"):
            await within(5.0, use(broker.bootstrap, **options))


async def test_a_listener_that_wants_sasl_is_named_when_time_is_up() -> None:
    async with SecureBroker() as broker:
        with pytest.raises((RequestTimedOut, ConnectionFailed), match="wants SASL"):
            async with aio.Admin(broker.bootstrap, request_timeout_ms=300) as admin:
                await admin.list_topics()


async def test_what_a_client_waits_for_is_said_in_its_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        SecureBroker() as broker,
        aio.Admin(broker.bootstrap, request_timeout_ms=1800) as admin,
    ):
        with pytest.raises((RequestTimedOut, ConnectionFailed)):
            await admin.list_topics()
        said = f"waits for an answer of broker {broker.bootstrap}: the broker closed"
    assert said in caplog.text
    assert "if its listener wants SASL" in caplog.text


async def test_a_password_that_changes_while_a_producer_runs(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret")
    async with SecureBroker() as broker:
        options: Any = {**ALICE, "sasl_password": f"file:{file}"}
        async with aio.Producer(broker.bootstrap, **options) as producer:
            assert (await (await producer.send("t", b"1"))).offset == 0
            broker.users["alice"] = "changed"
            broker.hangup()
            with pytest.raises(AuthenticationFailed):
                await (await producer.send("t", b"2"))
            file.write_text("changed")

            async def is_sent() -> bool:
                try:
                    return (await (await producer.send("t", b"3"))).offset == 1
                except AuthenticationFailed:  # of an attempt that had begun before
                    return False

            await eventually(is_sent)
        assert len(broker.asked(ApiKey.PRODUCE)) == 2


async def test_a_spool_keeps_what_a_wrong_password_keeps_from_being_sent(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")
    async with SecureBroker() as broker:
        options: Any = {**ALICE, "sasl_password": f"file:{tmp_path}/password"}
        spool = tmp_path / "spool"
        async with aio.Producer(broker.bootstrap, spool_dir=spool, **options) as producer:

            async def is_spooled() -> bool:
                try:
                    await (await producer.send("t", b"x"))
                except Spooled:
                    return True
                return False

            assert not await is_spooled()
            broker.users["alice"] = "changed"
            broker.hangup()
            await eventually(is_spooled)
            (tmp_path / "password").write_text("changed")

            async def is_sent() -> bool:
                return not await is_spooled()

            await eventually(is_sent)
        assert broker.logs["t", 0].end >= 2


async def test_the_repr_of_clients_has_no_secret() -> None:
    for name in CLIENTS:
        options: Any = {**ALICE, "sasl_password": "hunter2"}
        client = made(name, **options)
        assert "hunter2" not in f"{client!r} {vars(client)} {vars(client._cluster)}"
        await client.close()
