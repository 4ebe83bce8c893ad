"""What changes under running clients: certificates, passwords, users, rules, sessions."""

import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any, cast

import confluent_kafka as ck
import pytest

from qbus.errors import ErrorCode
from tests.compat.clients.confluent import Confluent
from tests.compat.clients.java_client import JavaClient
from tests.compat.clients.security import Security
from tests.compat.records import Record
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .authority import Authority
from .matrix.rules import Kind, Operation
from .matrix.world import Admin
from .people import CERTIFICATE, Someone
from .sasl_client import AuthenticationFailed, SaslClient
from .secured import ADMIN, HOST, SecuredBroker

pytestmark = pytest.mark.security

_SESSION_MS = 1_500
_SOON = 10.0
"""Seconds within which every change must have arrived; it mostly takes less than one."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker whose sessions are short."""
    settings = {"connections.max.reauth.ms": str(_SESSION_MS)}
    with SecuredBroker(tmp_path_factory.mktemp("running"), settings) as made:
        yield made


@pytest.fixture
def admin(broker: SecuredBroker) -> Admin:
    """One who may everything, for as long as a session lasts."""
    return cast("Admin", _FreshAdmin(broker))


class _FreshAdmin:
    """An administrator that connects for each thing that it does."""

    def __init__(self, broker: SecuredBroker) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        def do(*arguments: object) -> Any:
            port = self._broker.ports["SASL_PLAINTEXT"]
            with SaslClient(port, ADMIN, self._broker.admin_password) as client:
                return getattr(Admin(client), name)(*arguments)

        return do


@pytest.fixture
def someone(broker: SecuredBroker, admin: Admin) -> Someone:
    """A fresh user."""
    return Someone(broker, admin)


class Producing:
    """A librdkafka producer that stays connected, and what became of its records."""

    def __init__(self, broker: SecuredBroker, security: Security) -> None:
        self.errors: list[int] = []
        self._producer = ck.Producer(
            {
                "bootstrap.servers": broker.bootstrap(security),
                **security.librdkafka(),
                "linger.ms": 0,
                "message.timeout.ms": 5_000,
                "reconnect.backoff.ms": 50,
                "error_cb": lambda error: self.errors.append(error.code()),
            }
        )

    def send(self, topic: str) -> int:
        """Send a record; return 0, or the error."""
        results: list[int] = []
        try:
            self._producer.produce(
                topic,
                b"v",
                on_delivery=lambda error, _: results.append(error.code() if error else 0),
            )
        except ck.KafkaException as error:  # it knows that the topic is not for it
            self._producer.poll(0.2)
            return int(error.args[0].code())
        self._producer.flush(10)
        assert len(results) == 1
        return results[0]

    def send_for(self, topic: str, seconds: float) -> list[int]:
        """Send records for a while; return what became of each."""
        results, deadline = [], time.monotonic() + seconds
        while time.monotonic() < deadline:
            results.append(self.send(topic))
            time.sleep(0.02)
        return results


def _serial(broker: SecuredBroker, authority: Authority | None = None) -> str:
    """The number of the certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=str((authority or broker.authority).ca))
    with (
        socket.create_connection((HOST, broker.ports["SASL_SSL"]), 10) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connection,
    ):
        found = connection.getpeercert()
    assert found is not None
    return str(found["serialNumber"])


def test_a_new_certificate_is_shown_without_a_restart(
    broker: SecuredBroker, someone: Someone
) -> None:
    before = _serial(broker)
    running = Producing(broker, someone.security("SCRAM-SHA-256"))
    assert running.send(someone.topic) == 0
    broker.renew_certificate()
    wait_until(lambda: _serial(broker) != before, "the new certificate", _SOON)
    assert set(running.send_for(someone.topic, 1.0)) == {0}


@pytest.mark.nightly
def test_a_certificate_that_cannot_be_read_leaves_the_old_one(broker: SecuredBroker) -> None:
    before = _serial(broker)
    path = broker.authority.directory / "broker.pem"
    good = path.read_bytes()
    path.write_bytes(b"not a certificate")
    try:
        time.sleep(1.5)
        assert _serial(broker) == before
    finally:
        path.write_bytes(good)


@pytest.mark.nightly
def test_a_changed_password_ends_what_the_old_one_began(
    broker: SecuredBroker, someone: Someone
) -> None:
    old = someone.security("SCRAM-SHA-512")
    running = Producing(broker, old)
    assert running.send(someone.topic) == 0
    someone.change_password()
    fresh = Producing(broker, someone.security("SCRAM-SHA-512"))
    assert fresh.send(someone.topic) == 0
    with pytest.raises(AuthenticationFailed):
        SaslClient(broker.ports["SASL_PLAINTEXT"], someone.name, old.password)
    # The session that the old password began ends in time.
    wait_until(lambda: running.send(someone.topic) != 0, "the old session's end", _SOON)
    assert ck.KafkaError._AUTHENTICATION in running.errors


@pytest.mark.nightly
def test_a_removed_user_is_nobody(broker: SecuredBroker, someone: Someone) -> None:
    running = Producing(broker, someone.security("PLAIN"))
    assert running.send(someone.topic) == 0
    someone.remove()
    with pytest.raises(AuthenticationFailed) as refused:
        SaslClient(broker.ports["SASL_PLAINTEXT"], someone.name, someone.password)
    assert refused.value.error == ErrorCode.SASL_AUTHENTICATION_FAILED
    wait_until(lambda: running.send(someone.topic) != 0, "the session's end", _SOON)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", CERTIFICATE])
def test_a_right_that_is_taken_away_is_gone_at_once(
    mechanism: str, broker: SecuredBroker, someone: Someone
) -> None:
    running = Producing(broker, someone.security(mechanism))
    assert running.send(someone.topic) == 0
    someone.take_away(Kind.TOPIC, someone.topic)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    wait_until(lambda: running.send(someone.topic) == denied, "the refusal", _SOON)
    someone.allow(Kind.TOPIC, someone.topic, Operation.WRITE)
    wait_until(lambda: running.send(someone.topic) == 0, "the right", _SOON)


def test_a_consumer_gets_nothing_more_that_it_may_not_read(
    broker: SecuredBroker, someone: Someone
) -> None:
    """But for what a fetch brings that was let in before and waits."""
    security = someone.security("SCRAM-SHA-256")
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap(security),
            **security.librdkafka(),
            "group.id": someone.name,
            "fetch.wait.max.ms": 100,
        }
    )
    try:
        consumer.assign([ck.TopicPartition(someone.topic, 0, 0)])
        assert consumer.poll(1.0) is None
        someone.take_away(Kind.TOPIC, someone.topic)
        someone.allow(Kind.TOPIC, someone.topic, Operation.WRITE)
        time.sleep(0.5)
        producer = Producing(broker, security)
        wait_until(lambda: producer.send(someone.topic) == 0, "the right to write", _SOON)
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            assert message is None or message.error() is not None, "a record came"
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "mechanism",
    [
        "SCRAM-SHA-512",
        pytest.param("PLAIN", marks=pytest.mark.nightly),
        pytest.param("OAUTHBEARER", marks=pytest.mark.nightly),
    ],
)
def test_clients_authenticate_anew_without_losing_anything(
    mechanism: str, broker: SecuredBroker, someone: Someone
) -> None:
    running = Producing(broker, someone.security(mechanism))
    assert set(running.send_for(someone.topic, 2.5 * _SESSION_MS / 1000)) == {0}
    assert ck.KafkaError._AUTHENTICATION not in running.errors


@pytest.mark.nightly
def test_javas_client_authenticates_anew(broker: SecuredBroker, someone: Someone) -> None:
    skip_because_of(JavaClient.missing())
    security = someone.security("SCRAM-SHA-256")
    driver = JavaClient(broker.bootstrap(security), security)
    try:
        deadline = time.monotonic() + 2.5 * _SESSION_MS / 1000
        sent = 0
        while time.monotonic() < deadline:
            driver.produce(someone.topic, [Record(b"k", b"v")])
            sent += 1
        assert len(driver.consume(someone.topic, 0, 0, sent)) == sent
    finally:
        driver.close()


def test_a_session_that_is_over_does_nothing_more(broker: SecuredBroker, someone: Someone) -> None:
    port = broker.ports["SASL_PLAINTEXT"]
    with SaslClient(port, someone.name, someone.password) as client:
        assert client.is_served()
        time.sleep(_SESSION_MS / 1000 + 0.5)
        with pytest.raises((AssertionError, OSError)):
            client.is_served()


def test_a_session_is_renewed_by_the_same_user_alone(
    broker: SecuredBroker, admin: Admin, someone: Someone
) -> None:
    port, other = broker.ports["SASL_PLAINTEXT"], Someone(broker, admin)
    with SaslClient(port, someone.name, someone.password) as client:
        client.authenticate(someone.name, someone.password)
        assert client.is_served()
        with pytest.raises(AuthenticationFailed):
            client.authenticate(other.name, other.password)


@pytest.mark.nightly
def test_a_session_ends_with_its_token(broker: SecuredBroker, someone: Someone) -> None:
    """The token is shorter than what the broker would allow."""
    security = someone.security("OAUTHBEARER")
    assert security.token is not None
    security.token.write_text(broker.issuer.token(someone.name, seconds=1))
    driver = Producing(broker, security)
    assert driver.send(someone.topic) == 0
    wait_until(lambda: driver.send(someone.topic) != 0, "the end of the token", 45.0)


def test_what_describes_a_broker_shows_no_secret(broker: SecuredBroker) -> None:
    """Its configuration, as an administrator sees it; logs are searched after every test."""
    security = broker.administrator()
    driver = Confluent(broker.bootstrap(security), security)
    try:
        shown = driver.broker_config("1")
    finally:
        driver.close()
    assert shown["sasl.inter.broker.password"] is None
    assert broker.admin_password not in repr(shown)
