"""TLS on a connection that was dialled: the handshake, and what is said when it fails."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from qbus.errors import ApiError
from qbus.security.client import ClientSecurity
from qbus.security.connecting import explain_tls

from ..errors import ConnectionFailed, RequestTimedOut, TlsFailed

P = TypeVar("P", bound=asyncio.BaseProtocol)

_SHUTDOWN_S = 1.0
"""How long a closing connection waits for the other side to say that it has closed, too."""


async def start(
    protocol: Callable[[], P],
    sock: socket.socket,
    host: str,
    context: ssl.SSLContext | None,
    timeout: float,
) -> P:
    """Return a protocol connected over ``sock``; with a context, once the TLS handshake is done.

    host: what the certificate must name. ``timeout`` is in seconds. Raises OSError (of which
    ``ssl.SSLError`` is one), and ValueError for a host that no certificate can name.
    """
    loop = asyncio.get_running_loop()
    if context is None:
        _, made = await loop.create_connection(protocol, sock=sock)
        return made
    _, made = await loop.create_connection(
        protocol,
        sock=sock,
        ssl=context,
        server_hostname=_named(host),
        ssl_handshake_timeout=timeout,
        ssl_shutdown_timeout=_SHUTDOWN_S,
    )
    return made


def failure_of(name: str, error: Exception, security: ClientSecurity, timeout: float) -> ApiError:
    """Return what is raised for an error of :func:`start`."""
    if not security.uses_tls:
        return ConnectionFailed(f"{name}: {error}")
    if isinstance(error, ConnectionAbortedError):  # asyncio's time-out
        return RequestTimedOut(
            f"{name}: no TLS handshake in {timeout:g} s: it is overloaded, or its listener does not"
            " speak TLS (security.protocol is PLAINTEXT or SASL_PLAINTEXT there)"
        )
    return tls_failure(name, error, security)


def tls_failure(name: str, error: Exception, security: ClientSecurity) -> ApiError:
    """Return what is raised for an error of TLS."""
    has_certificate = security.ssl_certificate_location is not None
    trouble = explain_tls(error, has_certificate=has_certificate)
    kind = TlsFailed if trouble.is_final else ConnectionFailed
    return kind(f"{name}: {trouble.reason}")


def _named(host: str) -> str:
    """Return a host as certificates name it: without zone and final dot."""
    return host.partition("%")[0].removesuffix(".")
