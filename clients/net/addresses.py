"""Where a cluster is found."""

from qbus.errors import ConfigError

DEFAULT_PORT = 9092


def parse_bootstrap(bootstrap: str) -> list[tuple[str, int]]:
    """The hosts and ports in ``host:port,...``; IPv6 addresses stand in brackets.

    Raises :class:`~qbus.errors.ConfigError`.
    """
    addresses = [_parse(part.strip()) for part in bootstrap.split(",") if part.strip()]
    if not addresses:
        raise ConfigError("bootstrap names no broker")
    return addresses


def _parse(address: str) -> tuple[str, int]:
    host, port = address, str(DEFAULT_PORT)
    if ":" in address.rpartition("]")[2]:
        host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{address!r}: write an IPv6 address in brackets")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536
    if not host or not is_port:
        raise ConfigError(f"{address!r} is not host:port")
    return host, int(port)
