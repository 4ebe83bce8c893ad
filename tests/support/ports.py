"""Ports for servers under test."""

import random
import socket

# Below Linux's ephemeral range: while a server restarts, no client's outgoing connection can take
# its port, and no client can connect to itself.
_FIRST, _LAST = 20_000, 32_700


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on now."""
    for _ in range(100):
        port = random.randint(_FIRST, _LAST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")
