"""Connections that authenticate: what they are answered, and who they are then."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from qbus.broker.authentication import BY_CERTIFICATE, Authentication, Choice, Outcome, passwords
from qbus.broker.authentication import authentication as module
from qbus.broker.authentication.bearer import token_services
from qbus.broker.net.connection import CloseConnection
from qbus.broker.net.peer import ANONYMOUS, Peer, Principal
from qbus.clock import SystemClock
from qbus.config import Address, BrokerConfig, ListenerInfo
from qbus.config.address import SecurityProtocol
from qbus.errors import ConfigError
from qbus.security.credentials import Credentials
from qbus.security.sasl import OAuthBearerClient, PlainClient, SaslClient
from qbus.security.scram import ScramClient, ScramMechanism
from tests.support.jwt_issuer import AUDIENCE, public_jwk, rsa_key, token, write_key_set
from tests.support.sasl_metadata import Users

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
ALICE = Principal("User", "alice")
SASL = ListenerInfo("SASL", SecurityProtocol.SASL_PLAINTEXT, Address("127.0.0.1", 1))

METADATA = memoryview(b"\x00\x03\x00\x09")
API_VERSIONS = memoryview(b"\x00\x12\x00\x03")
HANDSHAKE = memoryview(b"\x00\x11\x00\x01")
AUTHENTICATE = memoryview(b"\x00\x24\x00\x02")


class World:
    """A broker's authentication, and the connections of clients."""

    def __init__(self, path: Path, **settings: object) -> None:
        keys = write_key_set(path / "keys.json", public_jwk(rsa_key(), "one"))
        stated = {
            "listeners": "SASL://127.0.0.1:1",
            "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "SASL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "connection.failed.authentication.delay.ms": 0,
            "log.dirs": str(path),
            **settings,
        }
        config = BrokerConfig(stated)
        self.users = Users()
        credentials = Credentials(bytes(32))
        credentials.put_own("broker", "between brokers")
        self.authentication = Authentication(
            config,
            SystemClock(),
            cast("Any", self.users),
            credentials,
            token_services(config, frozenset({"broker"})),
        )
        self.outcomes: list[Outcome] = []
        self.authentication.observers.append(self.outcomes.append)
        self.users.put("alice", SHA_256, SHA_512)
        self.closed: list[str] = []

    def connect(self, host: str = "10.0.0.1") -> Peer:
        return Peer(1, host, SASL, is_authenticated=False, close=self.closed.append)

    async def log_in(self, peer: Peer, client: SaslClient) -> str | None:
        """Authenticate; return the error that the client is told."""
        choice = self.authentication.choose(peer, client.mechanism, has_headers=True)
        assert choice is Choice.TAKEN
        message: bytes | None = client.first()
        while message is not None:
            answer = await self.authentication.authenticate(peer, message)
            if answer.error is not None:
                assert peer.closes_after_reply
                assert not peer.is_authenticated or peer.principal != ANONYMOUS
                return answer.error
            message = client.answer(answer.message)
        assert client.is_complete
        return None


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.authentication.look_after_tokens()
    yield made
    made.authentication.close()


def plain(password: str = "secret", user: str = "alice") -> PlainClient:
    return PlainClient(user, password)


def scram(
    password: str = "secret", user: str = "alice", mechanism: ScramMechanism = SHA_256
) -> ScramClient:
    return ScramClient(mechanism, user, password)


def bearer(**changes: Any) -> OAuthBearerClient:
    return OAuthBearerClient(token(**changes))


GOOD: dict[str, Callable[[], SaslClient]] = {
    "PLAIN": plain,
    "SCRAM-SHA-256": scram,
    "SCRAM-SHA-512": lambda: scram(mechanism=SHA_512),
    "OAUTHBEARER": bearer,
}
BAD: dict[str, Callable[[], SaslClient]] = {
    "PLAIN": lambda: plain("guessed"),
    "SCRAM-SHA-256": lambda: scram("guessed"),
    "SCRAM-SHA-512": lambda: scram("guessed", mechanism=SHA_512),
    "OAUTHBEARER": lambda: bearer(exp=1),
}


@pytest.mark.parametrize("mechanism", GOOD)
async def test_each_mechanism_lets_the_user_in(world: World, mechanism: str) -> None:
    peer = world.connect()
    assert await world.log_in(peer, GOOD[mechanism]()) is None
    assert peer.principal == ALICE
    assert peer.is_authenticated
    assert peer.closes_after_reply is None
    assert (peer.expires_at is not None) == (mechanism == "OAUTHBEARER")
    assert world.authentication.successes == {mechanism: 1}
    (outcome,) = world.outcomes
    assert (outcome.user, outcome.mechanism, outcome.is_success) == ("alice", mechanism, True)


@pytest.mark.parametrize("mechanism", BAD)
async def test_each_mechanism_keeps_others_out(world: World, mechanism: str) -> None:
    peer = world.connect()
    error = await world.log_in(peer, BAD[mechanism]())
    assert error is not None
    assert not peer.is_authenticated
    assert peer.principal == ANONYMOUS
    for request in (METADATA, API_VERSIONS, HANDSHAKE, AUTHENTICATE):
        with pytest.raises(CloseConnection):
            world.authentication.gate(peer, request)
    assert world.authentication.failures == {mechanism: 1}
    (outcome,) = world.outcomes
    assert not outcome.is_success
    for secret in ("guessed", "secret"):
        assert secret not in f"{error} {outcome.reason}"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_client_is_not_told_whether_the_user_exists(world: World, mechanism: str) -> None:
    make = plain if mechanism == "PLAIN" else scram
    wrong = await world.log_in(world.connect(), make("wrong"))
    unknown = await world.log_in(world.connect(), make("wrong", "nobody"))
    assert wrong == unknown


async def test_scram_answers_unknown_users_as_it_answers_others(world: World) -> None:
    answers = []
    for user in ("alice", "nobody", "nobody"):
        peer = world.connect()
        world.authentication.choose(peer, "SCRAM-SHA-256", has_headers=True)
        first = f"n,,n={user},r=abc".encode()
        answers.append((await world.authentication.authenticate(peer, first)).message.decode())
    known, unknown, _ = ([part[:2] for part in answer.split(",")] for answer in answers)
    assert known == unknown
    salts = [answer.split(",")[1] for answer in answers]
    assert salts[1] == salts[2] != salts[0]
    assert len(salts[0]) == len(salts[1])
    assert all(answer.endswith(",i=4096") for answer in answers)


async def test_the_brokers_own_user_is_known_without_the_store(world: World) -> None:
    for client in (plain("between brokers", "broker"), scram("between brokers", "broker")):
        peer = world.connect()
        assert await world.log_in(peer, client) is None
        assert peer.principal == Principal("User", "broker")
    world.users.put("broker", SHA_256, password="changed")
    assert await world.log_in(world.connect(), scram("changed", "broker")) is not None
    assert await world.log_in(world.connect(), scram("between brokers", "broker")) is None


async def test_no_token_is_the_brokers_own_user(world: World) -> None:
    assert await world.log_in(world.connect(), bearer(sub="broker")) is not None


async def test_a_token_ends_the_session(world: World) -> None:
    peer = world.connect()
    world.authentication.choose(peer, "OAUTHBEARER", has_headers=True)
    answer = await world.authentication.authenticate(peer, bearer().first())
    assert 590_000 < answer.lifetime_ms <= 600_000
    assert peer.expires_at is not None
    left = peer.expires_at - asyncio.get_running_loop().time()
    assert 590 < left <= 600


async def test_a_session_of_ages_is_told_in_a_number_that_clients_can_count(world: World) -> None:
    peer = world.connect()
    world.authentication.choose(peer, "OAUTHBEARER", has_headers=True)
    answer = await world.authentication.authenticate(peer, bearer(exp=10**15).first())
    assert answer.lifetime_ms == 2**31 - 1


@pytest.mark.parametrize(
    "request_",
    [METADATA, AUTHENTICATE, memoryview(b""), memoryview(b"\x00"), memoryview(b"\xff" * 9)],
)
async def test_before_authentication_other_requests_close(
    world: World, request_: memoryview
) -> None:
    peer = world.connect()
    with pytest.raises(CloseConnection):
        world.authentication.gate(peer, request_)


async def test_before_authentication_versions_are_answered(world: World) -> None:
    peer = world.connect()
    assert world.authentication.gate(peer, API_VERSIONS) is None
    assert world.authentication.gate(peer, API_VERSIONS) is None
    assert world.authentication.gate(peer, HANDSHAKE) is None


async def test_a_mechanism_that_the_listener_does_not_have(tmp_path: Path) -> None:
    world = World(tmp_path, **{"listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-512"})
    peer = world.connect()
    assert world.authentication.mechanisms(peer) == ("SCRAM-SHA-512",)
    assert world.authentication.choose(peer, "PLAIN", has_headers=True) is Choice.UNKNOWN
    with pytest.raises(CloseConnection):
        world.authentication.gate(peer, HANDSHAKE)


async def test_a_listener_without_sasl_has_no_handshake(world: World) -> None:
    peer = Peer(1, "10.0.0.1", ListenerInfo.plaintext("127.0.0.1", 1))
    assert world.authentication.choose(peer, "PLAIN", has_headers=True) is Choice.TOO_SOON
    assert not world.authentication.is_authenticating(peer)
    assert world.authentication.gate(peer, METADATA) is None
    peer.expires_at = 0.0
    with pytest.raises(CloseConnection, match="certificate"):
        world.authentication.gate(peer, METADATA)


# Sessions that end, and again


async def test_a_session_that_is_over_answers_nothing_but_a_handshake(tmp_path: Path) -> None:
    world = World(tmp_path, **{"connections.max.reauth.ms": 60_000})
    peer = world.connect()
    await world.log_in(peer, scram())
    assert world.authentication.gate(peer, METADATA) is None
    peer.expires_at = 0.0
    with pytest.raises(CloseConnection, match="expired"):
        world.authentication.gate(peer, METADATA)
    assert world.authentication.expired == 1
    assert world.authentication.gate(peer, HANDSHAKE) is None
    assert await world.log_in(peer, scram()) is None
    assert world.authentication.gate(peer, METADATA) is None
    assert world.authentication.reauthentications == 1


def comes_to_the_gate(peer: Peer) -> bool:
    """What dispatch asks before each request."""
    return not peer.is_authenticated or peer.expires_at is not None


async def test_between_handshake_and_proof_nothing_else_is_answered(world: World) -> None:
    peer = world.connect()
    await world.log_in(peer, scram())
    assert not comes_to_the_gate(peer)
    world.authentication.choose(peer, "SCRAM-SHA-256", has_headers=True)
    assert comes_to_the_gate(peer)
    with pytest.raises(CloseConnection):
        world.authentication.gate(peer, METADATA)


async def test_who_authenticates_again_cannot_become_another(world: World) -> None:
    world.users.put("bob", SHA_256)
    peer = world.connect()
    await world.log_in(peer, scram())
    error = await world.log_in(peer, scram(user="bob"))
    assert error == "Cannot change principals during re-authentication"
    assert peer.principal == ALICE
    with pytest.raises(CloseConnection):
        world.authentication.gate(peer, METADATA)


async def test_who_authenticates_again_cannot_change_the_mechanism(world: World) -> None:
    peer = world.connect()
    await world.log_in(peer, scram())
    error = await world.log_in(peer, plain())
    assert error is not None
    assert "not supported for re-authentication" in error


async def test_what_was_granted_is_asked_again(world: World) -> None:
    peer = world.connect()
    for _ in range(2):  # to log in, and to do so again
        peer.grants.keep("what was asked", allowed=True)
        await world.log_in(peer, scram())
        assert not peer.grants.decisions


# Users that are removed


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_who_is_removed_is_disconnected(world: World, mechanism: str) -> None:
    peer = world.connect()
    await world.log_in(peer, GOOD[mechanism]())
    world.users.put("alice")
    assert world.closed == ["the user was removed"]
    with pytest.raises(CloseConnection, match="removed"):
        world.authentication.gate(peer, METADATA)
    assert await world.log_in(world.connect(), GOOD[mechanism]()) is not None


async def test_who_loses_one_mechanism_keeps_the_others(world: World) -> None:
    for make in GOOD.values():
        await world.log_in(world.connect(), make())
    world.users.put("alice", SHA_512)
    assert len(world.closed) == 1  # that of SCRAM-SHA-256


async def test_a_changed_password_leaves_sessions_and_counts_for_new_ones(world: World) -> None:
    peer = world.connect()
    for make in (plain, scram):
        assert await world.log_in(world.connect(), make()) is None
    assert await world.log_in(peer, scram()) is None
    world.users.put("alice", SHA_256, password="changed")
    assert world.closed == []
    for make in (plain, scram):
        assert await world.log_in(world.connect(), make()) is not None
        assert await world.log_in(world.connect(), make("changed")) is None
    assert await world.log_in(peer, scram()) is not None  # which authenticates again


async def test_who_has_left_is_not_closed(world: World) -> None:
    peer = world.connect()
    await world.log_in(peer, scram())
    for callback in peer.on_close:
        callback()
    world.users.put("alice")
    assert world.closed == []
    assert not world.authentication._followed


# Guesses


async def guess(world: World, host: str, user: str) -> str | None:
    """Log in with any proof; return the error."""
    peer = world.connect(host)
    world.authentication.choose(peer, "SCRAM-SHA-256", has_headers=True)
    answer = await world.authentication.authenticate(peer, f"n,,n={user},r=abc".encode())
    nonce = answer.message.split(b",")[0]
    proof = b"c=biws," + nonce + b",p=" + b64encode(bytes(32))
    return (await world.authentication.authenticate(peer, proof)).error


async def test_ten_thousand_guesses_hurt_nobody_who_is_known(tmp_path: Path) -> None:
    world = World(tmp_path, **{"connection.failed.authentication.max.per.ip": 1})
    for make in (plain, scram):
        await world.log_in(world.connect("10.0.0.1"), make())
    for _ in range(10_000):
        assert await guess(world, "10.0.0.1", "root") is not None
    assert world.authentication.attempts.refused > 9_000
    for make in (plain, scram):
        assert await world.log_in(world.connect("10.0.0.1"), make()) is None
        assert await world.log_in(world.connect("10.0.0.2"), make()) is None
    world.users.put("root", SHA_256)
    assert await world.log_in(world.connect("10.0.0.1"), scram("secret", "root")) is not None
    assert await world.log_in(world.connect("10.0.0.2"), scram("secret", "root")) is None


async def test_guesses_are_not_hashed_without_end(world: World) -> None:
    for number in range(1000):
        await world.log_in(world.connect(), plain(f"{number}"))
    assert world.authentication.passwords.checked <= 350


@pytest.mark.parametrize("make", [plain, scram])
async def test_guesses_at_a_user_from_its_own_address_are_limited(
    world: World, make: Callable[..., SaslClient]
) -> None:
    assert await world.log_in(world.connect(), make()) is None
    for number in range(10):
        assert await world.log_in(world.connect(), make(f"{number}")) is not None
    assert not world.closed
    assert await world.log_in(world.connect(), scram("secret")) is not None  # it is not looked at
    (told,) = world.closed  # which clients try again after, and after no refusal
    assert "as this user from this address" in told
    assert world.authentication.guesses.refused == 1
    assert await world.log_in(world.connect("10.0.0.2"), make()) is None
    assert await world.authentication.verify("alice", "secret", "10.0.0.2") is not None
    assert await world.authentication.verify("alice", "guessed", "10.0.0.1") is None
    assert world.authentication.guesses.refused == 2


async def test_guesses_are_limited_though_the_right_password_is_remembered(world: World) -> None:
    """Or who guesses from elsewhere would be told of the right one, however many were wrong."""
    assert await world.log_in(world.connect(), plain()) is None
    for number in range(10):
        assert await world.log_in(world.connect("10.0.0.2"), plain(f"{number}")) is not None
    assert await world.log_in(world.connect("10.0.0.2"), plain()) is not None
    assert world.authentication.guesses.refused == 1
    assert await world.authentication.verify("alice", "secret", "10.0.0.2") is None
    assert await world.log_in(world.connect(), plain()) is None
    assert world.authentication.passwords.checked == 11
    assert await world.authentication.verify("alice", "secret", "10.0.0.3") is not None


async def test_after_a_while_the_right_password_is_right_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    for number in range(10):
        await world.log_in(world.connect(), scram(f"{number}"))
    assert await world.log_in(world.connect(), scram()) is not None
    now += 1.0
    assert await world.log_in(world.connect(), scram()) is None


@pytest.mark.parametrize("make", [plain, scram])
async def test_guesses_at_the_same_time_are_limited_alike(
    world: World, make: Callable[..., SaslClient]
) -> None:
    guesses = [world.log_in(world.connect(), make(f"{number}")) for number in range(100)]
    assert None not in await asyncio.gather(*guesses)
    failed = [one for one in world.outcomes if "too many attempts" not in one.reason]
    assert len(failed) == 10


async def test_many_with_the_right_password_at_the_same_time_are_no_guesses(world: World) -> None:
    logins = [world.log_in(world.connect(), plain()) for _ in range(100)]
    assert set(await asyncio.gather(*logins)) == {None}
    assert not world.authentication.guesses.refused


async def test_what_fails_for_another_reason_is_no_guess(world: World) -> None:
    """As clients of librdkafka before 2.6.1 do, whose nonce is wrong."""
    for _ in range(20):
        peer = world.connect()
        world.authentication.choose(peer, "SCRAM-SHA-256", has_headers=True)
        await world.authentication.authenticate(peer, b"n,,n=alice,r=abc")
        proof = b"c=biws,r=abc,p=" + b64encode(bytes(32))
        assert (await world.authentication.authenticate(peer, proof)).error is not None
    assert await world.log_in(world.connect(), scram()) is None


async def test_an_unknown_user_is_limited_like_a_known_one(world: World) -> None:
    for user in ("alice", "nobody"):
        world.closed.clear()
        for number in range(11):
            await world.log_in(world.connect(), scram(f"{number}", user))
        assert len(world.closed) == 1


async def test_the_limit_can_be_turned_off(tmp_path: Path) -> None:
    world = World(tmp_path, **{"connection.failed.authentication.max.delay.ms": 0})
    for number in range(50):
        await world.log_in(world.connect(), scram(f"{number}"))
    assert await world.log_in(world.connect(), scram()) is None


async def test_who_comes_when_too_many_wait_is_disconnected_to_try_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "_MAX_WAITING", 0)
    assert await world.log_in(world.connect(), plain()) is not None
    assert world.closed == ["too many passwords wait to be checked"]
    assert await world.authentication.verify("alice", "secret", "10.0.0.1") is None
    assert await world.log_in(world.connect(), scram()) is None


async def test_a_failure_is_answered_after_a_delay(tmp_path: Path) -> None:
    world = World(tmp_path, **{"connection.failed.authentication.delay.ms": 50})
    before = asyncio.get_running_loop().time()
    assert await world.log_in(world.connect(), scram("wrong")) is not None
    assert asyncio.get_running_loop().time() - before >= 0.05


async def test_failures_are_logged_but_not_each_of_many(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        await world.log_in(world.connect(), plain("wrong password"))
    assert len(caplog.records) == 1
    assert "10.0.0.1" in caplog.text
    assert "wrong password" not in caplog.text


# What comes without a header, as before KIP-152


async def test_messages_without_headers(world: World) -> None:
    peer, client = world.connect(), scram()
    world.authentication.choose(peer, "SCRAM-SHA-256", has_headers=False)
    message: bytes | None = client.first()
    while message is not None:
        reply = world.authentication.gate(peer, memoryview(message))
        assert isinstance(reply, module.RawReply)
        answered = asyncio.Event()
        reply.on_done(answered.set)
        await answered.wait()
        assert reply.done()
        (part,) = reply.result()
        assert isinstance(part, bytes)
        assert int.from_bytes(part[:4], "big") == len(part) - 4
        message = client.answer(part[4:])
    assert peer.principal == ALICE
    assert world.authentication.gate(peer, METADATA) is None


async def test_a_failure_without_headers_closes(world: World) -> None:
    peer = world.connect()
    world.authentication.choose(peer, "PLAIN", has_headers=False)
    reply = world.authentication.gate(peer, memoryview(plain("wrong").first()))
    assert isinstance(reply, module.RawReply)
    answered = asyncio.Event()
    reply.on_done(answered.set)
    await answered.wait()
    with pytest.raises(CloseConnection):
        reply.result()
    assert not peer.is_authenticated


# Other protocols


def test_log_ins_that_were_decided_elsewhere_are_told_and_counted(world: World) -> None:
    authentication = world.authentication
    authentication.note("CN=alice", BY_CERTIFICATE, "10.0.0.1", "SSL")
    authentication.note("default", "AUTH", "10.0.0.2", reason="the password is wrong")
    assert world.outcomes == [
        Outcome("CN=alice", "TLS", "10.0.0.1", "SSL", is_success=True, reason=""),
        Outcome("default", "AUTH", "10.0.0.2", "", False, "the password is wrong"),
    ]
    assert (authentication.successes["TLS"], authentication.failures["AUTH"]) == (1, 1)


async def test_passwords_of_other_protocols(world: World) -> None:
    verify = world.authentication.verify
    assert await verify("alice", "secret", "10.0.0.1") == ALICE
    assert await verify("alice", "wrong", "10.0.0.1") is None
    assert await verify("nobody", "secret", "10.0.0.1") is None
    broker = await verify("broker", "between brokers", "10.0.0.1")
    assert broker == Principal("User", "broker")
    for number in range(400):
        await verify("alice", f"{number}", "10.0.0.3")
    assert await verify("root", "secret", "10.0.0.3") is None
    assert await verify("alice", "secret", "10.0.0.1") == ALICE


async def test_clients_of_other_protocols_are_told_when_their_user_is_removed(
    world: World,
) -> None:
    gone: list[str] = []
    release = world.authentication.track("alice", gone.append)
    world.users.put("alice", SHA_512)
    assert gone == []
    world.users.put("alice")
    assert len(gone) == 1
    release()
    release()
    assert not world.authentication._followed


async def test_a_defect_is_a_failure_that_counts(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    peer = world.connect()
    monkeypatch.setattr(world.authentication, "_check_password", lambda *_, **__: 1 / 0)
    assert await world.log_in(peer, plain()) is not None
    assert not peer.is_authenticated
    assert world.outcomes[-1].reason == "the broker has failed: ZeroDivisionError"
    assert "secret" not in caplog.text
    with pytest.raises(CloseConnection):
        world.authentication.gate(peer, AUTHENTICATE)


async def test_a_connection_that_does_not_close_keeps_no_other_open(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(reason: str) -> None:
        raise OSError(reason)

    gone: list[str] = []
    world.authentication.track("alice", fail)
    world.authentication.track("alice", gone.append)
    world.users.put("alice")
    assert gone == ["the user was removed"]
    assert "does not close" in caplog.text


@pytest.mark.parametrize(
    "missing", ["sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.expected.audience"]
)
def test_oauthbearer_is_not_served_where_any_token_would_do(tmp_path: Path, missing: str) -> None:
    with pytest.raises(ConfigError, match=r"listeners=SASL.*sasl\.oauthbearer"):
        World(tmp_path, **{missing: ""})
