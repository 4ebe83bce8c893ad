"""Addresses and listeners in configuration."""

import re
from collections.abc import Sequence
from enum import StrEnum
from ipaddress import ip_address
from typing import Final, NamedTuple

_EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with
_LISTENER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,60}")
_DISQUE: Final = {"DISQUE": "PLAINTEXT", "DISQUES": "SSL"}


class SecurityProtocol(StrEnum):
    """What a listener asks of its clients, by Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        """Whether connections are encrypted."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def is_sasl(self) -> bool:
        """Whether clients authenticate by SASL."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


class Address(NamedTuple):
    """Host and port; an empty host means all interfaces, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_every_interface(self) -> bool:
        """Whether it stands for all addresses of the machine."""
        return self.host in _EVERY_INTERFACE

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; a name other than ``localhost`` is not asked."""
        host = self.host.lower()
        if host == "localhost" or host.endswith(".localhost"):
            return True
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return False


class ListenerInfo(NamedTuple):
    """A listener: its name, what it asks of its clients, and its address."""

    name: str
    protocol: SecurityProtocol
    address: Address

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"

    @classmethod
    def plaintext(cls, host: str, port: int) -> "ListenerInfo":
        """Return a listener that asks nothing of its clients."""
        return cls("PLAINTEXT", SecurityProtocol.PLAINTEXT, Address(host, port))


def show_listeners(listeners: Sequence[ListenerInfo]) -> str:
    """Return the addresses for a log line; with their names, unless there is only PLAINTEXT."""
    if [one.name for one in listeners] == ["PLAINTEXT"]:
        return str(listeners[0].address)
    return ", ".join(map(str, listeners))


def parse_address(text: str) -> Address:
    """Parse ``host:port``, ``[ipv6]:port`` or ``PLAINTEXT://host:port``.

    Raises:
        ValueError: the text has another form; the message says which one is expected.
    """
    scheme, separator, rest = text.strip().rpartition("://")
    if separator and scheme.upper() != "PLAINTEXT":
        raise ValueError("a listener without encryption, as PLAINTEXT://host:port")
    host, colon, port = rest.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address in brackets, as [::1]:9092")
    if not (colon and port.isascii() and port.isdigit()):
        raise ValueError(f"host:port, with a port from 0 to 65535; {rest!r} has no port")
    if len(port) > 5 or int(port) > 65535:
        raise ValueError(f"a port from 0 to 65535, not {port[:20]}")
    if any(character.isspace() or character in "/[]@" for character in host):
        raise ValueError("host:port, with a host name or an address")
    return Address(host, int(port))


def parse_endpoint(text: str) -> tuple[str, Address]:
    """Parse ``NAME://host:port`` into name and address; without a name it is PLAINTEXT.

    Names are in capitals, as Kafka has them.

    Raises:
        ValueError: the text has another form; the message says which one is expected.
    """
    name, separator, rest = text.strip().rpartition("://")
    if not separator:
        return "PLAINTEXT", parse_address(rest)
    if name in {"http", "https"}:
        raise ValueError(f"the name of a listener before ://, as PLAINTEXT://{rest}")
    if not _LISTENER_NAME.fullmatch(name):
        raise ValueError("NAME://host:port, with a name of letters, digits, _ and -")
    return name.upper(), parse_address(rest)


def is_disque(name: str) -> bool:
    """Whether a listener of this name is for jobs, by Disque's protocol."""
    return name.upper() in _DISQUE


def parse_disque(text: str) -> ListenerInfo:
    """Parse ``DISQUE://host:port``, ``DISQUES://host:port`` (with TLS), or without a scheme.

    Raises:
        ValueError: the text has another form; the message says which one is expected.
    """
    scheme, separator, rest = text.strip().rpartition("://")
    name = scheme.upper() if separator else "DISQUE"
    if name not in _DISQUE:
        raise ValueError("a listener for jobs, as DISQUE://host:port, or DISQUES:// with TLS")
    return ListenerInfo(name, SecurityProtocol(_DISQUE[name]), parse_address(rest))


def parse_disque_address(text: str) -> Address:
    """Parse the address of a listener for jobs. Raises ValueError."""
    return parse_disque(text).address


def parse_page(text: str) -> tuple[Address, bool]:
    """Parse where a page is served: ``host:port``, ``http://host:port`` or ``https://host:port``.

    Returns the address, and whether it is encrypted.

    Raises:
        ValueError: the text has another form; the message says which one is expected.
    """
    scheme, separator, rest = text.strip().rpartition("://")
    if separator and scheme.lower() not in {"http", "https"}:
        raise ValueError("host:port, http://host:port or https://host:port")
    return parse_address(rest), scheme.lower() == "https"
