"""SaslHandshake and SaslAuthenticate over the wire, and the credentials of users."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.authorization import CLUSTER, Operation
from qbus.broker.broker import Broker
from qbus.broker.kafka.dispatch import Dispatcher
from qbus.broker.net.connection import CloseConnection
from qbus.broker.net.peer import ANONYMOUS, Peer, Principal
from qbus.broker.startup import running_broker
from qbus.clock import SystemClock
from qbus.config import Address, BrokerConfig, ListenerInfo
from qbus.config.address import SecurityProtocol
from qbus.errors import ErrorCode
from qbus.metadata import Set
from qbus.metadata.znodes import ConfigNode
from qbus.security.sasl import PlainClient, SaslClient
from qbus.security.scram import ScramClient, ScramCredential, ScramMechanism
from qbus.wire import API, ApiKey, Struct, decode_response, encode_request
from qbus.wire.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from qbus.wire.messages.describe_user_scram_credentials import UserName

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
SALT = b"0123456789abcdef"
LISTENER = ListenerInfo("SASL", SecurityProtocol.SASL_PLAINTEXT, Address("127.0.0.1", 9))
OPEN = ListenerInfo.plaintext("127.0.0.1", 10)


class Connection:
    """One client's connection, without a socket."""

    def __init__(self, broker: Broker, listener: ListenerInfo = LISTENER) -> None:
        self.broker = broker
        self.closed: list[str] = []
        self.peer = Peer(
            1,
            "10.0.0.1",
            listener,
            is_authenticated=not listener.protocol.is_sasl,
            close=self.closed.append,
        )
        self._dispatch = Dispatcher(broker, broker.access)

    async def ask(self, key: ApiKey, version: int, **request: Any) -> Any:
        message = API[key].request(**request)
        frame = b"".join(map(bytes, encode_request(key, version, 7, "test", message)))[4:]
        reply = self._dispatch(self.peer, memoryview(bytearray(frame)))
        assert reply is not None
        if not isinstance(reply, list):
            answered = asyncio.Event()
            reply.on_done(answered.set)
            await asyncio.wait_for(answered.wait(), 10)
            reply = reply.result()
        sent = b"".join(
            bytes(part) for part in reply if isinstance(part, bytes | bytearray | memoryview)
        )
        response: Struct = decode_response(key, version, memoryview(sent)[4:])[1]
        return response

    async def log_in(self, client: SaslClient, version: int = 2) -> Any:
        """Authenticate; return the last response."""
        answer = await self.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism=client.mechanism)
        assert answer.error_code == 0
        message: bytes | None = client.first()
        while message is not None:
            answer = await self.ask(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=message)
            if answer.error_code:
                return answer
            message = client.answer(answer.auth_bytes)
        return answer

    async def alter(self, *, set_: Any = (), remove: Any = ()) -> dict[str, int]:
        answer = await self.ask(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=list(remove), upsertions=list(set_)
        )
        return {result.user: result.error_code for result in answer.results}

    async def describe(self, *names: str) -> Any:
        users = [UserName(name=name) for name in names]
        return await self.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    config = BrokerConfig(
        {
            "log.dirs": str(tmp_path),
            "listeners": "SASL://127.0.0.1:9,PLAINTEXT://127.0.0.1:10",
            "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "SASL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.inter.broker.username": "admin",
            "sasl.inter.broker.password": "admin secret",
            "connection.failed.authentication.delay.ms": 0,
            "connections.max.reauth.ms": 3_600_000,
        }
    )
    async with running_broker(config, SystemClock(), [LISTENER, OPEN]) as broker:
        yield broker


@pytest.fixture
async def admin(broker: Broker) -> Connection:
    connection = Connection(broker)
    answer = await connection.log_in(ScramClient(SHA_512, "admin", "admin secret"))
    assert answer.error_code == 0
    return connection


def upsertion(
    name: str, password: str = "secret", *, mechanism: ScramMechanism = SHA_256, **changes: Any
) -> ScramCredentialUpsertion:
    values = {
        "name": name,
        "mechanism": mechanism.number,
        "iterations": 4096,
        "salt": SALT,
        "salted_password": mechanism.salted_password(password.encode(), SALT, 4096),
        **changes,
    }
    return ScramCredentialUpsertion(**values)


def deletion(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_each_version_of_the_messages(broker: Broker, version: int) -> None:
    connection = Connection(broker)
    await connection.ask(
        ApiKey.API_VERSIONS, 3, client_software_name="a", client_software_version="1"
    )
    answer = await connection.log_in(ScramClient(SHA_256, "admin", "admin secret"), version)
    assert answer.error_code == 0
    assert answer.session_lifetime_ms == (3_600_000 if version else 0)
    assert connection.peer.principal == Principal("User", "admin")
    metadata = await connection.ask(ApiKey.METADATA, 9, topics=None)
    assert metadata.brokers


async def test_versions_tell_of_the_apis(broker: Broker) -> None:
    answer = await Connection(broker).ask(
        ApiKey.API_VERSIONS, 3, client_software_name="a", client_software_version="1"
    )
    served = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert (served[17], served[36], served[50], served[51]) == ((0, 1), (0, 2), (0, 0), (0, 0))


async def test_a_wrong_password_is_told_in_kafkas_words(broker: Broker) -> None:
    for client, message in (
        (PlainClient("admin", "x"), "Authentication failed: Invalid username or password"),
        (
            ScramClient(SHA_256, "admin", "x"),
            "Authentication failed during authentication due to invalid credentials with SASL "
            "mechanism SCRAM-SHA-256",
        ),
    ):
        connection = Connection(broker)
        answer = await connection.log_in(client)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == message
        assert connection.peer.closes_after_reply
        assert connection.peer.principal == ANONYMOUS
        with pytest.raises(CloseConnection):
            await connection.ask(ApiKey.METADATA, 9, topics=None)


async def test_an_unknown_mechanism_is_told_which_there_are(broker: Broker) -> None:
    connection = Connection(broker)
    answer = await connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert connection.peer.closes_after_reply


async def test_no_other_api_before_authentication(broker: Broker) -> None:
    for key in set(API) - {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}:
        connection = Connection(broker)
        with pytest.raises(CloseConnection):
            await connection.ask(key, API[key].max_version)
        connection = Connection(broker)
        await connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        if key is not ApiKey.SASL_AUTHENTICATE:
            with pytest.raises(CloseConnection):
                await connection.ask(key, API[key].max_version)


async def test_a_listener_without_sasl(broker: Broker) -> None:
    connection = Connection(broker, OPEN)
    answer = await connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    answer = await connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0admin\0admin secret")
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert connection.peer.principal == ANONYMOUS
    assert connection.peer.closes_after_reply is None


async def test_authenticating_again(admin: Connection) -> None:
    assert (await admin.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"")).error_code == (
        ErrorCode.ILLEGAL_SASL_STATE
    )
    answer = await admin.log_in(ScramClient(SHA_512, "admin", "admin secret"))
    assert answer.error_code == 0
    assert answer.session_lifetime_ms == 3_600_000
    early = await admin.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-512")
    assert early.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await admin.ask(ApiKey.METADATA, 9, topics=None)).brokers


# Credentials of users


async def test_a_user_is_made_and_logs_in_and_is_removed(admin: Connection) -> None:
    broker = admin.broker
    assert await admin.alter(set_=[upsertion("alice")]) == {"alice": 0}
    connection = Connection(broker)
    assert (await connection.log_in(ScramClient(SHA_256, "alice", "secret"))).error_code == 0
    assert connection.peer.principal == Principal("User", "alice")
    assert (await Connection(broker).log_in(PlainClient("alice", "secret"))).error_code == 0
    wrong = await Connection(broker).log_in(ScramClient(SHA_512, "alice", "secret"))
    assert wrong.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await admin.alter(remove=[deletion("alice")]) == {"alice": 0}
    assert connection.closed
    for client in (ScramClient(SHA_256, "alice", "secret"), PlainClient("alice", "secret")):
        gone = await Connection(broker).log_in(client)
        assert gone.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_what_is_stored_is_kafkas_and_has_no_password(admin: Connection) -> None:
    await admin.alter(set_=[upsertion("al ice*~", mechanism=SHA_512)])
    node = await admin.broker.store.get("/config/users/al%20ice%2A%7E")
    assert node is not None
    config = ConfigNode.decode(node.data).config
    assert set(config) == {"SCRAM-SHA-512"}
    stored = ScramCredential.decode(config["SCRAM-SHA-512"])
    salted = SHA_512.salted_password(b"secret", SALT, 4096)
    assert stored == ScramCredential.from_salted_password(SHA_512, salted, SALT, 4096)
    assert salted not in node.data


@pytest.mark.parametrize("size", [1, 20, 31, 33, 64, 1024])
async def test_a_salted_password_has_any_length_as_in_kafka(admin: Connection, size: int) -> None:
    """HMAC takes a key of any length."""
    salted = bytes(range(256)) * 4
    item = upsertion("bob", salted_password=salted[:size])
    assert await admin.alter(set_=[item]) == {"bob": 0}
    node = await admin.broker.store.get(ConfigNode.user_path("bob"))
    assert node is not None
    stored = ScramCredential.decode(ConfigNode.decode(node.data).config["SCRAM-SHA-256"])
    assert stored == ScramCredential.from_salted_password(SHA_256, salted[:size], SALT, 4096)


async def test_one_mechanism_of_two_is_removed_and_quotas_stay(admin: Connection) -> None:
    await admin.alter(set_=[upsertion("alice")])
    await admin.alter(set_=[upsertion("alice", mechanism=SHA_512)])
    path = ConfigNode.user_path("alice")
    node = await admin.broker.store.get(path)
    assert node is not None
    config = {**ConfigNode.decode(node.data).config, "producer_byte_rate": "1000"}
    await admin.broker.store.transaction([Set(path, ConfigNode(config).encode(), node.version)])
    await admin.alter(remove=[deletion("alice")])
    node = await admin.broker.store.get(path)
    assert node is not None
    left = ConfigNode.decode(node.data).config
    assert set(left) == {"SCRAM-SHA-512", "producer_byte_rate"}


async def test_users_are_described_without_their_keys(admin: Connection) -> None:
    await admin.alter(set_=[upsertion("alice"), upsertion("bob", iterations=8192)])
    await admin.alter(set_=[upsertion("alice", mechanism=SHA_512)])
    found = {
        result.user: [(one.mechanism, one.iterations) for one in result.credential_infos]
        for result in (await admin.describe()).results
    }
    assert found == {"alice": [(1, 4096), (2, 4096)], "bob": [(1, 8192)]}
    asked = await admin.describe("bob", "carol", "alice", "alice", "")
    errors = {result.user: result.error_code for result in asked.results}
    assert errors == {
        "bob": 0,
        "carol": ErrorCode.RESOURCE_NOT_FOUND,
        "alice": ErrorCode.DUPLICATE_RESOURCE,
        "": ErrorCode.RESOURCE_NOT_FOUND,
    }


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (upsertion("eve", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("eve", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("eve", iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("eve", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("eve", salt=bytes(2000)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("eve", salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("eve", salted_password=bytes(1025)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("<default>"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("e" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (deletion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (deletion("eve"), ErrorCode.RESOURCE_NOT_FOUND),
        (deletion("eve", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion("eve", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
async def test_what_is_refused_changes_nothing_and_hinders_nobody(
    admin: Connection, item: Any, error: int
) -> None:
    other = upsertion("alice")
    if isinstance(item, ScramCredentialUpsertion):
        outcome = await admin.alter(set_=[item, other])
    else:
        outcome = await admin.alter(set_=[other], remove=[item])
    assert outcome == {item.name: error, "alice": 0}
    described = await admin.describe()
    assert [result.user for result in described.results] == ["alice"]


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize(
    "changes",
    [
        # Kafka's ScramControlManager takes these iterations, and salts and salted passwords of any
        # length; here both have at most 1,024 bytes. An empty salted password fails there, too.
        {"iterations": 4096},
        {"iterations": 16_384},
        {"salt": bytes(1)},
        {"salt": bytes(1024)},
        {"salted_password": bytes(1)},
        {"salted_password": bytes(31)},
        {"salted_password": bytes(65)},
        {"salted_password": bytes(1024)},
    ],
)
async def test_the_bounds_of_credentials_are_those_of_kafka(
    admin: Connection, mechanism: ScramMechanism, changes: dict[str, Any]
) -> None:
    wanted = upsertion("eve", mechanism=mechanism, **changes)

    assert await admin.alter(set_=[wanted]) == {"eve": 0}

    node = await admin.broker.store.get(ConfigNode.user_path("eve"))
    assert node is not None
    kept = ScramCredential.decode(ConfigNode.decode(node.data).config[mechanism.mechanism])
    assert (kept.iterations, kept.salt) == (wanted.iterations, bytes(wanted.salt))
    client_key = hmac.digest(bytes(wanted.salted_password), b"Client Key", mechanism.hash_name)
    assert kept.stored_key == hashlib.new(mechanism.hash_name, client_key).digest()


async def test_an_unknown_mechanism_number(admin: Connection) -> None:
    item = upsertion("eve")
    item.mechanism = 7
    assert await admin.alter(set_=[item]) == {"eve": ErrorCode.UNSUPPORTED_SASL_MECHANISM}


async def test_a_user_comes_once_in_a_request(admin: Connection) -> None:
    outcome = await admin.alter(
        set_=[upsertion("alice"), upsertion("bob"), upsertion("bob", mechanism=SHA_512)],
        remove=[deletion("alice")],
    )
    twice = ErrorCode.DUPLICATE_RESOURCE
    assert outcome == {"alice": twice, "bob": twice}
    assert (await admin.describe()).results == []


async def test_others_may_neither_describe_nor_alter(admin: Connection) -> None:
    await admin.alter(set_=[upsertion("alice")])
    connection = Connection(admin.broker)
    await connection.log_in(ScramClient(SHA_256, "alice", "secret"))
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    outcome = await connection.alter(set_=[upsertion("admin")], remove=[deletion("alice")])
    assert outcome == {"admin": denied, "alice": denied}
    answer = await connection.describe()
    assert answer.error_code == denied
    assert answer.results == []
    assert not admin.broker.access.allows(
        Principal("User", "alice"), "10.0.0.1", Operation.ALTER, CLUSTER
    )
