"""Clients that nobody here wrote get in over TLS with each mechanism, and nobody else does."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.security.matrix.rules import ANYTHING, Kind
from tests.security.matrix.world import Admin
from tests.security.people import CERTIFICATE, Someone
from tests.security.sasl_client import SaslClient
from tests.security.secrets import known_secret
from tests.security.secured import ADMIN, SecuredBroker
from tests.support.tools import skip_because_of

from .clients import ALL
from .clients.security import Security
from .records import Record

pytestmark = [pytest.mark.compat, pytest.mark.security]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", CERTIFICATE)
#: kcat's OAUTHBEARER makes unsigned tokens only. The librdkafka that distributions build it with
#: is older than 2.6.1, and its SCRAM returns a nonce that Apache Kafka 4 refuses as well.
_CANNOT = {("kcat", one) for one in ("OAUTHBEARER", "SCRAM-SHA-256", "SCRAM-SHA-512")}
#: Each client with one mechanism in every run, and with the others at night.
_EVERY_RUN = {
    ("confluent-kafka", "SCRAM-SHA-256"),
    ("confluent-kafka", "SCRAM-SHA-512"),
    ("confluent-kafka", CERTIFICATE),
    ("kafka-python", "SCRAM-SHA-512"),
    ("aiokafka", "SCRAM-SHA-256"),
    ("aiokafka", "OAUTHBEARER"),
    ("kcat", "PLAIN"),
    ("kafkajs", "SCRAM-SHA-512"),
    ("java-client", "OAUTHBEARER"),
}
_CLIENTS = [one for one in ALL if one.name != "java"]


def _pairs() -> Iterator[Any]:
    for client, mechanism in itertools.product(_CLIENTS, MECHANISMS):
        pair = (client.name, mechanism)
        if pair not in _CANNOT:
            marks = () if pair in _EVERY_RUN else (pytest.mark.nightly,)
            yield pytest.param(client, mechanism, id="-".join(pair), marks=marks)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker with every mechanism."""
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.fixture(scope="module")
def admin(broker: SecuredBroker) -> Iterator[Admin]:
    """One who may everything."""
    port = broker.ports["SASL_PLAINTEXT"]
    with SaslClient(port, ADMIN, broker.admin_password) as client:
        yield Admin(client)


@pytest.fixture
def someone(broker: SecuredBroker, admin: Admin) -> Someone:
    """A fresh user, whose client may use groups as it likes."""
    made = Someone(broker, admin)
    made.allow(Kind.GROUP, ANYTHING)
    return made


@pytest.fixture(scope="module")
def closed_topic(admin: Admin) -> str:
    """A topic that nobody may use."""
    admin.create_topics(["closed"])
    return "closed"


def _connected(client: Any, broker: SecuredBroker, security: Security) -> Any:
    skip_because_of(client.missing())
    return client(broker.bootstrap(security), security)


@pytest.mark.parametrize(("client", "mechanism"), list(_pairs()))
def test_a_client_does_what_it_may_and_no_more(
    client: Any, mechanism: str, broker: SecuredBroker, someone: Someone, closed_topic: str
) -> None:
    driver = _connected(client, broker, someone.security(mechanism))
    try:
        records = [Record(b"k", f"{number}".encode()) for number in range(3)]
        driver.produce(someone.topic, records)
        found = driver.consume(someone.topic, 0, 0, 3)
        assert [one.record.value for one in found] == [b"0", b"1", b"2"]
        found = driver.consume_group(someone.topic, someone.name, 3)
        assert [one.offset for one in found] == [0, 1, 2]
        # Clients say it in their own words, and some as an error of their own.
        with pytest.raises(Exception, match=r"(?i)authori[sz]"):
            driver.produce(closed_topic, records)
    finally:
        driver.close()


@pytest.mark.nightly
@pytest.mark.parametrize("client", _CLIENTS, ids=lambda one: one.name)
def test_a_wrong_password_lets_nobody_in(
    client: Any, broker: SecuredBroker, someone: Someone
) -> None:
    """Each client gives up at once, or in its own time, and says that it was refused."""
    skip_because_of(client.missing())
    wrong = someone.security("SCRAM-SHA-512", password=known_secret("wrong"))
    with pytest.raises(Exception, match=r"(?i)auth|timed? ?out|deadline|bootstrap"):
        _try_to_produce(client, broker, wrong, someone.topic)


def _try_to_produce(client: Any, broker: SecuredBroker, security: Security, topic: str) -> None:
    driver = client(broker.bootstrap(security), security)
    try:
        driver.produce(topic, [Record(b"k", b"v")])
    finally:
        driver.close()
