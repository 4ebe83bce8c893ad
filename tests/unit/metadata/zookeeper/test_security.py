"""How sessions with ZooKeeper are protected: settings, and what is secret."""

import ssl
from pathlib import Path

import pytest

from qbus.config import BrokerConfig
from qbus.errors import ConfigError
from qbus.metadata.store import Create, Op, Set
from qbus.metadata.znodes import is_sensitive
from qbus.metadata.zookeeper.security import ENVIRONMENT, ZooKeeperSecurity
from qbus.metadata.zookeeper.transactions import Multi, plan
from tests.support.secure_broker import certificates


class TestSettings:
    def test_nothing_is_protected_by_default(self) -> None:
        assert ZooKeeperSecurity.from_properties({}) == ZooKeeperSecurity()
        assert ZooKeeperSecurity().tls is None

    def test_kafkas_names(self, tmp_path: Path) -> None:
        (tmp_path / "digest").write_text("bus:secret\n")
        found = ZooKeeperSecurity.from_properties(
            {
                "zookeeper.digest": f"file:{tmp_path / 'digest'}",
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.truststore.location": "/ca.pem",
                "zookeeper.ssl.keystore.location": "/client.pem",
                "zookeeper.ssl.keystore.password": "changeit",
                "zookeeper.ssl.endpoint.identification.algorithm": "",
                "bootstrap.servers": "h:1",
            }
        )
        assert found == ZooKeeperSecurity(
            "bus:secret", True, "/ca.pem", "/client.pem", "changeit", check_hostname=False
        )
        for secret in ("bus:secret", "changeit"):
            assert secret not in repr(found)

    @pytest.mark.parametrize(
        ("name", "value", "why"),
        [
            ("zookeeper.ssl.client.enabled", "true", "did you mean zookeeper.ssl.client.enable"),
            ("zookeeper.ssl.client.enable", "yes", "true or false"),
            ("zookeeper.ssl.endpoint.identification.algorithm", "ldaps", "https or none"),
            ("zookeeper.digest", "env:QBUS_TEST_NOTHING", "no environment variable"),
        ],
    )
    def test_what_makes_no_sense(self, name: str, value: str, why: str) -> None:
        with pytest.raises(ConfigError, match=why):
            ZooKeeperSecurity.from_properties({name: value})

    def test_those_that_are_no_broker_read_a_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(ENVIRONMENT, raising=False)
        assert ZooKeeperSecurity.from_environment() == ZooKeeperSecurity()
        path = tmp_path / "zookeeper.properties"
        path.write_text("zookeeper.ssl.client.enable=true\n")
        monkeypatch.setenv(ENVIRONMENT, str(path))
        assert ZooKeeperSecurity.from_environment().uses_tls
        monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "none"))
        with pytest.raises(ConfigError, match="none"):
            ZooKeeperSecurity.from_environment()

    def test_a_broker_has_them_among_its_own(self) -> None:
        config = BrokerConfig(
            {
                "zookeeper.digest": "bus:secret",
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.truststore.location": "/ca.pem",
            }
        )
        expected = ZooKeeperSecurity("bus:secret", True, "/ca.pem")
        assert config.zookeeper_security == expected

    def test_java_keystores_are_refused_with_the_way_out(self) -> None:
        with pytest.raises(ConfigError, match="openssl pkcs12"):
            BrokerConfig({"zookeeper.ssl.truststore.location": "/etc/trust.jks"})

    def test_host_names_are_checked(self) -> None:
        ca = certificates().ca
        context = ZooKeeperSecurity(uses_tls=True, truststore=ca).context()
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED
        lax = ZooKeeperSecurity(uses_tls=True, truststore=ca, check_hostname=False).context()
        assert not lax.check_hostname
        assert lax.verify_mode is ssl.CERT_REQUIRED

    def test_files_that_cannot_be_read(self) -> None:
        with pytest.raises(ConfigError, match="/none"):
            ZooKeeperSecurity(uses_tls=True, truststore="/none").context()


class TestSecrets:
    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("/config/users", True),
            ("/config/users/alice", True),
            ("/config/users/alice/clients/x", True),
            ("/config/brokers/1", True),
            ("/cluster/secret", True),
            ("/cluster/id", False),
            ("/config", False),
            ("/config/usersx", False),
            ("/config/topics/t", False),
            ("/kafka-acl/Topic/t", False),
            ("/", False),
        ],
    )
    def test_are_in_these_nodes(self, path: str, expected: bool) -> None:
        assert is_sensitive(path) is expected

    def test_have_an_acl_of_their_own(self) -> None:
        operations: list[Op] = [
            Create("/config/users/a", b"x"),
            Create("/config/topics/t"),
            Set("/b", b""),
        ]
        steps = plan(operations, {"/config", "/config/users", "/config/topics"})
        body = Multi(steps, "/chroot", b"<all>", b"<secret>").serialize()
        found = [
            (step.operation.path, b"<secret>" if is_sensitive(step.operation.path) else b"<all>")
            for step in steps
            if isinstance(step.operation, Create)
        ]
        position = 0
        for path, acl in found:
            position = body.index(b"/chroot" + path.encode(), position)
            assert body.index(acl, position) == min(
                body.find(one, position)
                for one in (b"<all>", b"<secret>")
                if one in body[position:]
            )
        assert body.count(b"<secret>") == 2
        assert body.count(b"<all>") == 3
