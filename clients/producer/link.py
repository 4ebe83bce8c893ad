"""What the sender knows of one broker: the connection, and whether it may be used."""

import asyncio
from collections.abc import Iterator

from ..net.bootstrap import Address
from ..net.connection import Connection
from ..net.retry import backoff


class Link:
    """One broker. Times are in seconds of the monotonic clock."""

    def __init__(self, node_id: int, first_backoff: float, longest_backoff: float) -> None:
        self.node_id = node_id
        self.in_flight = 0
        self.connecting: asyncio.Task[None] | None = None
        self.muted_until = 0.0
        self.is_silent = False
        self._connection: Connection | None = None
        self._address: Address | None = None
        self._backoff = (first_backoff, longest_backoff)
        self._delays: Iterator[float] = backoff(*self._backoff)

    def connection(self, address: Address | None) -> Connection | None:
        """The open connection to the broker, if that is its address still."""
        if self._connection is None or self._address != address or not self._connection.is_open:
            return None
        return self._connection

    def connected(self, connection: Connection, address: Address) -> None:
        """It can be reached, and says which versions it speaks."""
        self._connection, self._address = connection, address
        self.is_silent = False

    def answered(self, now: float, throttle_ms: int) -> None:
        """It does what it is asked; but may ask to be left alone for a while (KIP-219)."""
        self._delays = backoff(*self._backoff)
        self.muted_until = max(self.muted_until, now + throttle_ms / 1000)

    def failed(self, now: float) -> None:
        """It cannot be reached, or does not answer: let it be for a moment."""
        self.is_silent = True
        self.muted_until = max(self.muted_until, now + next(self._delays))
