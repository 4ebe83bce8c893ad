"""Ports for servers under test."""

import random
import socket

# Below Linux's ephemeral range: while a server restarts, no client's outgoing connection can take
# its port, and no client can connect to itself.
_FIRST, _LAST = 20_000, 32_700


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on now."""
    return free_ports(1)[0]


def free_ports(count: int) -> range:
    """Likewise, so many in a row."""
    for _ in range(100):
        first = random.randint(_FIRST, _LAST)
        ports = range(first, first + count)
        if all(_is_free(port) for port in ports):
            return ports
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
