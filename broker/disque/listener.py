"""The listening sockets for RESP, and the connections that came through them."""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from qbus.config import Address
from qbus.service.descriptors import OUT_OF_DESCRIPTORS, SpareDescriptor, shortages

from ..authentication import BY_CERTIFICATE
from ..net.memory_budget import MemoryBudget
from ..net.peer import Principal
from . import resp
from .authentication import MAX_COMMAND, Authentication
from .connection import Client, Commands, Connection
from .errors import TOO_MANY_CLIENTS
from .stream import PlainStream

_log = logging.getLogger(__name__)

_SWEEP_S: Final = 1.0
_LINE_EVERY_S: Final = 10.0
_DRAIN_STEP_S: Final = 0.01
_NO_ROOM_S: Final = 0.05  # between two attempts to accept for want of descriptors
_ACCEPTED_AT_ONCE: Final = 64


class Limits(NamedTuple):
    """What the listener takes on. Times in seconds; ``idle_s`` 0: a client may be idle for ever.

    ``authentication_s``: how long a client may take to say who it is, where it has to.
    ``handshake_s``, ``max_handshakes``: of TLS. ``max_clients_per_address``: from one IP address.
    """

    max_command: int
    max_clients: int
    idle_s: float
    command_s: float
    stall_s: float
    authentication_s: float = 30.0
    handshake_s: float = 10.0
    max_handshakes: int = 1000
    max_clients_per_address: int = 1 << 62


class Identity(NamedTuple):
    """Who a client is by its certificate.

    ``valid_s``: for how many seconds from now on that certificate is valid.
    """

    principal: Principal
    valid_s: float


class Encryption(NamedTuple):
    """The TLS of an address.

    ``context`` makes that of a connection. ``identify`` tells who a client is by its certificate in
    DER; None: nobody, it is turned away.
    """

    context: Callable[[], ssl.SSLContext]
    identify: Callable[[bytes], Identity | None]


class Entrance(NamedTuple):
    """A socket that listens on an address; ``encryption``: None: what comes there is not."""

    sock: socket.socket
    address: Address
    encryption: Encryption | None = None


class DisqueListener:
    """Accepts clients on its addresses, from :meth:`start` until it is closed."""

    def __init__(
        self,
        entrances: Sequence[Entrance],
        commands: Commands,
        limits: Limits,
        budget: MemoryBudget,
        authentication: Authentication | None = None,
        admit: Callable[[str], float] = lambda _: 0.0,
        use: Callable[[Client, int, int], float] = lambda *_: 0.0,
    ) -> None:
        """``authentication``: what clients have to say of themselves; None: nothing.

        ``admit`` counts a connection from an address, and tells for how many seconds there have
        been too many of them. ``use`` counts bytes that a client sent and got, and tells for how
        many seconds it is to be left alone. Make it in a running event loop.
        """
        self.address = entrances[0].address
        self.limits = limits
        self._entrances = entrances
        self._loop = asyncio.get_running_loop()
        self._commands = commands
        self._budget = budget
        self._authentication = authentication or Authentication()
        self._admit = admit
        self._use = use
        self._by_address: Counter[str] = Counter()
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}  # for want of descriptors
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._connections: dict[int, Connection] = {}
        self._next_id = 0
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._closed_sent = 0
        self._closed_received = 0
        self._untold = 0
        self._next_line_at = 0.0
        self._spare = SpareDescriptor()
        self.accepted = 0
        self.refused = 0
        self.failed_handshakes = 0

    async def start(self) -> None:
        """Let clients in."""
        for entrance in self._entrances:
            encryption = entrance.encryption
            if encryption is None:
                self._open(entrance.sock)
            else:
                accepting = self._accept_encrypted(entrance.sock, encryption)
                self._accepting.append(self._loop.create_task(accepting))
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
    def unfinished_handshakes(self) -> int:
        """Number of connections whose TLS handshakes are not over."""
        return len(self._handshakes)

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
        if len(self._connections) >= self.limits.max_clients and not self._make_room():
            self.refused += 1
            self._tell(f"too many clients: {connection.client.address} is turned away")
            connection.turn_away(resp.error(TOO_MANY_CLIENTS))
            return
        host = connection.client.host
        if self._by_address[host] >= self.limits.max_clients_per_address or self._admit(host) > 0:
            self.refused += 1
            connection.turn_away(resp.error(TOO_MANY_CLIENTS))
            return
        self.accepted += 1
        self._connections[connection.client.id] = connection
        self._by_address[host] += 1
        certificate = connection.certificate()
        if certificate is not None and not self._identify(connection.client, certificate):
            connection.close("nobody follows from its certificate: see ssl.principal.mapping.rules")
            return
        if self._is_unknown(connection.client):
            connection.limit(min(self.limits.max_command, MAX_COMMAND))

    def closed(self, connection: Connection, reason: str) -> None:
        """See :class:`.connection.Owner`."""
        client = connection.client
        self._authentication.forget(client)
        if self._connections.pop(client.id, None) is not None:
            self._closed_sent += connection.sent_bytes
            self._closed_received += connection.received_bytes
            self._by_address[client.host] -= 1
            if not self._by_address[client.host]:
                del self._by_address[client.host]
            _log.debug("client %d at %s is gone: %s", client.id, client.address, reason)

    def used(self, client: Client, received: int, sent: int) -> float:
        """See :class:`.connection.Owner`."""
        return self._use(client, received, sent)

    def _identify(self, client: Client, certificate: bytes) -> bool:
        """Take a client for whom its certificate says; whether it says anybody."""
        for entrance in self._entrances:
            if entrance.encryption is not None:
                identity = entrance.encryption.identify(certificate)
                if identity is not None:
                    client.principal = identity.principal
                    self._authentication.note(
                        identity.principal.name, BY_CERTIFICATE, client.host, ""
                    )
                    client.is_authenticated = True
                    client.expires_at = self._loop.time() + identity.valid_s
                    return True
        return False

    def _make_room(self) -> bool:
        """Close the oldest client that has not said who it is; whether there is one."""
        for connection in self._connections.values():
            if self._is_unknown(connection.client):
                self.refused += 1
                connection.close("others want in, and it has not authenticated")
                return True
        return False

    def _is_unknown(self, client: Client) -> bool:
        """Whether a client has not said yet who it is, and has to."""
        return self._authentication.is_required and not client.is_authenticated

    async def drain(self, timeout_s: float) -> None:
        """Let nobody in, begin nothing more, and give what is under way ``timeout_s`` to finish."""
        self._close_addresses()
        for connection in self.clients():
            connection.drain()
        for _ in range(int(timeout_s / _DRAIN_STEP_S) + 1):
            if not self._connections:
                return
            await asyncio.sleep(_DRAIN_STEP_S)

    def close(self) -> None:
        """Close every connection, and the addresses if they were not drained."""
        self._close_addresses()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._spare.close()
        for connection in self.clients():
            connection.close("the broker is shutting down")

    def _close_addresses(self) -> None:
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
        for task in [*self._accepting, *self._handshakes]:
            task.cancel()
        for entrance in self._entrances:
            if entrance.sock.fileno() >= 0:
                self._loop.remove_reader(entrance.sock)
                entrance.sock.close()

    def _connection(self) -> Connection:
        self._next_id += 1
        return Connection(
            self._loop,
            self._next_id,
            self._commands,
            self._budget,
            self,
            self.limits.max_command,
        )

    # Without TLS

    def _open(self, sock: socket.socket) -> None:
        """Accept those who connect."""
        self._pauses.pop(sock, None)
        sock.setblocking(False)
        self._loop.add_reader(sock, self._accept_some, sock)

    def _accept_some(self, sock: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if sock.fileno() >= 0:
                    self._cannot_accept(sock, error)
                    self._loop.remove_reader(sock)
                    self._pauses[sock] = self._loop.call_later(_NO_ROOM_S, self._open, sock)
                return
            try:
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:  # it is gone already
                _log.debug("a client is not let in: %s", error)
                accepted.close()
                continue
            PlainStream(self._loop, accepted, address, self._connection()).start()

    def _cannot_accept(self, sock: socket.socket, error: OSError) -> None:
        """Turn away those who wait, if there is no descriptor for them."""
        if error.errno in OUT_OF_DESCRIPTORS:
            self.refused += self._spare.turn_away(sock)
            shortages.report("accept clients of jobs", error)
        else:
            self._tell(f"no client is accepted: {error}")

    # TLS

    async def _accept_encrypted(self, sock: socket.socket, encryption: Encryption) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(sock)
            except OSError as error:
                if sock.fileno() < 0:
                    return
                self._cannot_accept(sock, error)
                await asyncio.sleep(_NO_ROOM_S)
                continue
            if len(self._handshakes) >= self.limits.max_handshakes:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()
            task = self._loop.create_task(self._shake_hands(accepted, encryption))
            self._handshakes[task] = None
            task.add_done_callback(partial(self._on_handshake, accepted))
            await asyncio.sleep(0)  # there may be many: those that are here go on meanwhile

    async def _shake_hands(self, sock: socket.socket, encryption: Encryption) -> None:
        await self._loop.connect_accepted_socket(
            lambda: cast("asyncio.Protocol", self._connection()),
            sock,
            ssl=encryption.context(),
            ssl_handshake_timeout=self.limits.handshake_s,
        )

    def _on_handshake(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            self.failed_handshakes += 1
            sock.close()
        if isinstance(error, OSError):  # those of TLS are some
            self._tell(f"a TLS handshake failed: {_reason(error)}")
        elif error is not None:
            _log.error("a client cannot be let in", exc_info=error)

    def _tell(self, what: str) -> None:
        """Log what strangers can bring about at any rate, but not each time."""
        now = self._loop.time()
        if now < self._next_line_at:
            self._untold += 1
            return
        more = f" (and {self._untold} such things before)" if self._untold else ""
        self._untold, self._next_line_at = 0, now + _LINE_EVERY_S
        _log.warning("%s%s", what, more)

    def _sweep(self) -> None:
        """Close the connections whose clients have had their time."""
        now, limits = self._loop.time(), self.limits
        for connection in self.clients():
            reason = connection.overdue(
                now, idle_s=limits.idle_s, command_s=limits.command_s, stall_s=limits.stall_s
            )
            waited_s = now - connection.client.connected_at
            if waited_s > limits.authentication_s and self._is_unknown(connection.client):
                reason = f"not authenticated within {limits.authentication_s:g} s"
            if reason is not None:
                connection.close(reason)
        self._sweep_timer = self._loop.call_later(_SWEEP_S, self._sweep)


def _reason(error: Exception) -> str:
    return (isinstance(error, ssl.SSLError) and error.reason) or str(error) or type(error).__name__
