"""The first brokers that a client asks: named ones, or those registered in ZooKeeper.

A client asks for them again whenever no broker that it knows answers (KIP-899).
"""

from collections.abc import Sequence
from typing import Protocol

from qbus.errors import ConfigError

from ..errors import ConnectionFailed

ZOOKEEPER = "zk://"

Address = tuple[str, int]


class Bootstrap(Protocol):
    """A source of broker addresses."""

    async def find(self, timeout: float) -> Sequence[Address]:
        """Return hosts and ports within ``timeout`` seconds; raise ConnectionFailed if there are
        none.
        """


class NamedBrokers:
    """``host:port,...``: the named brokers. Each connection resolves the names anew."""

    def __init__(self, text: str) -> None:
        self._addresses = parse_bootstrap(text)

    async def find(self, timeout: float) -> Sequence[Address]:  # noqa: ARG002 - nothing to wait for
        """Return the named addresses."""
        return self._addresses


class RegisteredBrokers:
    """``zk://host:port,.../chroot``: the brokers that are registered in ZooKeeper, at those of
    their listeners that speak the client's protocol.
    """

    def __init__(self, text: str, protocol: str) -> None:
        from qbus.metadata.zookeeper import ZooKeeperAddress  # noqa: PLC0415 - few need it

        try:
            ZooKeeperAddress.parse(text)
        except ValueError as error:
            raise ConfigError(f"{text}: expected {ZOOKEEPER}{error}") from error
        self._address = text
        self._protocol = protocol

    async def find(self, timeout: float) -> Sequence[Address]:
        """Return the live brokers.

        Raises :class:`ConnectionFailed` when ZooKeeper cannot be reached or knows no broker, and
        :class:`~qbus.errors.ConfigError` when its client library is not installed.
        """
        from qbus.metadata import StoreError  # noqa: PLC0415
        from qbus.metadata.zookeeper import find_brokers  # noqa: PLC0415

        try:
            found = await find_brokers(self._address, timeout, self._protocol)
        except StoreError as error:
            raise ConnectionFailed(f"{self._address}: {error}") from error
        if not found:
            raise ConnectionFailed(
                f"{self._address}: no broker is registered there now with a listener for"
                f" {self._protocol}"
            )
        return found


def parse(brokers: str | Sequence[str], protocol: str = "PLAINTEXT") -> Bootstrap:
    """Return the bootstrap that a text, or a list of addresses, describes.

    protocol: what the client speaks, such as SASL_SSL.

    Raises :class:`~qbus.errors.ConfigError`.
    """
    text = brokers if isinstance(brokers, str) else ",".join(brokers)
    if text.strip().startswith(ZOOKEEPER):
        return RegisteredBrokers(text.strip(), protocol)
    return NamedBrokers(text)


DEFAULT_PORT = 9092


def parse_bootstrap(bootstrap: str) -> list[tuple[str, int]]:
    """Parse ``host:port,...``; IPv6 addresses stand in brackets.

    Raises :class:`~qbus.errors.ConfigError`.
    """
    addresses = [_parse(part.strip()) for part in bootstrap.split(",") if part.strip()]
    if not addresses:
        raise ConfigError("bootstrap names no broker")
    return addresses


def _parse(address: str) -> tuple[str, int]:
    scheme, separator, rest = address.partition("://")
    if separator:
        raise ConfigError(f"{address!r}: write {rest.partition('/')[0]}, without {scheme}://")
    host, port = address, str(DEFAULT_PORT)
    if ":" in address.rpartition("]")[2]:
        host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{address!r}: write an IPv6 address in brackets")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536
    if not host or not is_port:
        raise ConfigError(f"{address!r} is not host:port with a port from 1 to 65535")
    return host, int(port)
