"""Addresses in configuration: host and port."""

from typing import NamedTuple


class Address(NamedTuple):
    """Host and port; an empty host means all interfaces, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


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
    if not (colon and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65536):
        raise ValueError("host:port, with a port from 0 to 65535")
    if any(character.isspace() or character in "/[]@" for character in host):
        raise ValueError("host:port, with a host name or an address")
    return Address(host, int(port))


def parse_disque_address(text: str) -> Address:
    """Parse ``DISQUE://host:port``, or the same without a scheme. Raises ValueError."""
    scheme, separator, rest = text.strip().rpartition("://")
    if separator and scheme.upper() != "DISQUE":
        raise ValueError("a listener for jobs, as DISQUE://host:port")
    return parse_address(rest)
