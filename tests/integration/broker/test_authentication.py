"""A broker that asks for SASL, and what reaches it from clients that mean no good."""

import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from qbus.errors import ErrorCode
from qbus.security.sasl import PlainClient, SaslClient
from qbus.security.scram import ScramClient, ScramMechanism
from qbus.wire import ApiKey
from qbus.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from qbus.wire.messages.metadata import MetadataRequest
from qbus.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from qbus.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.raw_client import RawClient
from tests.support.sasl_broker import ADMIN, ADMIN_PASSWORD, SaslBroker

pytestmark = pytest.mark.integration

SHA_256 = ScramMechanism.SHA_256
SALT = b"0123456789abcdef"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl")) as running:
        yield running


def log_in(raw: RawClient, client: SaslClient) -> Any:
    """Authenticate; return the last response."""
    answer = raw.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=client.mechanism))
    assert answer.error_code == 0
    message: bytes | None = client.first()
    while message is not None:
        answer = authenticate(raw, message)
        if answer.error_code:
            return answer
        message = client.answer(answer.auth_bytes)
    return answer


def authenticate(raw: RawClient, message: bytes) -> Any:
    return raw.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=message))


def guess(port: int, user: str = ADMIN) -> int:
    """Log in with any proof; return the error."""
    with RawClient(port) as raw:
        raw.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
        challenge = authenticate(raw, f"n,,n={user},r=abc".encode()).auth_bytes
        nonce = challenge.split(b",")[0]
        proof = b"c=biws," + nonce + b",p=" + b64encode(bytes(32))
        return int(authenticate(raw, proof).error_code)


def admin(broker: SaslBroker) -> RawClient:
    raw = RawClient(broker.port)
    assert log_in(raw, ScramClient(SHA_256, ADMIN, ADMIN_PASSWORD)).error_code == 0
    return raw


def alter(raw: RawClient, *, set_: tuple[str, ...] = (), remove: tuple[str, ...] = ()) -> None:
    salted = SHA_256.salted_password(b"secret", SALT, 4096)
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in remove],
        upsertions=[
            ScramCredentialUpsertion(
                name=name, mechanism=1, iterations=4096, salt=SALT, salted_password=salted
            )
            for name in set_
        ],
    )
    answer = raw.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    assert [result.error_code for result in answer.results] == [0]


def test_who_has_logged_in_is_served(broker: SaslBroker) -> None:
    with admin(broker) as raw:
        assert raw.ask(ApiKey.METADATA, 9, MetadataRequest(topics=None)).brokers
    with RawClient(broker.port) as raw:
        assert log_in(raw, PlainClient(ADMIN, ADMIN_PASSWORD)).error_code == 0
        assert raw.is_served()


def test_a_wrong_password_is_answered_late_and_closes(broker: SaslBroker) -> None:
    with RawClient(broker.port) as raw:
        started = time.monotonic()
        answer = log_in(raw, ScramClient(SHA_256, ADMIN, "wrong"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert time.monotonic() - started >= 0.1
        assert raw.is_closed()


def test_an_unknown_mechanism_is_answered_and_closes(broker: SaslBroker) -> None:
    with RawClient(broker.port) as raw:
        answer = raw.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="GSSAPI"))
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert raw.is_closed()


def test_requests_before_authentication_close(broker: SaslBroker) -> None:
    with RawClient(broker.port) as raw:
        raw.send_frame(pack(">hhihb", ApiKey.METADATA, 9, 1, -1, 0) + b"\0\0\0\0\0")
        assert raw.is_closed()
    with RawClient(broker.port) as raw:
        assert raw.is_served()
        raw.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        raw.send_frame(pack(">hhihb", ApiKey.METADATA, 9, 1, -1, 0) + b"\0\0\0\0\0")
        assert raw.is_closed()


def test_what_is_sent_behind_a_failure_is_not_answered(broker: SaslBroker) -> None:
    with RawClient(broker.port) as raw:
        raw.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        message = PlainClient(ADMIN, "wrong").first()
        body = pack(">hhihi", ApiKey.SASL_AUTHENTICATE, 1, 1, -1, len(message)) + message
        metadata = pack(">hhihi", ApiKey.METADATA, 1, 2, -1, -1)
        raw.send(pack(">i", len(body)) + body + 20 * (pack(">i", len(metadata)) + metadata))
        assert raw.receive_frame() is not None
        assert raw.is_closed()


@pytest.mark.parametrize("size", [65_537, 1 << 20, (1 << 31) - 1, -1])
def test_frames_before_authentication_are_small(broker: SaslBroker, size: int) -> None:
    with RawClient(broker.port) as raw:
        raw.send(pack(">i", size) + bytes(8))
        assert raw.is_closed()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_long_messages_are_refused(broker: SaslBroker, mechanism: str) -> None:
    with RawClient(broker.port) as raw:
        raw.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))
        answer = authenticate(raw, b"n,,n=" + b"\0a" * 30_000)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert raw.is_closed()


def test_messages_without_headers(broker: SaslBroker) -> None:
    with RawClient(broker.port) as raw:
        raw.ask(ApiKey.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
        client = ScramClient(SHA_256, ADMIN, ADMIN_PASSWORD)
        message: bytes | None = client.first()
        while message is not None:
            raw.send_frame(message)
            answer = raw.receive_frame()
            assert answer is not None
            message = client.answer(answer)
        assert raw.is_served()
    with RawClient(broker.port) as raw:
        raw.ask(ApiKey.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="PLAIN"))
        raw.send_frame(PlainClient(ADMIN, "wrong").first())
        assert raw.is_closed()


def test_a_removed_user_is_disconnected(broker: SaslBroker) -> None:
    with admin(broker) as by, RawClient(broker.port) as raw:
        alter(by, set_=("alice",))
        assert log_in(raw, ScramClient(SHA_256, "alice", "secret")).error_code == 0
        assert raw.is_served()
        alter(by, remove=("alice",))
        assert raw.is_closed()


def test_a_session_ends_that_is_not_renewed(tmp_path: Path) -> None:
    with (
        SaslBroker(tmp_path, **{"connections.max.reauth.ms": 300}) as broker,
        RawClient(broker.port) as raw,
        RawClient(broker.port) as lazy,
    ):
        for one in (raw, lazy):
            answer = log_in(one, ScramClient(SHA_256, ADMIN, ADMIN_PASSWORD))
            assert answer.session_lifetime_ms == 300
        time.sleep(0.4)
        assert log_in(raw, ScramClient(SHA_256, ADMIN, ADMIN_PASSWORD)).error_code == 0
        assert raw.is_served()
        lazy.send_frame(pack(">hhihi", ApiKey.METADATA, 1, 2, -1, -1))
        assert lazy.is_closed()


def test_guesses_from_the_users_own_address_are_limited(tmp_path: Path) -> None:
    with SaslBroker(tmp_path) as broker, admin(broker) as honest:
        alter(honest, set_=("alice",))
        for _ in range(10):
            assert guess(broker.port, "alice") == ErrorCode.SASL_AUTHENTICATION_FAILED
        right = ScramClient(SHA_256, "alice", "secret")
        with RawClient(broker.port) as raw, pytest.raises(AssertionError, match="closed"):
            log_in(raw, right)
        with RawClient(broker.port, source="127.0.0.2") as raw:
            right = ScramClient(SHA_256, "alice", "secret")
            assert log_in(raw, right).error_code == 0
        assert honest.is_served()
        time.sleep(1.1)
        with RawClient(broker.port) as raw:
            right = ScramClient(SHA_256, "alice", "secret")
            assert log_in(raw, right).error_code == 0


def test_those_who_wait_without_a_login_keep_nobody_out(tmp_path: Path) -> None:
    limit = {"sasl.max.unauthenticated.connections": 20}
    with SaslBroker(tmp_path, **limit) as broker, admin(broker) as honest, ExitStack() as idle:
        first = idle.enter_context(RawClient(broker.port))
        for _ in range(60):
            idle.enter_context(RawClient(broker.port))
        assert first.is_closed()
        with admin(broker) as another:
            assert another.is_served()
        assert honest.is_served()


@pytest.mark.parametrize("guesses", [500, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_guesses_hurt_no_honest_client(tmp_path: Path, guesses: int) -> None:
    with SaslBroker(tmp_path) as broker, admin(broker) as honest:
        alter(honest, set_=("alice",))
        with RawClient(broker.port) as raw:
            assert log_in(raw, ScramClient(SHA_256, "alice", "secret")).error_code == 0
        left = [guesses]
        errors: list[int] = []

        def attack() -> None:
            while left[0] > 0:
                left[0] -= 1
                errors.append(guess(broker.port, f"root{left[0] // 5}"))

        attackers = [threading.Thread(target=attack) for _ in range(50)]
        for one in attackers:
            one.start()
        times = []
        while any(one.is_alive() for one in attackers):
            started = time.monotonic()
            assert honest.is_served()
            with RawClient(broker.port) as raw:
                client = ScramClient(SHA_256, "alice", "secret")
                assert log_in(raw, client).error_code == 0
            times.append(time.monotonic() - started)
            time.sleep(0.02)
        for one in attackers:
            one.join()
        assert set(errors) == {ErrorCode.SASL_AUTHENTICATION_FAILED}
        assert len(errors) >= guesses
        times.sort()
        assert times[len(times) // 2] < 0.5
