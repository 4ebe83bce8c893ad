"""Clients that nobody here wrote log in by each mechanism, and cannot where they may not.

Without encryption, so that what is tested is SASL alone; with TLS they do it in tests/security.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors
import kafka.net.sasl.oauth
import pytest

from tests.support.jwt_issuer import AUDIENCE, public_jwk, rsa_key, token, write_key_set
from tests.support.sasl_broker import ADMIN, ADMIN_PASSWORD, SaslBroker

pytestmark = pytest.mark.compat

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "alice,=é", "pass,=wörd"
PLAIN_USER = "alice-é"  # for clients that do not escape names as RFC 5802 says
TOPIC = "t"

_ADMIN: Any = confluent_kafka.admin
_SCRAM = _ADMIN.ScramMechanism


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    path = tmp_path_factory.mktemp("sasl")
    keys = write_key_set(path / "keys.json", public_jwk(rsa_key(), "one"))
    settings = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": keys,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "super.users": f"User:{USER};User:{PLAIN_USER}",
        "connection.failed.authentication.max.delay.ms": 0,  # wrong passwords do not wait
    }
    with SaslBroker(path / "data", **settings) as running:
        admin = confluent_admin(running)
        wait(admin.create_topics([_ADMIN.NewTopic(TOPIC, 1)]))
        for user in (USER, PLAIN_USER):
            set_password(admin, user, PASSWORD)
        yield running


def confluent_admin(broker: SaslBroker) -> Any:
    return _ADMIN.AdminClient(
        {**confluent_settings(broker, "SCRAM-SHA-512", ADMIN, ADMIN_PASSWORD)}
    )


def wait(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(20)


def set_password(admin: Any, user: str, password: str) -> None:
    """Give a user a password by both mechanisms, each in a request of its own, as Kafka wants."""
    for mechanism in (_SCRAM.SCRAM_SHA_256, _SCRAM.SCRAM_SHA_512):
        info = _ADMIN.ScramCredentialInfo(mechanism, 4096)
        change = _ADMIN.UserScramCredentialUpsertion(user, info, password.encode(), None)
        wait(admin.alter_user_scram_credentials([change]))


def remove(admin: Any, user: str) -> None:
    for mechanism in (_SCRAM.SCRAM_SHA_256, _SCRAM.SCRAM_SHA_512):
        change = _ADMIN.UserScramCredentialDeletion(user, mechanism)
        wait(admin.alter_user_scram_credentials([change]))


# Each client, in the same words: logs in, writes a value, reads it back.


def confluent_settings(
    broker: SaslBroker, mechanism: str, user: str, password: str
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (token(sub=user), time.time() + 300)
    else:
        settings |= {"sasl.username": user, "sasl.password": password}
    return settings


def with_confluent(broker: SaslBroker, mechanism: str, user: str, password: str) -> bytes:
    failures: list[Any] = []
    settings = {
        **confluent_settings(broker, mechanism, user, password),
        "error_cb": failures.append,
        "message.timeout.ms": 4000,
    }
    producer = confluent_kafka.Producer(settings)
    producer.produce(TOPIC, b"confluent")
    deadline = time.monotonic() + 10
    while len(producer) and time.monotonic() < deadline and not failures:
        producer.poll(0.05)
    if any(one.code() == confluent_kafka.KafkaError._AUTHENTICATION for one in failures):
        raise PermissionError(failures)
    assert not len(producer), failures
    del settings["message.timeout.ms"]
    consumer = confluent_kafka.Consumer({**settings, "group.id": "g"})
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        message = consumer.poll(10)
        assert message is not None
        assert not message.error()
        return message.value() or b""
    finally:
        consumer.close()


class _KafkaPythonToken(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, user: str) -> None:
        super().__init__()
        self._user = user

    def token(self) -> str:
        return token(sub=self._user)


def with_kafka_python(broker: SaslBroker, mechanism: str, user: str, password: str) -> bytes:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "bootstrap_timeout_ms": 1500 if password != PASSWORD else 20_000,
    }
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _KafkaPythonToken(user)
    else:
        settings |= {"sasl_plain_username": user, "sasl_plain_password": password}
    try:
        producer = kafka.KafkaProducer(**settings)
    except kafka.errors.KafkaTimeoutError as error:
        raise PermissionError from error
    try:
        producer.send(TOPIC, b"kafka-python").get(10)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(**settings)
    try:
        place = kafka.TopicPartition(TOPIC, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        return bytes(next(consumer).value)
    finally:
        consumer.close()


class _AiokafkaToken(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, user: str) -> None:
        self._user = user

    async def token(self) -> str:
        return token(sub=self._user)


def with_aiokafka(broker: SaslBroker, mechanism: str, user: str, password: str) -> bytes:
    async def run() -> bytes:
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
        }
        if mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = _AiokafkaToken(user)
        else:
            settings |= {"sasl_plain_username": user, "sasl_plain_password": password}
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"aiokafka")
        except aiokafka.errors.KafkaConnectionError as error:
            raise PermissionError from error
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(TOPIC, auto_offset_reset="earliest", **settings)
        await consumer.start()
        try:
            message = await asyncio.wait_for(consumer.getone(), 10)
            return bytes(message.value)
        finally:
            await consumer.stop()

    return asyncio.run(run())


Client = Callable[[SaslBroker, str, str, str], bytes]
CLIENTS: tuple[Client, ...] = (with_confluent, with_kafka_python, with_aiokafka)

clients = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__[5:])


@clients
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism(broker: SaslBroker, client: Client, mechanism: str) -> None:
    user = PLAIN_USER if client is with_kafka_python else USER
    assert client(broker, mechanism, user, PASSWORD)


@clients
@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_wrong_password(broker: SaslBroker, client: Client, mechanism: str) -> None:
    with pytest.raises(PermissionError) as refused:
        client(broker, mechanism, PLAIN_USER, "wrong")
    del refused
    gc.collect()  # kafka-python leaves sockets behind when it cannot log in


def test_users_are_listed_and_removed(broker: SaslBroker) -> None:
    admin = confluent_admin(broker)
    set_password(admin, "bob", "secret")
    described = admin.describe_user_scram_credentials(["bob"])["bob"].result(20)
    infos = {info.mechanism: info.iterations for info in described.scram_credential_infos}
    assert infos == {_SCRAM.SCRAM_SHA_256: 4096, _SCRAM.SCRAM_SHA_512: 4096}
    everybody = admin.describe_user_scram_credentials().result(20)
    assert {USER, "bob"} <= set(everybody)
    remove(admin, "bob")
    gone = admin.describe_user_scram_credentials(["bob"])["bob"]
    with pytest.raises(confluent_kafka.KafkaException, match="RESOURCE_NOT_FOUND"):
        gone.result(20)


def test_a_removed_user_is_disconnected_while_it_writes(broker: SaslBroker) -> None:
    admin = confluent_admin(broker)
    set_password(admin, USER + "2", "secret")
    failures: list[Any] = []
    producer = confluent_kafka.Producer(
        {
            **confluent_settings(broker, "SCRAM-SHA-256", USER + "2", "secret"),
            "error_cb": failures.append,
        }
    )
    producer.list_topics(timeout=10)
    remove(admin, USER + "2")
    deadline = time.monotonic() + 10
    refused = confluent_kafka.KafkaError._AUTHENTICATION
    while not any(one.code() == refused for one in failures):
        assert time.monotonic() < deadline, failures
        producer.poll(0.1)


def test_a_short_session_is_renewed_while_a_client_reads(tmp_path: Path) -> None:
    with SaslBroker(tmp_path / "data", **{"connections.max.reauth.ms": 2000}) as broker:
        admin = confluent_admin(broker)
        wait(admin.create_topics([_ADMIN.NewTopic(TOPIC, 1)]))
        failures: list[Any] = []
        settings = {
            **confluent_settings(broker, "SCRAM-SHA-256", ADMIN, ADMIN_PASSWORD),
            "error_cb": failures.append,
        }
        producer = confluent_kafka.Producer(settings)

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(error)

        deadline, sent = time.monotonic() + 5, 0
        while time.monotonic() < deadline:
            producer.produce(TOPIC, b"x", on_delivery=delivered)
            sent += 1
            producer.poll(0.05)
        assert not producer.flush(10)
        assert not failures
        consumer = confluent_kafka.Consumer({**settings, "group.id": "g"})
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        assert len(consumer.consume(sent, 10)) == sent
        consumer.close()
