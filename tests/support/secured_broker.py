"""A Qbus broker as a process, with a listener for each way to show who one is."""

from pathlib import Path

from qbus.clients import ClientSecurity

from .broker_process import BrokerProcess
from .ports import free_ports
from .secure_broker import certificates

ROOT, ROOT_PASSWORD = "root", "root's own"


class SecuredBroker(BrokerProcess):
    """PLAINTEXT for readiness alone, SASL_SSL for every mechanism, MTLS for certificates.

    ``root`` is its super user. Rules are in force.
    """

    def __init__(
        self,
        data_dir: Path,
        *options: str,
        mechanisms: str = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    ) -> None:
        made = certificates()
        plain, self.sasl_port, self.mutual_port = free_ports(3)
        settings = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,MTLS:SSL",
            "inter.broker.listener.name": "SASL_SSL",
            "ssl.certificate.location": made.server,
            "ssl.key.location": made.server_key,
            "ssl.truststore.location": made.ca,
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": mechanisms,
            "sasl.inter.broker.username": ROOT,
            "sasl.inter.broker.password": ROOT_PASSWORD,
        }
        stated = [f"--option={key}={value}" for key, value in settings.items()]
        listen = [
            f"--listen=SASL_SSL://127.0.0.1:{self.sasl_port}",
            f"--listen=MTLS://127.0.0.1:{self.mutual_port}",
        ]
        more = [f"--option={option}" for option in options]
        super().__init__(data_dir, *listen, *stated, *more, port=plain)

    @property
    def sasl(self) -> str:
        """The address that asks for users."""
        return f"127.0.0.1:{self.sasl_port}"

    @property
    def mutual(self) -> str:
        """The address that asks for certificates."""
        return f"127.0.0.1:{self.mutual_port}"


def user(name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> ClientSecurity:
    """How a user connects; the password may be ``file:PATH``."""
    return ClientSecurity.of(
        protocol="SASL_SSL",
        ssl_ca_location=certificates().ca,
        sasl_mechanism=mechanism,
        sasl_username=name,
        sasl_password=password,
    )


def root() -> ClientSecurity:
    """How the super user connects."""
    return user(ROOT, ROOT_PASSWORD)


def with_certificate() -> ClientSecurity:
    """How ``User:CN=client`` connects."""
    made = certificates()
    return ClientSecurity(
        protocol="SSL",
        ssl_ca_location=made.ca,
        ssl_certificate_location=made.client,
        ssl_key_location=made.client_key,
    )
