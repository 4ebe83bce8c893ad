"""The connections of a client: one for each address and connection group, opened on demand."""

import asyncio
import time
from enum import Enum
from typing import NamedTuple

from qbus.errors import ApiError
from qbus.security.connecting import OutgoingSecurity
from qbus.service.backoff import Backoff

from ..errors import ClientClosed, NotSafe
from .bootstrap import Address
from .connection import Connection
from .trouble import SILENT_S, TroubleLog


class ConnectionGroup(Enum):
    """What a connection is for.

    A broker answers the requests of a connection in order, so slow ones (long polls, rebalances)
    have connections of their own.
    """

    MAIN = "main"
    FETCH = "fetch"
    COORDINATOR = "coordinator"


ConnectionGroupKey = ConnectionGroup | tuple[ConnectionGroup, int]
"""A group, or one of several of its connections by number."""


class _Failing:
    """The back-off of an address that cannot be reached."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self.retry_at = 0.0

    def failed(self) -> None:
        self.retry_at = time.monotonic() + self._backoff.failed()


class _Key(NamedTuple):
    address: Address
    connection_group: ConnectionGroupKey


class ConnectionPool:
    """Opens one connection for all who wait for it, and backs off after failures.

    The delay doubles from ``reconnect_backoff`` to ``reconnect_backoff_max`` seconds, with jitter,
    until a connection to that address succeeds. ``connect_timeout`` is in seconds.
    """

    def __init__(
        self,
        client_id: str,
        *,
        connect_timeout: float,
        troubles: TroubleLog | None = None,
        reconnect_backoff: float = 0.05,
        reconnect_backoff_max: float = 1.0,
        security: OutgoingSecurity | None = None,
    ) -> None:
        """``security``: what protects the connections; None: nothing does."""
        self._client_id = client_id
        self._troubles = TroubleLog(client_id) if troubles is None else troubles
        self._connect_timeout = connect_timeout
        self._security = security
        self._backoff = (reconnect_backoff, reconnect_backoff_max)
        self._connections: dict[_Key, Connection] = {}
        self._opening: dict[_Key, asyncio.Task[Connection]] = {}
        self._failing: dict[Address, _Failing] = {}
        self._is_closed = False

    async def connect(self, address: Address, connection_group: ConnectionGroupKey) -> Connection:
        """Return an open connection; raise as ``Connection.open`` does, or
        :class:`ClientClosed`.
        """
        key = _Key(address, connection_group)
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            return connection
        if self._is_closed:
            raise ClientClosed
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = asyncio.create_task(self._open(key))
            opening.add_done_callback(self._opened)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled() and self._is_closed:
                raise ClientClosed from None
            raise

    def rank(self, address: Address) -> tuple[bool, bool, int]:
        """Return how bad a choice the address is: the lowest rank is asked first.

        First come addresses that did not fail, then those with a connection, then those with the
        least load.
        """
        failing = self._failing.get(address)
        connection = self._connections.get(_Key(address, ConnectionGroup.MAIN))
        is_open = connection is not None and connection.is_open
        return (
            failing is not None,
            not is_open,
            connection.load if connection is not None and is_open else 0,
        )

    def failed(self, address: Address, reason: object = "it is slow to answer") -> None:
        """Count a failure of the address: prefer others, and back off before reconnecting."""
        self._troubles.met(_broker(address), reason)
        self._back_off(address)

    def _back_off(self, address: Address) -> None:
        self._drop_stale()
        self._failing.setdefault(address, _Failing(Backoff(*self._backoff))).failed()

    def succeeded(self, address: Address) -> None:
        """Clear the failures of the address."""
        self._failing.pop(address, None)
        self._troubles.solved(_broker(address))

    async def close(self) -> None:
        """Close all connections and open no more."""
        self._is_closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        connections = list(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections))

    async def _open(self, key: _Key) -> Connection:
        (host, port), _ = key
        silent = asyncio.get_running_loop().call_later(
            SILENT_S, self._troubles.met, _broker(key.address), "it does not answer"
        )
        try:
            failing = self._failing.get(key.address)
            if failing is not None:
                await asyncio.sleep(failing.retry_at - time.monotonic())
            connection = await Connection.open(
                host, port, self._client_id, self._connect_timeout, self._security
            )
        except NotSafe:  # raised, and not waited for
            self._back_off(key.address)
            raise
        except ApiError as error:
            self.failed(key.address, str(error).removeprefix(f"{host}:{port}: "))
            raise
        else:
            self._connections[key] = connection
            self.succeeded(key.address)
            return connection
        finally:
            silent.cancel()
            del self._opening[key]

    @staticmethod
    def _opened(opening: asyncio.Task[Connection]) -> None:
        if not opening.cancelled():
            opening.exception()  # the waiters have it, if there are any

    def _drop_stale(self) -> None:
        """Drop closed connections, and failures so old that nobody asks that address any more."""
        now = time.monotonic()
        _, longest = self._backoff
        self._failing = {
            address: failing
            for address, failing in self._failing.items()
            if now < failing.retry_at + 10 * longest
        }
        self._connections = {
            key: connection for key, connection in self._connections.items() if connection.is_open
        }


def _broker(address: Address) -> str:
    host, port = address
    return f"broker {host}:{port}"
