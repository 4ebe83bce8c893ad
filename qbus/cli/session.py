"""Clients for commands, which report at once that no broker is reachable."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

from qbus.cli.contexts import is_kept, learn
from qbus.cli.failures import Failure
from qbus.cli.targets import Target
from qbus.clients import Admin, ConnectionFailed
from qbus.clients.net.bootstrap import parse
from qbus.clients.net.dial import dial
from qbus.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from qbus.clients.net.cluster import Cluster

_CONNECT_TIMEOUT_S = 5.0

#: A person waits for each answer.
REQUEST_TIMEOUT_MS = 15_000


@asynccontextmanager
async def administration(target: Target) -> AsyncIterator[Admin]:
    """An admin client of a cluster of which a broker accepts connections.

    The error for a topic that does not exist names the topic with the most similar name.
    """
    await ensure_reachable(target)
    async with admin_of(target) as admin:
        try:
            yield admin
        except ApiError as error:
            if hint := await _similar_topic(admin, error):
                raise ApiError(error.code, f"{error}{hint}") from error
            raise


_NAMED_TOPIC = re.compile(r"\btopic '?([A-Za-z0-9._-]+)")


async def _similar_topic(admin: Admin, error: ApiError) -> str:
    """Return ``; did you mean NAME?`` for an unknown topic; empty if none is similar."""
    named = _NAMED_TOPIC.search(str(error))
    if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or named is None:
        return ""
    try:
        names = [topic.name for topic in await admin.list_topics(internal=True)]
    except ApiError:
        return ""
    return similar(named[1], names)


def similar(name: str, names: Iterable[str]) -> str:
    """Return ``; did you mean OTHER?`` with the most similar other name; empty if there is none."""
    close = get_close_matches(name, (other for other in names if other != name), n=1)
    return f"; did you mean {close[0]}?" if close else ""


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
