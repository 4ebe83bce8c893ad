"""The listening socket for RESP, and the connections that came through it."""

import asyncio
import logging
import socket
from typing import Final, NamedTuple, cast

from qbus.config import Address

from ..net.memory_budget import MemoryBudget
from . import resp
from .connection import Client, Commands, Connection
from .errors import TOO_MANY_CLIENTS

_log = logging.getLogger(__name__)

_SWEEP_S: Final = 1.0
_DRAIN_STEP_S: Final = 0.01


class Limits(NamedTuple):
    """What the listener takes on. Times in seconds; ``idle_s`` 0: a client may be idle for ever."""

    max_command: int
    max_clients: int
    idle_s: float
    command_s: float
    stall_s: float


class DisqueListener:
    """Accepts clients on one address, from :meth:`start` until it is closed."""

    def __init__(
        self,
        sock: socket.socket,
        address: Address,
        commands: Commands,
        limits: Limits,
        budget: MemoryBudget,
    ) -> None:
        """``sock`` listens on ``address``. Make it in a running event loop."""
        self.address = address
        self.limits = limits
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._commands = commands
        self._budget = budget
        self._server: asyncio.Server | None = None
        self._connections: dict[int, Connection] = {}
        self._next_id = 0
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._closed_sent = 0
        self._closed_received = 0
        self.accepted = 0
        self.refused = 0

    async def start(self) -> None:
        """Let clients in."""
        self._server = await self._loop.create_server(self._accept, sock=self._sock)
        self._sweep_timer = self._loop.call_later(_SWEEP_S, self._sweep)

    def clients(self) -> list[Connection]:
        """The connections, in the order in which they came."""
        return list(self._connections.values())

    def find(self, client: Client) -> Connection | None:
        """The connection of a client."""
        return self._connections.get(client.id)

    @property
    def connections(self) -> int:
        """Number of connected clients."""
        return len(self._connections)

    @property
    def sent_bytes(self) -> int:
        """Bytes sent to clients since the start."""
        return self._closed_sent + sum(one.sent_bytes for one in self.clients())

    @property
    def received_bytes(self) -> int:
        """Bytes received from clients since the start."""
        return self._closed_received + sum(one.received_bytes for one in self.clients())

    def opened(self, connection: Connection) -> None:
        """See :class:`.connection.Owner`."""
        if len(self._connections) >= self.limits.max_clients:
            self.refused += 1
            _log.warning("too many clients: %s is turned away", connection.client.address)
            connection.turn_away(resp.error(TOO_MANY_CLIENTS))
            return
        self.accepted += 1
        self._connections[connection.client.id] = connection

    def closed(self, connection: Connection, reason: str) -> None:
        """See :class:`.connection.Owner`."""
        client = connection.client
        if self._connections.pop(client.id, None) is not None:
            self._closed_sent += connection.sent_bytes
            self._closed_received += connection.received_bytes
            _log.debug("client %d at %s is gone: %s", client.id, client.address, reason)

    async def drain(self, timeout_s: float) -> None:
        """Let nobody in, begin nothing more, and give what is under way ``timeout_s`` to finish."""
        self._close_address()
        for connection in self.clients():
            connection.drain()
        for _ in range(int(timeout_s / _DRAIN_STEP_S) + 1):
            if not self._connections:
                return
            await asyncio.sleep(_DRAIN_STEP_S)

    def close(self) -> None:
        """Close every connection, and the address if it was not drained."""
        self._close_address()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in self.clients():
            connection.close("the broker is shutting down")

    def _close_address(self) -> None:
        if self._server is not None:
            self._server.close()
        self._sock.close()

    def _accept(self) -> asyncio.Protocol:
        self._next_id += 1
        made = Connection(
            self._loop,
            self._next_id,
            self._commands,
            self._budget,
            self,
            self.limits.max_command,
        )
        return cast("asyncio.Protocol", made)

    def _sweep(self) -> None:
        """Close the connections whose clients have had their time."""
        now, limits = self._loop.time(), self.limits
        for connection in self.clients():
            reason = connection.overdue(
                now, idle_s=limits.idle_s, command_s=limits.command_s, stall_s=limits.stall_s
            )
            if reason is not None:
                connection.close(reason)
        self._sweep_timer = self._loop.call_later(_SWEEP_S, self._sweep)
