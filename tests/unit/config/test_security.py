"""Listeners and what protects them: what a configuration means, and what it may not be."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from qbus.config import (
    Address,
    BrokerConfig,
    ConfigSource,
    ListenerInfo,
    SecurityProtocol,
    load_broker_config,
    show_listeners,
)
from qbus.errors import ConfigError

CERTIFICATE = {"ssl.keystore.location": "/etc/qbus/broker.pem"}
MUTUAL = {
    **CERTIFICATE,
    "ssl.client.auth": "required",
    "ssl.truststore.location": "/etc/qbus/ca.pem",
}


def config(**settings: object) -> BrokerConfig:
    return BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})


def refusal(settings: Mapping[str, object]) -> str:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(settings)
    return str(refused.value)


# Listeners


def test_the_name_of_a_protocol_stands_for_itself() -> None:
    two = BrokerConfig(
        {
            "listeners": "127.0.0.1:1,sasl_ssl://127.0.0.1:2",
            "inter.broker.listener.name": "SASL_SSL",
            **CERTIFICATE,
        }
    )
    assert two.kafka_listeners == (
        ListenerInfo("PLAINTEXT", SecurityProtocol.PLAINTEXT, Address("127.0.0.1", 1)),
        ListenerInfo("SASL_SSL", SecurityProtocol.SASL_SSL, Address("127.0.0.1", 2)),
    )
    assert two.inter_broker_listener == "SASL_SSL"
    assert show_listeners(two.kafka_listeners) == (
        "PLAINTEXT://127.0.0.1:1, SASL_SSL://127.0.0.1:2"
    )
    assert show_listeners(two.kafka_listeners[:1]) == "127.0.0.1:1"


def test_other_names_need_a_protocol() -> None:
    named = config(
        listeners="inside://[::1]:1,OUTSIDE://localhost:2",
        listener_security_protocol_map="INSIDE:PLAINTEXT,outside:SASL_PLAINTEXT",
        inter_broker_listener_name="inside",
        advertised_listeners="OUTSIDE://bus.example:19092",
    )
    assert [(one.name, one.protocol) for one in named.kafka_listeners] == [
        ("INSIDE", "PLAINTEXT"),
        ("OUTSIDE", "SASL_PLAINTEXT"),
    ]
    assert named.inter_broker_listener == "INSIDE"
    assert named.advertised_addresses == {"OUTSIDE": Address("bus.example", 19092)}
    assert named.advertised_address is None  # of the first


@pytest.mark.parametrize(
    ("settings", "listener"),
    [
        ({}, "PLAINTEXT"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:1"}, "SASL_PLAINTEXT"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:1,127.0.0.1:2"}, "PLAINTEXT"),
        (
            {
                "listeners": "SASL_PLAINTEXT://127.0.0.1:1,127.0.0.1:2",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
            },
            "SASL_PLAINTEXT",
        ),
    ],
)
def test_which_listener_brokers_use(settings: dict[str, object], listener: str) -> None:
    assert BrokerConfig(settings).inter_broker_listener == listener


TWO = "A://127.0.0.1:1,B://127.0.0.1:2"
OF_TWO = "A:SASL_PLAINTEXT,B:SASL_PLAINTEXT"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"listeners": "CLIENTS://127.0.0.1:1"}, "the protocol of listener CLIENTS"),
        ({"listener.security.protocol.map": "A:TLS"}, "NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "DISQUE:SSL"}, "NAME:PROTOCOL"),
        ({"listeners": "A B://127.0.0.1:1"}, "NAME://host:port"),
        ({"advertised.listeners": "SSL://bus:1"}, "names that are in listeners"),
        ({"inter.broker.listener.name": "INSIDE"}, "one of the names in listeners: PLAINTEXT"),
        ({"security.inter.broker.protocol": "SSL"}, "one of the names in listeners: PLAINTEXT"),
        (
            {
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "not both",
        ),
        (
            {"listeners": TWO, "listener.security.protocol.map": OF_TWO},
            "which listener brokers reach one another by",
        ),
        ({"listeners": "SSL://127.0.0.1:1"}, "expected ssl.keystore.location"),
        (
            {"listeners": "SSL://127.0.0.1:1", **CERTIFICATE, "ssl.client.auth": "requested"},
            "expected ssl.truststore.location",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://127.0.0.1:1", "zookeeper.connect": "zk:2181"},
            "expected sasl.inter.broker.username and sasl.inter.broker.password",
        ),
        (
            {
                "listeners": "SASL_PLAINTEXT://127.0.0.1:1",
                "zookeeper.connect": "zk:2181",
                "sasl.inter.broker.username": "broker",
                "sasl.inter.broker.password": "secret",
                "sasl.enabled.mechanisms": "PLAIN",
            },
            "expected one of sasl.enabled.mechanisms of SASL_PLAINTEXT",
        ),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "not supported"),
        ({"sasl.oauthbearer.algorithms": "RS256,HS256"}, "shared key"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://issuer.example/"}, "https://host/path"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "TLS before 1.2 is broken"),
        ({"ssl.keystore.location": "store.jks"}, "keytool -importkeystore"),
        ({"ssl.keystore.type": "JKS"}, "expected PEM"),
        ({"ssl.principal.mapping.rules": "RULE:("}, "RULE:^CN="),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "Kerberos"),
        ({"sasl.enabled.mechanisms": ""}, "at least one"),
        ({"sasl.oauthbearer.algorithms": "none"}, "proves nothing"),
        ({"sasl.oauthbearer.algorithms": "HS256"}, "proves nothing"),
        ({"super.users": "alice"}, "User:alice;User:bob"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "10.0.0.1:100"),
        ({"authorizer.class.name": "com.example.Mine"}, "expected one of"),
    ],
)
def test_what_is_refused_at_the_start(settings: dict[str, object], why: str) -> None:
    assert why in refusal(settings)


# One listener's own settings


def test_what_is_stated_for_one_listener_goes_first() -> None:
    both = BrokerConfig(
        {
            "listeners": "SSL://127.0.0.1:1,SASL_SSL://127.0.0.1:2,127.0.0.1:3",
            **CERTIFICATE,
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.ssl.ssl.truststore.location": "/etc/qbus/ca.pem",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.max.connections": "5",
        }
    )
    ssl, sasl = both.for_listener("SSL"), both.for_listener("SASL_SSL")
    assert (ssl.ssl_client_auth, sasl.ssl_client_auth) == ("required", "none")
    assert ssl.ssl_keystore_location == sasl.ssl_keystore_location == "/etc/qbus/broker.pem"
    assert sasl.sasl_enabled_mechanisms == ("PLAIN",)
    assert (sasl.max_connections, ssl.max_connections) == (5, 2**31 - 1)
    entry = both.describe("listener.name.ssl.ssl.client.auth")
    assert (entry.text, entry.source) == ("required", ConfigSource.STATIC_BROKER)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("listener.name.ssl.num.partitions", "2", "unknown configuration"),
        ("listener.name.ssl", "2", "unknown configuration"),
        ("listener.name.ssl.ssl.client.auth", "maybe", "expected one of none, requested"),
    ],
)
def test_only_what_is_about_connections_can_be(name: str, value: str, why: str) -> None:
    assert why in refusal({name: value})


@pytest.mark.parametrize("name", ["SSL", "Ssl", "sssl", "plaintext"])
def test_what_is_stated_for_a_listener_that_there_is_not_is_refused(name: str) -> None:
    key = f"listener.name.{name}.ssl.client.auth"
    settings = {**CERTIFICATE, "listeners": "SSL://127.0.0.1:1", key: "required"}
    assert refusal(settings) == (
        f"{key}: expected the name of a listener in lower case, one of "
        "disque, disques, metrics, ssl"
    )


def test_a_secret_of_one_listener_is_a_secret() -> None:
    name = "listener.name.ssl.ssl.key.password"
    one = BrokerConfig({name: "hidden-7", "listeners": "SSL://127.0.0.1:1", **CERTIFICATE})
    assert one.describe(name).text is None
    assert one.for_listener("SSL").ssl_key_password == "hidden-7"


def test_secrets_may_stand_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("from-a-file\n")
    monkeypatch.setenv("THE_SECRET", "from-the-environment")
    loaded = load_broker_config(
        options=[
            f"ssl.key.password=file:{tmp_path}/secret",
            "sasl.inter.broker.password=env:THE_SECRET",
            "log.dirs=file:/not-a-secret",
        ]
    )
    assert loaded.ssl_key_password == "from-a-file"
    assert loaded.sasl_inter_broker_password == "from-the-environment"
    assert loaded.log_dirs == ("file:/not-a-secret",)


# Nobody who did not authenticate, from other machines


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": "127.1.2.3:9092"},
        {"listeners": "localhost:9092"},
        {"listeners": "[::1]:9092"},
        {"listeners": ":9092", "allow.insecure": "true"},
        {"listeners": "SASL_SSL://:9092", **CERTIFICATE},
        {"listeners": "SASL_PLAINTEXT://0.0.0.0:9092"},
        {"listeners": "SSL://bus.example:9092", **MUTUAL},
        {"listeners": "127.0.0.1:9092,DISQUE://:7711", "disque.requirepass": "x"},
        {"listeners": "SASL_SSL://:9092,DISQUES://:7711", **CERTIFICATE},
    ],
)
def test_what_may_listen(settings: dict[str, object]) -> None:
    BrokerConfig(settings)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"listeners": ":9092"}, "listeners=PLAINTEXT://:9092: "),
        ({"listeners": "0.0.0.0:9092"}, "listeners=PLAINTEXT://0.0.0.0:9092: "),
        ({"listeners": "[::]:9092"}, "listeners=PLAINTEXT://[::]:9092: "),
        ({"listeners": "192.168.0.7:9092"}, "listeners=PLAINTEXT://192.168.0.7:9092: "),
        ({"listeners": "bus.example:9092"}, "listeners=PLAINTEXT://bus.example:9092: "),
        ({"listeners": "SSL://:9092", **CERTIFICATE}, "listeners=SSL://:9092: "),
        (
            {"listeners": "SSL://:9092", **MUTUAL, "ssl.client.auth": "requested"},
            "listeners=SSL://:9092: ",
        ),
        (
            {
                "listeners": "IN://127.0.0.1:1,OUT://:2",
                "listener.security.protocol.map": "IN:SASL_PLAINTEXT,OUT:PLAINTEXT",
                "inter.broker.listener.name": "IN",
            },
            "listeners=OUT://:2: ",
        ),
        ({"disque.listen": ":7711"}, "DISQUE://:7711: "),
    ],
)
def test_what_would_be_open_to_other_machines_is_refused(
    settings: dict[str, object], what: str
) -> None:
    told = refusal(settings)
    assert what in told
    for remedy in ("127.0.0.1", "allow.insecure=true", "docs/security.md"):
        assert remedy in told


@pytest.mark.parametrize(
    ("settings", "authenticates"),
    [
        ({}, False),
        ({"listeners": "SSL://127.0.0.1:1", **CERTIFICATE}, False),
        ({"listeners": "SSL://127.0.0.1:1", **MUTUAL}, True),
        ({"listeners": "127.0.0.1:1,SASL_PLAINTEXT://127.0.0.1:2"}, True),
    ],
)
def test_whether_anybody_authenticates(settings: dict[str, object], authenticates: bool) -> None:
    assert BrokerConfig(settings).authenticates is authenticates


def test_a_list_of_revoked_certificates_needs_somebody_to_look_at_it() -> None:
    crl = {"ssl.crl.location": "crl.pem"}
    with_tls = {"listeners": "SSL://127.0.0.1:1", "inter.broker.listener.name": "SSL"}
    for stated in ({}, {**with_tls, **CERTIFICATE}):
        assert "ssl.client.auth=required" in refusal({**stated, **crl})
    BrokerConfig({**with_tls, **MUTUAL, **crl})
    one = {"listener.name.ssl.ssl.crl.location": "crl.pem"}
    assert "ssl.client.auth=required" in refusal({**with_tls, **CERTIFICATE, **one})
    BrokerConfig({**with_tls, **MUTUAL, **one})
