"""A broker that only speaks to those whom it knows: every mechanism over TLS, and certificates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from tests.compat.clients.security import Security
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port

from .authority import AUDIENCE, ISSUER, Authority, Issuer
from .secrets import in_files, known_secret

ADMIN: Final = "admin"
HOST: Final = "127.0.0.1"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LISTENERS: Final = ("SASL_SSL", "SSL", "SASL_PLAINTEXT")


class SecuredBroker:
    """One broker with listeners SASL_SSL, SSL (certificates required) and SASL_PLAINTEXT.

    The last is for raw clients. Its administrator is ``admin`` by password and ``CN=admin`` by
    certificate.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.authority = Authority(directory / "tls")
        self.issuer = Issuer(directory / "tokens")
        self.ports = {name: free_port() for name in LISTENERS}
        self.admin_password = known_secret("of-the-administrator")
        self.renew_certificate()
        options = {
            "ssl.certificate.location": str(self.authority.directory / "broker.pem"),
            "ssl.key.location": str(self.authority.directory / "broker.key"),
            "ssl.truststore.location": str(self.authority.ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{self.issuer.keys}",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            "sasl.inter.broker.username": ADMIN,
            "sasl.inter.broker.password": self.admin_password,
            "super.users": f"User:{ADMIN}",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        words = [word for name, port in self.ports.items() for word in _listen(name, port)]
        words += [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        self.server = BrokerProcess(directory / "data", *words)

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.server.__exit__(kind, *rest)
        if kind is None:
            # Passwords are kept as what proves them, and as nothing else.
            assert in_files(self.server.data_dir) == []

    def renew_certificate(self) -> None:
        """Give the broker a new certificate, in the files of the old one."""
        self.authority.certificate("broker", (HOST, "localhost"))

    def bootstrap(self, security: Security | None = None) -> str:
        """The address for clients of a kind."""
        return f"{HOST}:{self.ports[security.protocol if security else 'SASL_PLAINTEXT']}"

    def security(self, mechanism: str | None, user: str, password: str = "") -> Security:
        """How a user proves who it is; without a mechanism, by a certificate."""
        if mechanism is None:
            certificate, key = self.authority.certificate(user)
            return Security(self.authority.ca, certificate=certificate, key=key)
        if mechanism == "OAUTHBEARER":
            token = self.issuer.token_file(user)
            return Security(self.authority.ca, mechanism, user, token=token)
        return Security(self.authority.ca, mechanism, user, password)

    def administrator(self) -> Security:
        """Of one who may everything."""
        return self.security("SCRAM-SHA-256", ADMIN, self.admin_password)


def _listen(name: str, port: int) -> tuple[str, str]:
    return "--listen", f"{name}://{HOST}:{port}"
