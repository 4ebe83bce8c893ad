"""Which configurations restrict what, and who counts as a broker."""

from pathlib import Path

import pytest

from qbus.broker.authorization.setup import broker_principals, open_access
from qbus.broker.net.peer import Principal
from qbus.config import BrokerConfig
from qbus.errors import ConfigError
from qbus.security.acls import AclIndex, Operation, Resource, ResourceType
from tests.support.secure_broker import certificates

SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.inter.broker.username": "brokers",
    "sasl.inter.broker.password": "secret",
}


@pytest.mark.parametrize(
    ("static", "restricts"),
    [
        ({}, False),
        ({"authorizer.class.name": "acl"}, True),
        ({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, True),
        (SASL, True),
        ({**SASL, "authorizer.class.name": "none"}, False),
    ],
)
def test_rules_count_where_clients_authenticate_or_it_is_said(
    static: dict[str, object], restricts: bool
) -> None:
    access = open_access(BrokerConfig(static), AclIndex(), is_alone=True)
    assert (access.authorizer is not None) is restricts
    assert access.is_restricted is restricts
    access.close()


def test_the_brokers_own_user_is_a_super_user() -> None:
    rules = AclIndex()
    access = open_access(BrokerConfig(SASL), rules, is_alone=True)
    brokers = Principal("User", "brokers")
    assert access.is_broker(brokers)
    cluster = Resource(ResourceType.CLUSTER, "kafka-cluster")
    assert access.allows(brokers, "10.0.0.1", Operation.CLUSTER_ACTION, cluster)
    other = Principal("User", "others")
    assert not access.allows(other, "10.0.0.1", Operation.CLUSTER_ACTION, cluster)


def test_on_an_open_listener_nobody_is_a_broker() -> None:
    assert broker_principals(BrokerConfig({})) == frozenset()


def test_super_users_are_separated_by_semicolons() -> None:
    config = BrokerConfig({"super.users": " User:alice; User:CN=a,O=b ;"})
    assert config.super_user_principals == {"User:alice", "User:CN=a,O=b"}


@pytest.mark.parametrize("text", ["alice", "User:", ":alice", "User:alice;bob"])
def test_what_is_no_principal_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"super\.users"):
        BrokerConfig({"super.users": text})


def test_an_audit_log_that_cannot_be_written_keeps_a_broker_from_starting(tmp_path: Path) -> None:
    config = BrokerConfig({"qbus.audit.log.path": str(tmp_path / "missing" / "audit.log")})
    with pytest.raises(ConfigError, match=r"qbus\.audit\.log\.path.*No such file.*leave it empty"):
        open_access(config, AclIndex(), is_alone=True)


def test_an_audit_log_alone_restricts_nothing(tmp_path: Path) -> None:
    config = BrokerConfig({"qbus.audit.log.path": str(tmp_path / "audit.log")})
    access = open_access(config, AclIndex(), is_alone=True)
    alice = Principal("User", "alice")
    assert access.allows(alice, "10.0.0.1", Operation.READ, Resource(ResourceType.TOPIC, "orders"))
    access.close()


def test_the_user_of_brokers_is_one_whatever_they_speak_among_themselves() -> None:
    """It may everything by its password, also where jobs and metrics are served."""
    stated = {"sasl.inter.broker.username": "brokers", "sasl.inter.broker.password": "secret"}
    assert broker_principals(BrokerConfig(stated)) == {Principal("User", "brokers")}


def test_brokers_have_certificates_where_jobs_are_served(tmp_path: Path) -> None:
    made = certificates()
    stated = {
        "disque.listen": "DISQUES://127.0.0.1:0",
        "ssl.certificate.location": made.server,
        "ssl.key.location": made.server_key,
        "ssl.truststore.location": made.ca,
    }
    assert broker_principals(BrokerConfig(stated)) == frozenset()
    stated["listener.name.disques.ssl.client.auth"] = "required"
    assert broker_principals(BrokerConfig(stated)) == {Principal("User", "CN=server")}


JOBS_WITH_TLS = {
    "disque.listen": "DISQUES://127.0.0.1:0",
    "ssl.certificate.location": "server.pem",
    "ssl.key.location": "server.key",
    "ssl.truststore.location": "ca.pem",
}


@pytest.mark.parametrize(
    ("static", "restricts"),
    [
        ({"disque.listen": "127.0.0.1:0"}, False),
        ({"disque.listen": "127.0.0.1:0", "disque.requirepass": "one for all"}, False),
        ({"disque.listen": "127.0.0.1:0", "disque.sasl.enable": "true"}, True),
        ({"disque.sasl.enable": "true"}, False),
        (JOBS_WITH_TLS, False),
        ({**JOBS_WITH_TLS, "ssl.client.auth": "requested"}, False),
        ({**JOBS_WITH_TLS, "ssl.client.auth": "required"}, True),
        ({**JOBS_WITH_TLS, "listener.name.disques.ssl.client.auth": "required"}, True),
        (
            {
                **JOBS_WITH_TLS,
                "ssl.client.auth": "required",
                "listener.name.disques.ssl.client.auth": "none",
            },
            False,
        ),
    ],
)
def test_so_do_they_where_clients_of_jobs_do(static: dict[str, object], restricts: bool) -> None:
    config = BrokerConfig(static)
    assert config.jobs_authenticate is restricts
    assert config.enforces_acls(authenticates=config.jobs_authenticate) is restricts


def test_certificates_of_clients_of_jobs_turn_rules_on() -> None:
    made = certificates()
    stated = {
        **JOBS_WITH_TLS,
        "ssl.certificate.location": made.server,
        "ssl.key.location": made.server_key,
        "ssl.truststore.location": made.ca,
        "ssl.client.auth": "required",
    }
    access = open_access(BrokerConfig(stated), AclIndex(), is_alone=True)
    assert access.is_restricted
    access.close()


@pytest.mark.parametrize(
    ("static", "is_alone", "warns"),
    [
        ({"authorizer.class.name": "acl"}, False, True),
        ({"authorizer.class.name": "acl"}, True, False),
        ({"authorizer.class.name": "acl", "super.users": "User:ANONYMOUS"}, False, False),
        (SASL, False, False),
        ({}, False, False),
    ],
)
def test_brokers_that_could_not_replicate_are_said_at_the_start(
    static: dict[str, object], is_alone: bool, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    open_access(BrokerConfig(static), AclIndex(), is_alone=is_alone)
    assert ("they may not replicate from here" in caplog.text) is warns
