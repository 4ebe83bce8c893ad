"""What a client is told of security: names, secrets elsewhere, and what makes no sense."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from qbus.errors import ConfigError
from qbus.security.client import ClientSecurity, check_properties
from qbus.security.secret import is_secret, masked

SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": "hunter2",
}


def test_librdkafkas_names() -> None:
    found = ClientSecurity.from_properties(
        {
            **SCRAM,
            "bootstrap.servers": "broker:9093",
            "ssl.ca.location": "/ca.pem",
            "ssl.certificate.location": "/client.pem",
            "ssl.key.location": "/client.key",
            "ssl.key.password": "hunter3",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert found == ClientSecurity(
        protocol="SASL_SSL",
        ssl_ca_location="/ca.pem",
        ssl_certificate_location="/client.pem",
        ssl_key_location="/client.key",
        ssl_key_password="hunter3",
        check_hostname=False,
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username="alice",
        sasl_password="hunter2",
    )


def test_host_names_are_checked_unless_told_otherwise() -> None:
    assert ClientSecurity.from_properties({"security.protocol": "SSL"}).check_hostname
    for off in ("none", ""):
        properties = {
            "security.protocol": "ssl",
            "ssl.endpoint.identification.algorithm": off,
        }
        assert not ClientSecurity.from_properties(properties).check_hostname


def test_the_names_of_javas_clients_that_mean_the_same() -> None:
    found = ClientSecurity.from_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="alice" password="hunter2";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "/client.pem",
            "ssl.protocol": "TLSv1.3",
            "ssl.enabled.protocols": "TLSv1.3",
        }
    )
    assert (found.sasl_username, found.sasl_password) == ("alice", "hunter2")
    assert found.ssl_enabled_protocols == ("TLSv1.3",)
    assert (found.ssl_ca_location, found.ssl_certificate_location) == ("/ca.pem", "/client.pem")


def test_a_secret_in_a_file_or_a_variable_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("first\n")
    monkeypatch.setenv("KEY_PASSWORD", "one")
    found = ClientSecurity.from_properties(
        {
            **SCRAM,
            "sasl.password": f"file:{tmp_path}/password",
            "ssl.key.password": "env:KEY_PASSWORD",
        }
    )
    assert (found.sasl_password, found.ssl_key_password) == ("first", "one")
    (tmp_path / "password").write_text("second")
    monkeypatch.setenv("KEY_PASSWORD", "two")
    later = found.refreshed()
    assert (later.sasl_password, later.ssl_key_password) == ("second", "two")
    assert later.sources == found.sources


def test_a_changed_copy_keeps_where_secrets_are(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("first")
    found = ClientSecurity.from_properties({**SCRAM, "sasl.password": f"file:{tmp_path}/password"})
    changed = found.changed(sasl_username="bob")
    (tmp_path / "password").write_text("second")
    assert (changed.sasl_username, changed.refreshed().sasl_password) == ("bob", "second")
    assert found.changed(sasl_password="own").refreshed().sasl_password == "own"


@pytest.mark.parametrize(
    ("secret", "message"),
    [("file:/no/such/file", "No such file"), ("env:QBUS_NO_SUCH", "environment variable QBUS_NO")],
)
def test_a_secret_that_is_not_there(secret: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClientSecurity.from_properties({**SCRAM, "sasl.password": secret})


def test_nothing_shows_a_secret() -> None:
    found = ClientSecurity.from_properties({**SCRAM, "ssl.key.password": "hunter3"})
    assert "hunter" not in f"{found!r} {found!s} {(found,)!r}"
    assert "sasl_password='***'" in repr(found)
    assert "alice" in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"security.protocol": "TLS"}, "is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ({"sasl.username": "alice", "sasl.password": "hunter2"}, "does not use it: use SASL_SSL"),
    ({"ssl.ca.location": "/ca.pem"}, "TLS is configured, but security.protocol=PLAINTEXT"),
    ({"security.protocol": "SASL_SSL"}, "needs sasl.mechanism, one of SCRAM-SHA-512"),
    ({**SCRAM, "sasl.mechanism": "GSSAPI"}, "not 'GSSAPI'"),
    ({**SCRAM, "sasl.password": ""}, "SCRAM-SHA-256 needs sasl.password"),
    ({**SCRAM, "sasl.username": ""}, "SCRAM-SHA-256 needs sasl.username"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "needs a token"),
    ({**SCRAM, "ssl.key.location": "/client.key"}, "needs ssl.certificate.location"),
    ({**SCRAM, "ssl.truststore.location": "/trust.jks"}, "/trust.jks: only PEM files are read"),
    ({**SCRAM, "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "one or both of TLSv1.2, TLSv1.3"),
    ({**SCRAM, "ssl.truststore.type": "JKS"}, "is PEM, not 'JKS'"),
    ({**SCRAM, "ssl.truststore.password": "hunter4"}, "keytool -exportcert"),
    ({**SCRAM, "enable.ssl.certificate.verification": "false"}, "always verified"),
    ({**SCRAM, "sasl.passwrd": "hunter4"}, r"sasl\.passwrd: .*did you mean sasl\.password\?"),
    ({**SCRAM, "ssl.endpoint.identification.algorithm": "off"}, "is https or none, not 'off'"),
]


@pytest.mark.parametrize(("properties", "message"), REFUSED)
def test_what_makes_no_sense(properties: dict[str, str], message: str) -> None:
    for check in (ClientSecurity.from_properties, check_properties):
        with pytest.raises(ConfigError, match=message) as caught:
            check(properties)
        assert "hunter" not in str(caught.value)


def test_properties_are_checked_without_reading_secrets() -> None:
    check_properties({**SCRAM, "sasl.password": "file:/not/on/this/machine"})
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    check_properties({**login, "sasl.jaas.config": "env:NOT_ON_THIS_MACHINE"})


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("sasl.password", True),
        ("ssl.key.password", True),
        ("sasl.jaas.config", True),
        ("sasl.oauthbearer.client.secret", True),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("sasl.username", False),
        ("ssl.key.location", False),
    ],
)
def test_which_properties_are_secrets(name: str, secret: bool) -> None:
    assert is_secret(name) is secret
    shown: dict[str, Any] = masked({name: "hunter2"})
    assert shown == {name: "***" if secret else "hunter2"}


def test_where_a_secret_stands_is_no_secret() -> None:
    assert masked({"sasl.password": "file:/etc/p"}) == {"sasl.password": "file:/etc/p"}
