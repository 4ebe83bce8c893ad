"""How sessions with ZooKeeper are encrypted and authenticated, in Kafka's names."""

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Self

from qbus.errors import ConfigError
from qbus.security.client import ClientSecurity, read_properties
from qbus.security.secret import resolve_secret

ENVIRONMENT: Final = "QBUS_ZOOKEEPER_CONFIG"
"""The variable that names a file of properties, for all that is no broker."""

_PREFIX: Final = "zookeeper."
_DIGEST: Final = "zookeeper.digest"
_ENABLE: Final = "zookeeper.ssl.client.enable"
_KEYSTORE: Final = "zookeeper.ssl.keystore.location"
_PASSWORD: Final = "zookeeper.ssl.keystore.password"  # noqa: S105 - a name
_TRUSTSTORE: Final = "zookeeper.ssl.truststore.location"
_ALGORITHM: Final = "zookeeper.ssl.endpoint.identification.algorithm"
_NAMES: Final = (_DIGEST, _ENABLE, _KEYSTORE, _PASSWORD, _TRUSTSTORE, _ALGORITHM)


@dataclass(frozen=True, slots=True, repr=False)
class ZooKeeperSecurity:
    """What protects sessions with ZooKeeper. Its repr shows no secrets.

    digest: ``user:password`` of ZooKeeper's digest authentication; None: nobody in particular.
    uses_tls: whether connections are encrypted.
    truststore: PEM file of the authorities that sign the servers' certificates; None: those that
        the system trusts.
    keystore: PEM file of this client's certificate and key; None: it has none.
    key_password: what decrypts the key.
    check_hostname: whether a server's certificate must name the host that is connected to.
    """

    digest: str | None = None
    uses_tls: bool = False
    truststore: str | None = None
    keystore: str | None = None
    key_password: str | None = None
    check_hostname: bool = True

    def __repr__(self) -> str:
        return f"ZooKeeperSecurity(digest={self.digest is not None}, uses_tls={self.uses_tls})"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read ``zookeeper.ssl.client.enable`` and so on; secrets may be ``file:`` or ``env:``.

        Raises ConfigError: a name is unknown, or a value makes no sense. Names of other things are
        ignored.
        """
        known = {name: text for name, text in properties.items() if name.startswith(_PREFIX)}
        for name in known:
            if name not in _NAMES:
                close = get_close_matches(name, _NAMES, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise ConfigError(f"{name}: it is not known{hint}")
        digest, password = (
            resolve_secret(name, known[name]) if name in known else None
            for name in (_DIGEST, _PASSWORD)
        )
        return cls(
            digest,
            _boolean(_ENABLE, known.get(_ENABLE, "false")),
            known.get(_TRUSTSTORE),
            known.get(_KEYSTORE),
            password,
            checks_hostname(known.get(_ALGORITHM, "https")),
        )

    @classmethod
    def from_environment(cls) -> Self:
        """What the file says that ``QBUS_ZOOKEEPER_CONFIG`` names; without it, nothing is secured.

        Raises ConfigError.
        """
        path = os.environ.get(ENVIRONMENT)
        return cls() if not path else cls.from_properties(read_properties(path))

    @property
    def tls(self) -> Callable[[], ssl.SSLContext] | None:
        """Makes the context of a connection, whose files it reads; None: it is not encrypted."""
        return self.context if self.uses_tls else None

    def context(self) -> ssl.SSLContext:
        """The context of a connection. Raises ConfigError: its files cannot be used."""
        from qbus.security.tls import client_context  # noqa: PLC0415 - only where TLS is used

        return client_context(
            ClientSecurity(
                protocol="SSL",
                ssl_ca_location=self.truststore,
                ssl_certificate_location=self.keystore,
                ssl_key_password=self.key_password,
                check_hostname=self.check_hostname,
            )
        )


def checks_hostname(algorithm: str) -> bool:
    """Whether the name of an algorithm asks for a check of host names. Raises ConfigError."""
    text = algorithm.strip().lower()
    if text not in {"https", "none", ""}:
        raise ConfigError(f"{_ALGORITHM} is https or none, not {algorithm!r}")
    return text == "https"


def _boolean(name: str, text: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise ConfigError(f"{name} is true or false, not {text!r}")
    return text.strip().lower() == "true"
