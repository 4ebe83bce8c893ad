"""Servers with a listener for TLS and one for SASL beside the plain one, of Qbus and its peer."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perf.peers import kafka
from perf.servers import MEMORY
from qbus.security.scram import ScramMechanism
from qbus.security.trial_ca import TrialAuthority
from qbus.wire import ApiKey
from qbus.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.raw_client import RawClient
from tests.support.server_process import ServerProcess

USER = "perf"
PASSWORD = "a password for measurements"
MECHANISM = ScramMechanism.SHA_256
ITERATIONS = 4096
_SALT = b"salt of measurements"
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """Where the listeners beside the plain one are."""

    tls: int
    sasl: int

    @classmethod
    def free(cls) -> "Ports":
        """Ports that nobody uses."""
        return cls(free_port(), free_port())


@dataclass(frozen=True)
class Secured:
    """A running server, its other listeners, and what its clients trust."""

    server: ServerProcess
    ports: Ports
    ca: Path

    @property
    def name(self) -> str:
        """The server's name in figures."""
        return self.server.name

    @property
    def tls(self) -> str:
        """The address for clients with TLS."""
        return f"{_HOST}:{self.ports.tls}"

    @property
    def client(self) -> dict[str, str]:
        """What librdkafka needs to connect there."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.ca)}


class SecuredKafka(kafka.KafkaProcess):
    """A Kafka broker with these listeners."""

    def __init__(self, data_dir: Path, ports: Ports, keystore: Path) -> None:
        super().__init__(
            data_dir,
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(keystore),
                "ssl.client.auth": "none",
                "sasl.enabled.mechanisms": MECHANISM.mechanism,
                f"listener.name.sasl_plaintext.{MECHANISM.mechanism.lower()}.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                ),
            },
        )
        self._ports = ports

    def _write_settings(self) -> Path:
        """Add the listeners to those that there are."""
        path = super()._write_settings()
        more = f",SSL://{_HOST}:{self._ports.tls},SASL_PLAINTEXT://{_HOST}:{self._ports.sasl}"
        protocols = ",SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
        lines = []
        for line in path.read_text().splitlines():
            if line.startswith(("listeners=", "advertised.listeners=")):
                lines.append(line + more)
            elif line.startswith("listener.security.protocol.map="):
                lines.append(line + protocols)
            else:
                lines.append(line)
        path.write_text("\n".join(lines) + "\n")
        return path


@contextmanager
def both_secured() -> Iterator[list[Secured]]:
    """Qbus and Kafka, where it can run, both running; each knows the user of measurements."""
    with tempfile.TemporaryDirectory(prefix="qbus-perf-") as name:
        directory = Path(name)
        ca, keystore = _make_certificates(directory)
        servers = [_qbus(directory, ca, keystore)]
        if kafka.missing() is None:
            ports = Ports.free()
            servers.append(Secured(SecuredKafka(directory / "kafka", ports, keystore), ports, ca))
        try:
            for one in servers:
                one.server.start()
                _add_user(one.server)
            yield servers
        finally:
            for one in servers:
                if one.server.alive:
                    one.server.kill()


@dataclass(frozen=True)
class ProtectedQbus:
    """A running broker with a plain listener and one for SCRAM over TLS, at ``address``.

    ``client``: what clients need to connect there, as librdkafka names it.
    """

    broker: BrokerProcess
    address: str
    client: dict[str, str]


@contextmanager
def protected_qbus(directory: Path) -> Iterator[ProtectedQbus]:
    """Such a broker over ``directory``; it knows the user of measurements."""
    ca, keystore = _make_certificates(directory)
    address = f"{_HOST}:{free_port()}"
    options = [*MEMORY.qbus, "--listen", f"SASL_SSL://{address}", *_settings(keystore)]
    with BrokerProcess(directory / "qbus", *options) as broker:
        _add_user(broker)
        client = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(ca),
            "sasl.mechanism": MECHANISM.mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        yield ProtectedQbus(broker, address, client)


def _qbus(directory: Path, ca: Path, keystore: Path) -> Secured:
    ports = Ports.free()
    options = [*MEMORY.qbus, "--listen", f"SSL://{_HOST}:{ports.tls}"]
    options += ["--listen", f"SASL_PLAINTEXT://{_HOST}:{ports.sasl}", *_settings(keystore)]
    return Secured(BrokerProcess(directory / "qbus", *options), ports, ca)


def _settings(keystore: Path) -> list[str]:
    options: list[str] = []
    for setting in (
        f"ssl.keystore.location={keystore}",
        f"sasl.enabled.mechanisms={MECHANISM.mechanism}",
        "inter.broker.listener.name=PLAINTEXT",
        "authorizer.class.name=none",  # as Kafka's default
    ):
        options += ["-o", setting]
    return options


def _make_certificates(directory: Path) -> tuple[Path, Path]:
    """A certificate to trust, and a broker's certificates and key in one file."""
    ca, keystore = directory / "ca.pem", directory / "broker.pem"
    authority = TrialAuthority.create(ca, directory / "ca.key")
    certificates, key = authority.issue("broker", ["localhost", _HOST])
    keystore.write_bytes(certificates + key)
    keystore.chmod(0o600)
    return ca, keystore


def _add_user(server: ServerProcess) -> None:
    salted = MECHANISM.salted_password(PASSWORD.encode(), _SALT, ITERATIONS)
    user = ScramCredentialUpsertion(
        name=USER,
        mechanism=MECHANISM.number,
        iterations=ITERATIONS,
        salt=_SALT,
        salted_password=salted,
    )
    request = AlterUserScramCredentialsRequest(upsertions=[user])
    with RawClient(server.port) as client:
        answer = client.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    (result,) = answer.results
    if result.error_code:
        raise RuntimeError(f"the user cannot be made: {result.error_message}")
