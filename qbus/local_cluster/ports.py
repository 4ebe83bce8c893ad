"""Free and used TCP ports of this machine."""

import socket
from collections.abc import Collection, Iterable

from qbus.local_cluster.layout import LocalClusterError
from qbus.local_cluster.settings import HOST

SPARK_MASTER_PORT = 7077
SPARK_PAGE_PORT = 8080


def need_free(ports: Iterable[int], option: str) -> None:
    """Raise LocalClusterError, naming ``option``, if one of ``ports`` is in use or invalid."""
    for port in ports:
        if not 0 < port < 1 << 16:
            raise LocalClusterError(f"{port} is not a port: choose another {option}")
        if not is_free(port):
            raise LocalClusterError(f"port {port} is in use: choose another {option}")


def usual_ports(first: int, count: int, taken: Collection[int]) -> tuple[int, ...]:
    """``first`` and the ports after it if all are free, otherwise any free ports."""
    usual = range(first, first + count)
    if all(port not in taken and is_free(port) for port in usual):
        return tuple(usual)
    return free_ports(count, taken)


def free_ports(count: int, taken: Collection[int] = ()) -> tuple[int, ...]:
    """``count`` different free ports, none of them in ``taken``."""
    found: set[int] = set()
    while len(found) < count:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port: int = probe.getsockname()[1]
            if port not in taken:
                found.add(port)
    return tuple(sorted(found))


def is_free(port: int) -> bool:
    """Whether a server can listen on a port."""
    with socket.socket() as probe:
        # As servers do: closed connections do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def listens(port: int) -> bool:
    """Whether a server accepts connections on a port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
