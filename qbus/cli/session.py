"""From a command to the cluster: an event loop, a reachable broker, a client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from qbus.clients import Admin

from .bootstrap import addresses
from .failures import Failure

_CONNECT_TIMEOUT_S = 5.0

#: A person waits for each of these answers.
REQUEST_TIMEOUT_MS = 15_000


@asynccontextmanager
async def administration(bootstrap: str) -> AsyncIterator[Admin]:
    """An admin client, once a broker is known to listen."""
    await ensure_reachable(bootstrap)
    async with Admin(bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS) as admin:
        yield admin


async def ensure_reachable(bootstrap: str) -> None:
    """Return when one of the brokers named accepts a connection; a Failure says why none does.

    The clients retry a broken connection for as long as they may; here it is most often a broker
    that does not run, and the user should hear of it at once.
    """
    problems = []
    for host, port in addresses(bootstrap):
        problem = await _try_to_connect(host, port)
        if problem is None:
            return
        problems.append(f"{host}:{port}: {problem}")
    raise Failure(
        f"cannot reach a broker at {'; '.join(problems)}. Start one with"
        " 'qbus broker --data-dir DIR', or name another with --bootstrap HOST:PORT."
    )


async def _try_to_connect(host: str, port: int) -> str | None:
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"no answer in {_CONNECT_TIMEOUT_S:.0f} s"
    except ConnectionRefusedError:
        return "connection refused"
    except OSError as error:
        return error.strerror or str(error)
    writer.close()
    return None
