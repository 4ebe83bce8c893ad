"""SASL on a connection: who is let in, who is not, and how sessions go on."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from qbus.clients import AuthenticationFailed, ConnectionFailed, RequestTimedOut
from qbus.clients.net.connection import Connection
from qbus.errors import ApiError, ErrorCode
from qbus.security.client import ClientSecurity
from qbus.security.connecting import OutgoingSecurity
from qbus.wire import ApiKey
from qbus.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from qbus.wire.messages.produce import ProduceRequest
from qbus.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from qbus.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.support.fake_broker import FakeBroker, Hangup
from tests.support.secure_broker import SecureBroker, certificates
from tests.support.waiting import eventually

WITH_PASSWORD = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def alice(mechanism: str = "PLAIN", password: str = "secret", **more: Any) -> ClientSecurity:
    return ClientSecurity.of(
        protocol=more.pop("protocol", "SASL_PLAINTEXT"),
        sasl_mechanism=mechanism,
        sasl_username="alice",
        sasl_password=password,
        **more,
    )


def bearing(source: Any) -> ClientSecurity:
    return ClientSecurity(
        protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", oauth_token=source
    )


async def connect(
    broker: FakeBroker, security: ClientSecurity | None, timeout: float = 5.0
) -> Connection:
    outgoing = None if security is None else OutgoingSecurity(security)
    return await Connection.open("127.0.0.1", broker.port, "test", timeout, outgoing)


async def refused(broker: FakeBroker, security: ClientSecurity, timeout: float = 5.0) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await connect(broker, security, timeout)
    assert str(caught.value).startswith(f"127.0.0.1:{broker.port}")
    return caught.value


async def ask(connection: Connection, topic: str = "t") -> str | None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    response = await connection.request(ApiKey.METADATA, request, 5.0)
    name: str | None = response.topics[0].name
    return name


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
async def test_the_right_password(mechanism: str) -> None:
    async with SecureBroker() as broker:
        connection = await connect(broker, alice(mechanism))
        assert await ask(connection) == "t"
        assert broker.authenticated == ["alice"]
        await connection.close()


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
async def test_over_tls(mechanism: str) -> None:
    made = certificates()
    async with SecureBroker(tls=made.context()) as broker:
        security = alice(mechanism, protocol="SASL_SSL", ssl_ca_location=made.ca)
        connection = await connect(broker, security)
        assert await ask(connection) == "t"
        await connection.close()


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
async def test_a_wrong_password_is_final_and_says_what_the_broker_said(mechanism: str) -> None:
    async with SecureBroker() as broker:
        broker.says = "Authentication failed during authentication: invalid credentials"
        error = await refused(broker, alice(mechanism, "hunter2"))
        assert isinstance(error, AuthenticationFailed)
        assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert error.mechanism == mechanism
        assert not error.retriable
        assert f"authentication of 'alice' with {mechanism} failed: {broker.says}" in str(error)
        assert "hunter2" not in f"{error} {error!r}"


async def test_a_server_that_does_not_know_the_password_either() -> None:
    async with SecureBroker() as broker:
        honest = broker.sasl_authenticate

        def forged(request: Any) -> SaslAuthenticateResponse:
            answer = honest(request)
            if bytes(answer.auth_bytes).startswith(b"v="):
                answer.auth_bytes = b"v=" + b"A" * 43 + b"="
            return answer

        broker.handlers[ApiKey.SASL_AUTHENTICATE] = forged
        error = await refused(broker, alice("SCRAM-SHA-256"))
        assert isinstance(error, AuthenticationFailed)
        assert "the server does not know the password" in str(error)


async def test_a_mechanism_that_is_not_offered() -> None:
    async with SecureBroker(mechanisms=("SCRAM-SHA-512", "OAUTHBEARER")) as broker:
        error = await refused(broker, alice("PLAIN"))
        assert isinstance(error, AuthenticationFailed)
        message = "the broker does not take PLAIN; it takes SCRAM-SHA-512, OAUTHBEARER"
        assert message in str(error)


async def test_a_listener_without_sasl() -> None:
    async with SecureBroker() as broker:
        broker.handlers[ApiKey.SASL_HANDSHAKE] = lambda _: SaslHandshakeResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[]
        )
        error = await refused(broker, alice())
        assert "listener does not use SASL" in str(error)
        assert "security.protocol is PLAINTEXT or SSL" in str(error)


async def test_a_client_without_sasl_at_a_listener_that_wants_it() -> None:
    async with SecureBroker() as broker:
        connection = await connect(broker, None)
        with pytest.raises(ConnectionFailed, match="if its listener wants SASL"):
            await ask(connection)


async def test_a_broker_that_stalls() -> None:
    async with SecureBroker() as broker:

        async def stall(_: Any) -> None:
            await asyncio.sleep(60)

        broker.handlers[ApiKey.SASL_AUTHENTICATE] = stall
        error = await refused(broker, alice(), timeout=0.1)
        assert isinstance(error, RequestTimedOut)
        assert "no answer to SASL_AUTHENTICATE" in str(error)


async def test_a_broker_that_answers_garbage() -> None:
    async with SecureBroker() as broker:
        broker.mangle[ApiKey.SASL_AUTHENTICATE] = lambda frame: (
            (len(frame) - 5).to_bytes(4, "big") + frame[4:-1]
        )
        error = await refused(broker, alice("SCRAM-SHA-256"))
        assert "does not respond like a broker" in str(error)


async def test_a_broker_that_never_comes_to_an_end() -> None:
    async with SecureBroker() as broker:
        broker.handlers[ApiKey.SASL_AUTHENTICATE] = lambda _: SaslAuthenticateResponse(
            auth_bytes=b'{"status":"more"}'
        )
        broker.tokens["good"] = "alice"
        error = await refused(broker, bearing(lambda: "good"))
        assert isinstance(error, AuthenticationFailed)


async def test_tokens_are_asked_for_in_a_thread_or_awaited() -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return "good"

    async with SecureBroker() as broker:
        broker.tokens["good"] = "alice"
        for source in (lambda: "good", later, lambda: ("good", 1.0)):
            connection = await connect(broker, bearing(source))
            assert await ask(connection) == "t"
            await connection.close()
        assert broker.authenticated == ["alice"] * 3


async def test_a_token_that_is_refused() -> None:
    async with SecureBroker() as broker:
        error = await refused(broker, bearing(lambda: "hunter2"))
        assert isinstance(error, AuthenticationFailed)
        assert "with OAUTHBEARER failed" in str(error)
        assert "hunter2" not in str(error)


async def test_a_provider_of_tokens_that_fails_can_be_asked_again() -> None:
    def fail() -> str:
        raise ValueError("hunter2")

    async with SecureBroker() as broker:
        for source, reason in ((fail, "ValueError in its provider"), (lambda: 7, "returns a int")):
            error = await refused(broker, bearing(source))
            assert isinstance(error, ConnectionFailed)
            assert error.retriable
            assert reason in str(error)
            assert "hunter2" not in str(error)


# Sessions that end (KIP-368).


async def test_a_session_is_renewed_while_requests_go_on() -> None:
    async with SecureBroker(lifetime_ms=200) as broker:
        connection = await connect(broker, alice("SCRAM-SHA-256"))
        asked = 0
        while len(broker.authenticated) < 3:
            names = [f"topic-{number}" for number in range(5)]
            assert await asyncio.gather(*(ask(connection, name) for name in names)) == names
            asked += 1
        assert broker.connections == 1
        assert asked > 4
        await connection.close()


async def test_a_session_is_renewed_while_nothing_is_asked() -> None:
    async with SecureBroker(lifetime_ms=100) as broker:
        connection = await connect(broker, alice())
        await eventually(lambda: len(broker.authenticated) >= 4)
        assert await ask(connection) == "t"
        assert broker.connections == 1
        await connection.close()


async def test_requests_wait_while_a_session_is_renewed_and_keep_their_order() -> None:
    async with SecureBroker(lifetime_ms=200) as broker:
        connection = await connect(broker, alice())
        honest = broker.sasl_authenticate
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def slow(request: Any) -> SaslAuthenticateResponse:
            begun.set()
            await may_end.wait()
            return honest(request)

        broker.handlers[ApiKey.SASL_AUTHENTICATE] = slow
        before = len(broker.requests)
        await begun.wait()
        names = [f"topic-{number}" for number in range(5)]
        asking = [asyncio.ensure_future(ask(connection, name)) for name in names]
        broker.handlers[ApiKey.PRODUCE] = lambda _: None
        sending = asyncio.ensure_future(
            connection.send(ApiKey.PRODUCE, ProduceRequest(acks=0, timeout_ms=1, topic_data=[]))
        )
        await asyncio.sleep(0.02)
        assert [api for api, *_ in broker.requests[before:]] == [
            ApiKey.SASL_HANDSHAKE,
            ApiKey.SASL_AUTHENTICATE,
        ]
        assert connection.load == 7  # with the one of SASL
        may_end.set()
        assert await asyncio.gather(*asking) == names
        await sending
        await eventually(lambda: broker.asked(ApiKey.PRODUCE))
        await connection.close()


async def test_requests_that_wait_fail_with_a_connection_that_ends_once_its_session_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> int:
        raise ConnectionResetError("reset by the peer")

    async with SecureBroker(lifetime_ms=200) as broker:
        connection = await connect(broker, alice())
        honest = broker.sasl_authenticate
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def slow(request: Any) -> SaslAuthenticateResponse:
            begun.set()
            await may_end.wait()
            return honest(request)

        broker.handlers[ApiKey.SASL_AUTHENTICATE] = slow
        await begun.wait()
        asking = [asyncio.ensure_future(ask(connection)) for _ in range(3)]
        await eventually(lambda: connection.load == 4)  # with the one of SASL
        with monkeypatch.context() as patch:
            patch.setattr(os, "writev", broken)
            may_end.set()
            done, waiting = await asyncio.wait(asking, timeout=10.0)
        assert not waiting
        for each in done:
            with pytest.raises(ConnectionFailed, match="reset by the peer"):
                await each


async def test_a_session_is_renewed_behind_a_request_that_waits() -> None:
    async with SecureBroker(lifetime_ms=200) as broker:

        async def long_poll(request: MetadataRequest) -> Any:
            await asyncio.sleep(0.4)
            return broker.metadata(request)

        broker.handlers[ApiKey.METADATA] = long_poll
        connection = await connect(broker, alice(), timeout=0.1)
        assert await ask(connection, "first") == "first"
        assert await ask(connection, "second") == "second"
        assert broker.connections == 1
        await connection.close()


async def test_a_password_that_changed_closes_the_connection(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret")
    async with SecureBroker(lifetime_ms=150) as broker:
        outgoing = OutgoingSecurity(alice(password=f"file:{file}"))
        connection = await Connection.open("127.0.0.1", broker.port, "test", 5.0, outgoing)
        broker.users["alice"] = "changed"
        await eventually(lambda: not connection.is_open)
        with pytest.raises(ConnectionFailed, match="authentication of 'alice' with PLAIN failed"):
            await ask(connection)
        with pytest.raises(AuthenticationFailed):
            await Connection.open("127.0.0.1", broker.port, "test", 5.0, outgoing)
        file.write_text("changed\n")
        connection = await Connection.open("127.0.0.1", broker.port, "test", 5.0, outgoing)
        assert await ask(connection) == "t"
        await connection.close()


async def test_a_password_that_changed_in_its_file_renews_the_session(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret")
    async with SecureBroker(lifetime_ms=300) as broker:
        connection = await connect(broker, alice(password=f"file:{file}"))
        broker.users["alice"] = "changed"
        file.write_text("changed")
        await eventually(lambda: len(broker.authenticated) == 2)
        assert await ask(connection) == "t"
        await connection.close()


async def test_a_token_that_expires_is_replaced() -> None:
    async with SecureBroker(lifetime_ms=150) as broker:
        issued: list[str] = []

        def issue() -> str:
            issued.append(f"token-{len(issued)}")
            broker.tokens = {issued[-1]: "alice"}  # the one before is worth nothing
            return issued[-1]

        connection = await connect(broker, bearing(issue))
        await eventually(lambda: len(broker.authenticated) >= 3)
        assert issued[:3] == ["token-0", "token-1", "token-2"]
        assert await ask(connection) == "t"
        assert broker.connections == 1
        await connection.close()


async def test_a_token_that_is_not_there_in_time_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("qbus.security.authenticator._TOKEN_PAUSE_S", 0.01)
    async with SecureBroker(lifetime_ms=400) as broker:
        broker.tokens["good"] = "alice"
        answers = ["good", "", "", "good"]

        def issue() -> str:
            answer = answers.pop(0) if answers else "good"
            if not answer:
                raise ValueError
            return answer

        connection = await connect(broker, bearing(issue))
        await eventually(lambda: len(broker.authenticated) == 2)
        assert "the session cannot be renewed yet" in caplog.text
        assert await ask(connection) == "t"
        await connection.close()


async def test_requests_that_wait_fail_with_the_connection() -> None:
    async with SecureBroker(lifetime_ms=100) as broker:
        connection = await connect(broker, alice())
        begun = asyncio.Event()

        async def hang_up(_: Any) -> None:
            begun.set()
            await asyncio.sleep(0.05)
            raise Hangup

        broker.handlers[ApiKey.SASL_AUTHENTICATE] = hang_up
        await begun.wait()
        with pytest.raises(ConnectionFailed):
            await ask(connection)


async def test_closing_renews_nothing() -> None:
    async with SecureBroker(lifetime_ms=100) as broker:
        connection = await connect(broker, alice())
        await connection.close()
        await asyncio.sleep(0.12)
        assert broker.authenticated == ["alice"]
