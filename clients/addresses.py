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
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{address!r} is not host:port")
    return host, int(port)
