"""TCP connections to the first address of a host that accepts one."""

import asyncio
import contextlib
import os
import socket
from typing import Any

from ..errors import ConnectionFailed, RequestTimedOut

_MAX_ADDRESSES = 16
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""TCP keep-alive, in seconds and probes: finds dead peers of connections that nobody waits on."""


async def dial(host: str, port: int, timeout: float) -> socket.socket:
    """Return a connected, non-blocking socket within ``timeout`` seconds.

    Tries the addresses of the host one after another, each for an equal share of the time. Raises
    :class:`ConnectionFailed`, or :class:`RequestTimedOut` if the last address does not answer.
    """
    failure: Exception = OSError(f"{host} has no address")
    try:
        async with asyncio.timeout(timeout):
            addresses = await _resolve(host, port)
            for family, address in addresses:
                try:
                    async with asyncio.timeout(timeout / len(addresses)):
                        return await _connect(family, address)
                except (OSError, OverflowError) as error:  # TimeoutError is an OSError
                    failure = error
    except TimeoutError as error:
        failure = error
    except (OSError, ValueError) as error:  # unknown host, or not a host name
        failure = error
    if isinstance(failure, TimeoutError):
        raise RequestTimedOut(f"{host}:{port} does not accept a connection") from None
    raise ConnectionFailed(f"{host}:{port}: {_reason(failure)}") from failure


def _reason(error: Exception) -> str:
    """Return the system's text for an error; asyncio replaces it by its own."""
    if isinstance(error, socket.gaierror):  # its number is not one of errno
        return error.strerror or str(error)
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error)


async def _resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # a name: resolved in a thread
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, *_, address in found[:_MAX_ADDRESSES]]


async def _connect(family: socket.AddressFamily, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
        _keep_alive(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def _keep_alive(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # keep-alive is optional
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
