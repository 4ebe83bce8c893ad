"""Clients for commands, which report at once that no broker is reachable."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from qbus.cli.contexts import is_kept, learn
from qbus.cli.failures import Failure
from qbus.cli.targets import Target
from qbus.clients import Admin, ConnectionFailed
from qbus.clients.net.bootstrap import parse
from qbus.clients.net.dial import dial
from qbus.errors import ApiError

if TYPE_CHECKING:
    from qbus.clients.net.cluster import Cluster

_CONNECT_TIMEOUT_S = 5.0

#: A person waits for each answer.
REQUEST_TIMEOUT_MS = 15_000


@asynccontextmanager
async def administration(target: Target) -> AsyncIterator[Admin]:
    """An admin client of a cluster of which a broker accepts connections."""
    await ensure_reachable(target)
    async with admin_of(target) as admin:
        yield admin


def admin_of(target: Target) -> Admin:
    """An admin client of a cluster."""
    return Admin(target.bootstrap, **target.options, request_timeout_ms=REQUEST_TIMEOUT_MS)


async def ensure_reachable(target: Target) -> None:
    """Return when one of the named brokers accepts a connection; raise Failure if none does.

    Clients retry connections until their time-out. For a command the cause is most often a broker
    that does not run, which the user should learn at once. A context learns which brokers the
    cluster has.
    """
    try:
        addresses = await parse(target.bootstrap, target.protocol).find(_CONNECT_TIMEOUT_S)
    except ConnectionFailed as error:
        raise Failure(str(error)) from error
    problems = await _dial_any(addresses)
    if problems:
        raise Failure(
            f"cannot reach a broker at {'; '.join(problems)}. Start one with"
            " 'qbus broker --data-dir DIR', or name another with --bootstrap HOST:PORT."
        )
    if is_kept(target.bootstrap):
        await _learn_brokers(target)


def check_read(cluster: "Cluster") -> None:
    """Raise Failure if something could not be read: "nothing came" does not mean "all is done"."""
    if missing := cluster.troubles.said():
        raise Failure(f"not everything could be read: still waiting for {', '.join(missing)}")


async def _dial_any(addresses: Sequence[tuple[str, int]]) -> list[str]:
    """Dial all at once; return nothing when the first accepts, or why each of them did not."""

    async def attempt(host: str, port: int) -> str:
        try:
            (await dial(host, port, _CONNECT_TIMEOUT_S)).close()
        except ApiError as error:
            return str(error)
        return ""

    attempts = [asyncio.ensure_future(attempt(*address)) for address in addresses]
    try:
        for outcome in asyncio.as_completed(attempts):
            if not await outcome:
                return []
        return [done.result() for done in attempts]
    finally:
        for unfinished in attempts:
            unfinished.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)


async def _learn_brokers(target: Target) -> None:
    from qbus.config import Address

    async with admin_of(target) as admin:
        nodes = (await admin.describe_cluster()).nodes
    learn(target.bootstrap, [str(Address(node.host, node.port)) for node in nodes])
