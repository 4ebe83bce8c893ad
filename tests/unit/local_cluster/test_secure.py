"""The secrets of a secure cluster: made once, for their owner alone, and used again."""

import stat
from pathlib import Path

import pytest

from qbus.config import load_broker_config
from qbus.local_cluster import ClusterSettings, Layout, secure
from qbus.local_cluster.nodes import commands
from qbus.local_cluster.plan import plan
from qbus.security.client import ClientSecurity, read_properties
from tests.support.ports import free_ports

SETTINGS = ClusterSettings(2, 9292, (9393,), secure=True)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def test_brokers_are_told_all_that_they_need_by_files(layout: Layout) -> None:
    secure.prepare(layout, SETTINGS)
    config = load_broker_config(
        layout.broker_config("broker-1"),
        ["log.dirs=/data", "zookeeper.connect=127.0.0.1:9393/qbus"],
        {"listeners": ("SASL_SSL://127.0.0.1:9292",)},
    )
    assert config.listeners == ("SASL_SSL://127.0.0.1:9292",)
    assert config.authorizer_class_name == "acl"
    assert config.super_users == "User:admin"
    assert config.qbus_audit_log_path == str(layout.audit_log("broker-1"))


def test_what_is_secret_is_for_the_owner_alone(layout: Layout) -> None:
    secure.prepare(layout, SETTINGS)
    assert stat.S_IMODE(layout.secrets.stat().st_mode) == 0o700
    for path in layout.secrets.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert b"PRIVATE" not in layout.ca_certificate.read_bytes()


def test_secrets_are_made_once(layout: Layout) -> None:
    secure.prepare(layout, SETTINGS)
    before = {path.name: path.read_bytes() for path in layout.secrets.iterdir()}
    secure.prepare(layout, ClusterSettings(3, 9292, (9393,), secure=True))
    after = {path.name: path.read_bytes() for path in layout.secrets.iterdir()}
    assert after.keys() - before.keys() == {"broker-3.pem", "broker-3.toml"}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"broker.properties"}, "which names the new broker"


def test_brokers_log_in_as_the_first_administrator(layout: Layout) -> None:
    secure.prepare(layout, SETTINGS)
    found = ClientSecurity.from_properties(read_properties(layout.broker_properties))
    assert (found.protocol, found.sasl_username) == ("SASL_SSL", "broker")
    assert found.ssl_ca_location == str(layout.ca_certificate)


def test_no_secret_is_on_a_command_line(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    from qbus.local_cluster import zookeeper

    monkeypatch.setattr(zookeeper, "command", lambda config: ["java", str(config)])
    found = commands(layout, SETTINGS)
    words = found["broker-1"]
    assert "SASL_SSL://127.0.0.1:9292" in words
    assert str(layout.broker_config("broker-1")) in words
    for path in layout.secrets.glob("*.password"):
        assert not any(path.read_text() in word for word in words)


def test_a_secure_cluster_stays_secure(layout: Layout) -> None:
    port = free_ports(3)[0]
    settings = plan(layout, nodes=1, base_port=port, secure=True)
    settings.write(layout.settings)
    assert plan(layout).secure
    assert ClusterSettings.read(layout.settings) == settings
