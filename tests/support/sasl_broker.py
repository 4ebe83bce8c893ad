"""A broker process whose only listener asks for SASL, and its administrator."""

import sys
from pathlib import Path

from .broker_process import BrokerProcess
from .raw_client import RawClient

ADMIN = "admin"
ADMIN_PASSWORD = "the admin's secret"


class SaslBroker(BrokerProcess):
    """``qbus broker`` with SASL_PLAINTEXT on 127.0.0.1; ``settings`` are of its configuration."""

    def __init__(self, data_dir: Path, **settings: object) -> None:
        stated = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.inter.broker.username": ADMIN,
            "sasl.inter.broker.password": ADMIN_PASSWORD,
            **settings,
        }
        options = [part for name, value in stated.items() for part in ("-o", f"{name}={value}")]
        super().__init__(data_dir, *options)

    def command(self) -> list[str]:
        """Return the command line of the broker."""
        command = [sys.executable, "-m", "qbus", "broker", "--data-dir", str(self.data_dir)]
        return [*command, "--listen", f"SASL_PLAINTEXT://{self.bootstrap}", *self.options]

    def serves(self) -> bool:
        """Whether the broker answers what it answers to anybody."""
        try:
            with RawClient(self.port, timeout=1.0) as raw:
                return raw.is_served()
        except OSError:
            return False
