"""Clients for commands, which report at once that no broker is reachable."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from qbus.cli.failures import Failure
from qbus.clients import Admin, ConnectionFailed
from qbus.clients.net.bootstrap import parse
from qbus.clients.net.dial import dial
from qbus.errors import ApiError

_CONNECT_TIMEOUT_S = 5.0

#: A person waits for each answer.
REQUEST_TIMEOUT_MS = 15_000


@asynccontextmanager
async def administration(bootstrap: str) -> AsyncIterator[Admin]:
    """An admin client of a cluster of which a broker accepts connections."""
    await ensure_reachable(bootstrap)
    async with Admin(bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS) as admin:
        yield admin


async def ensure_reachable(bootstrap: str) -> None:
    """Return when one of the named brokers accepts a connection; raise Failure if none does.

    Clients retry connections until their time-out. For a command the cause is most often a broker
    that does not run, which the user should learn at once.
    """
    problems = []
    try:
        for host, port in await parse(bootstrap).find(_CONNECT_TIMEOUT_S):
            try:
                (await dial(host, port, _CONNECT_TIMEOUT_S)).close()
            except ApiError as error:
                problems.append(str(error))
            else:
                return
    except ConnectionFailed as error:
        raise Failure(str(error)) from error
    raise Failure(
        f"cannot reach a broker at {'; '.join(problems)}. Start one with"
        " 'qbus broker --data-dir DIR', or name another with --bootstrap HOST:PORT."
    )
