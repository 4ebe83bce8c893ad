"""A listening socket and the connections that came through it."""

import asyncio
import errno
import itertools
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from qbus.config import Address, ListenerInfo
from qbus.errors import ConfigError
from qbus.security.principals import PrincipalMapper, subject
from qbus.security.tls import ServerTls
from qbus.service.descriptors import OUT_OF_DESCRIPTORS, SpareDescriptor, shortages

from .connection import Connection, Dispatch, TimeLimits
from .frames import RequestFrames
from .handshakes import Handshakes
from .limits import ConnectionLimits
from .memory_budget import MemoryBudget
from .peer import ANONYMOUS, Peer, Principal
from .tls_transport import TlsTransport
from .transport import PlainTransport, Transport
from .unauthenticated import Unauthenticated

_log = logging.getLogger(__name__)

_SCRATCH_BYTES = 256 * 1024
_BACKLOG = 1024
_ACCEPTS_PER_TURN = 64
_SWEEP_SECONDS = 1.0
_DRAIN_STEP_SECONDS = 0.01
_DRAIN_SILENCE_SECONDS = 2.0
_WARNING_INTERVAL_S = 10.0
_MOST_REFUSED_LATER = 500  # each holds a file descriptor
_numbers = itertools.count(1)
"""The numbers of connections, through whichever listener: later ones have greater ones."""
_MAPPED = "::ffff:"
"""How the address of a client by IPv4 begins where the socket is for both families."""

_CLOSED = "closed a connection from %s"
_OUT_OF_RESOURCES = {*OUT_OF_DESCRIPTORS, errno.ENOBUFS, errno.ENOMEM}


class ListenerLimits(NamedTuple):
    """What one listener takes on."""

    max_frame: int
    max_connections: int
    times: TimeLimits
    send_buffer: int = -1  # bytes; -1 leaves it to the system
    receive_buffer: int = -1
    max_frame_before: int = 64 * 1024  # of clients that have not authenticated
    max_unauthenticated: int = 1000


Gate = Callable[[ListenerInfo, str], str | None]
"""Says why nobody is let in by a listener from an address now; None: there is no reason."""


Admission = Callable[[str], float]
"""Whether an address may connect now: 0.0, or after how many seconds to close its connection.

Nothing is read of such a connection. A client that is refused at once would try again at once.
"""


@dataclass(frozen=True)
class Tls:
    """The TLS of a listener, and how much is spent on handshakes."""

    server: ServerTls
    principals: PrincipalMapper
    handshake_s: float = 10.0
    max_handshakes: int = 1000


def bind(address: Address) -> tuple[socket.socket, Address]:
    """Take an address, without accepting anybody yet; port 0 becomes a real one.

    Raises:
        OSError: the address is in use or not ours; the message names it.
    """
    try:
        sock = _listening(address)
    except OSError as error:
        why = error.strerror
        if error.errno and not isinstance(error, socket.gaierror):
            why = os.strerror(error.errno)  # that of socket has the address, too
        message = f"cannot listen on {address}: {why}"
        raise OSError(error.errno, message) from error
    sock.setblocking(False)
    return sock, Address(address.host, sock.getsockname()[1])


def _listening(address: Address) -> socket.socket:
    """A socket on ``address``; without a host, on all interfaces of both families."""
    host, port = address
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
        )
    family, _, _, _, name = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(name, family=family, backlog=_BACKLOG)


def _tell_nobody(_user: str, _host: str) -> None:
    """Stands for ``identified`` where nobody listens."""


class Listener:
    """Accepts clients on one address, from :meth:`start` until it is closed.

    ``admission``, where it is set, limits how fast clients connect; ``identified`` is told of those
    whose certificates say who they are: the user's name, and the address.
    """

    def __init__(
        self,
        sock: socket.socket,
        info: ListenerInfo,
        dispatch: Dispatch,
        limits: ListenerLimits,
        budget: MemoryBudget,
        *,
        shared: ConnectionLimits | None = None,
        tls: Tls | None = None,
        gates: Sequence[Gate] = (),
    ) -> None:
        """Make it in a running event loop.

        ``sock`` listens on the address of ``info``, see :func:`bind`. ``shared``: the limits on the
        connections of all listeners. ``tls``: where the listener's protocol is encrypted.
        """
        self.info = info
        self.address = info.address
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._dispatch = dispatch
        self._limits = limits
        self._budget = budget
        self._shared = shared or ConnectionLimits()
        self._gates = gates
        self._refused_later: dict[socket.socket, asyncio.TimerHandle] = {}
        self._tls = tls
        self.handshakes = self._make_handshakes(tls)
        self._connections: set[Connection] = set()
        self.unauthenticated = Unauthenticated(limits.max_unauthenticated, info.name)
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._spare = SpareDescriptor()
        self._untold = 0
        self._next_warning_at = 0.0
        self._closed_sent = 0
        self._closed_received = 0
        self._sweep_timer: asyncio.TimerHandle | None = None
        self.refused = 0
        self.accepted = 0
        self.admission: Admission | None = None
        self.identified: Callable[[str, str], None] = _tell_nobody

    def _make_handshakes(self, tls: Tls | None) -> Handshakes | None:
        if tls is None:
            return None
        return Handshakes(
            self._loop,
            tls.server,
            timeout_s=tls.handshake_s,
            most=tls.max_handshakes,
            on_done=self._on_handshake,
            on_failed=self._on_failed_handshake,
        )

    def start(self) -> None:
        """Let clients in."""
        self._accept_on()
        self._sweep_timer = self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    @property
    def unfinished_handshakes(self) -> int:
        """How many clients have connected, and have not finished their TLS handshake."""
        return 0 if self.handshakes is None else len(self.handshakes)

    @property
    def sent_bytes(self) -> int:
        """Bytes sent to clients since the start."""
        return self._closed_sent + sum(c.sent_bytes for c in list(self._connections))

    @property
    def received_bytes(self) -> int:
        """Bytes received from clients since the start."""
        return self._closed_received + sum(c.received_bytes for c in list(self._connections))

    async def drain(self, timeout_s: float) -> None:
        """Let nobody in, read nothing more, and give open requests ``timeout_s`` to finish."""
        self._close_address()
        if self.handshakes is not None:
            self.handshakes.close()
        for connection in self._connections:
            connection.drain()
        start, silence = self._loop.time(), _DRAIN_SILENCE_SECONDS
        while (waited := self._loop.time() - start) < timeout_s:
            waiting = [one.peer.host for one in self._connections if not one.idle]
            if not waiting:
                return
            if waited >= silence:
                silence *= 2
                _log.warning(
                    "stopping waits for requests of %d connections, one of them from %s;"
                    " it ends after %g s at the latest",
                    *(len(waiting), waiting[0], timeout_s),
                )
            await asyncio.sleep(_DRAIN_STEP_SECONDS)

    def close(self) -> None:
        """Close every connection, and the address if it was not drained."""
        self._close_address()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self.handshakes is not None:
            self.handshakes.close()
        for sock, timer in self._refused_later.items():
            timer.cancel()
            sock.close()
        self._refused_later.clear()
        self._spare.close()
        for connection in list(self._connections):
            connection.close("the broker is shutting down")

    def _close_address(self) -> None:
        if self._sock.fileno() >= 0:
            if self._sweep_timer is not None:  # it was started
                self._loop.remove_reader(self._sock)
            self._sock.close()

    def _accept_on(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock, self._on_acceptable)

    def _on_acceptable(self) -> None:
        try:
            for _ in range(_ACCEPTS_PER_TURN):
                sock, address = self._sock.accept()
                self._admit(sock, address[0].removeprefix(_MAPPED))
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return
        except OSError as error:
            if error.errno not in _OUT_OF_RESOURCES:
                raise
            self._cannot_accept(error)

    def _cannot_accept(self, error: OSError) -> None:
        """Turn away those who wait, as far as that is possible; accept again in a second."""
        if error.errno in OUT_OF_DESCRIPTORS:
            self.refused += self._spare.turn_away(self._sock)
            shortages.report("accept connections", error)
        else:
            _log.error("cannot accept connections for now: %s", error.strerror)
        self._loop.remove_reader(self._sock)
        self._loop.call_later(_SWEEP_SECONDS, self._accept_on)

    def _admit(self, sock: socket.socket, host: str) -> None:
        refusal = self._refusal(host)
        if refusal is not None:
            self.refused += 1
            self._tell("turned a connection from %s away", host, refusal)
            sock.close()
            return
        if self.admission is not None and (delay := self.admission(host)) > 0.0:
            self._refuse_later(sock, delay)
            return
        try:
            self._configure(sock)
        except OSError:  # reset before we got to it
            sock.close()
            return
        self.accepted += 1
        self._shared.opened(host)
        if self.handshakes is not None:
            self.handshakes.start(sock, host)
        else:
            self._connect(PlainTransport(sock), host, ANONYMOUS, None)

    def _refuse_later(self, sock: socket.socket, delay: float) -> None:
        """Keep a connection open for a while, so that its client does not try again at once."""
        self.refused += 1
        if len(self._refused_later) >= _MOST_REFUSED_LATER:
            sock.close()
            return

        def close() -> None:
            self._refused_later.pop(sock).cancel()
            sock.close()

        self._refused_later[sock] = self._loop.call_later(delay, close)

    def _refusal(self, host: str) -> str | None:
        """Why one more connection is not let in, if it is not."""
        for gate in self._gates:
            refusal = gate(self.info, host)
            if refusal is not None:
                return refusal
        count = len(self._connections) + self.unfinished_handshakes
        if count >= self._limits.max_connections:
            return f"the listener {self.info.name} takes {count} connections (max.connections)"
        return self._shared.refusal(self.info.name, host)

    def _on_handshake(self, transport: TlsTransport, host: str) -> None:
        try:
            principal, ends_in = self._identify(transport)
        except ConfigError as error:
            transport.close()
            self._on_failed_handshake(host, str(error))
            return
        except Exception:  # noqa: BLE001 - nobody is let in when in doubt
            _log.exception("it cannot be decided who the client at %s is", host)
            transport.close()
            self._on_failed_handshake(host, None)
            return
        expires_at = None if ends_in is None else self._loop.time() + ends_in
        if principal is not ANONYMOUS:
            self.identified(principal.name, host)
        self._connect(transport, host, principal, expires_at)

    def _identify(self, transport: TlsTransport) -> tuple[Principal, float | None]:
        """Return who the client's certificate is for, and for how many seconds more.

        Raises:
            ConfigError: it is for nobody.
        """
        if self._tls is None or self.info.protocol.is_sasl:
            return ANONYMOUS, None
        certificate = transport.certificate()
        if certificate is None:
            return ANONYMOUS, None
        name = subject(certificate)
        user = self._tls.principals.name(name)
        if not user:
            raise ConfigError(f"no rule of ssl.principal.mapping.rules is for {name!r}")
        ends = transport.certificate_ends()
        return Principal("User", user), None if ends is None else ends - time.time()

    def _on_failed_handshake(self, host: str, why: str | None) -> None:
        self._shared.closed(host)
        if why is None:
            _log.debug("a client at %s left during its TLS handshake", host)
        else:
            self._tell(_CLOSED, host, why)

    def _connect(
        self, transport: Transport, host: str, principal: Principal, expires_at: float | None
    ) -> None:
        """Serve a client."""
        limits, needs_sasl = self._limits, self.info.protocol.is_sasl
        peer = Peer(
            next(_numbers),
            host,
            self.info,
            principal=principal,
            is_authenticated=not needs_sasl,
            expires_at=expires_at,
        )
        most = min(limits.max_frame, limits.max_frame_before) if needs_sasl else limits.max_frame
        connection = Connection(
            self._loop,
            transport,
            peer,
            dispatch=self._dispatch,
            frames=RequestFrames(self._scratch, most),
            budget=self._budget,
            on_close=self._on_close,
            full_frame=limits.max_frame,
        )
        self._connections.add(connection)
        if needs_sasl:
            self.unauthenticated.add(connection, self._loop.time())
        connection.start()

    def _configure(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._limits.send_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.send_buffer)
        if self._limits.receive_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._limits.receive_buffer)

    def _on_close(self, connection: Connection, reason: str) -> None:
        self._connections.discard(connection)
        self.unauthenticated.discard(connection)
        self._closed_sent += connection.sent_bytes
        self._closed_received += connection.received_bytes
        host = connection.peer.host
        self._shared.closed(host)
        _log.debug("connection %d from %s closed: %s", connection.peer.connection_id, host, reason)
        if connection.sent_nonsense:
            self._tell(_CLOSED, host, reason)

    def _tell(self, what: str, host: str, reason: str) -> None:
        """Warn of one such client at once, and of all that follow within some time in one line."""
        now = self._loop.time()
        if now < self._next_warning_at:
            self._untold += 1
            return
        more = f" (and {self._untold} others before)" if self._untold else ""
        _log.warning(f"{what}: %s%s", host, reason, more)
        self._untold, self._next_warning_at = 0, now + _WARNING_INTERVAL_S

    def _sweep(self) -> None:
        """Close the connections whose clients have had their time."""
        now = self._loop.time()
        if self.handshakes is not None:
            self.handshakes.sweep(now)
        self.unauthenticated.look()
        for connection in list(self._connections):
            reason = connection.overdue(now, self._limits.times)
            if reason is not None:
                connection.close(reason)
        self._sweep_timer = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
