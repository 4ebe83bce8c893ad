"""Requests to other brokers by their ids, at the addresses they are registered under."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

from qbus.config import BrokerConfig
from qbus.security.connecting import OutgoingSecurity
from qbus.service.backoff import Backoff
from qbus.wire import ApiKey, Struct

from ..metadata.image import BrokerInfo
from .connection import PeerConnection, PeerError, unchanged
from .security import outgoing_security

Address = tuple[str, int]
"""A host and a port."""

_CONNECT_S = 5.0  # after a network cut, a new attempt gets through sooner than an old one
_IDLE_S = 10.0
_LOOK_S = 0.5


class Registrations(Protocol):
    """The part of the cluster's metadata that the client reads."""

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The registered brokers, by id."""


class PeerSettings(NamedTuple):
    """How to connect to other brokers.

    ``connect_timeout_s`` and ``backoff_s``, the longest pause between two attempts, are in seconds;
    ``max_frame``, the largest response accepted, and ``receive_buffer``, that of the socket (-1:
    the system's default), in bytes. ``listener``: the name of the listener that brokers reach one
    another by; ``security``: what protects the connections, None: nothing does.
    """

    client_id: str
    connect_timeout_s: float
    backoff_s: float
    max_frame: int
    receive_buffer: int = -1
    listener: str = ""
    security: OutgoingSecurity | None = None

    @classmethod
    def of(
        cls,
        config: BrokerConfig,
        client_id: str,
        *,
        max_frame: int | None = None,
        receive_buffer: int = -1,
    ) -> "PeerSettings":
        """The settings that the configuration of a broker says.

        max_frame: by default as large as its own requests.

        Raises :class:`~qbus.errors.ConfigError`: a file of TLS cannot be read.
        """
        return cls(
            client_id=client_id,
            connect_timeout_s=config.replica_socket_timeout_ms / 1000,
            backoff_s=config.replica_fetch_backoff_ms / 1000,
            max_frame=config.socket_request_max_bytes if max_frame is None else max_frame,
            receive_buffer=receive_buffer,
            listener=config.inter_broker_listener,
            security=outgoing_security(config),
        )


class PeerClient:
    """Connects to the other brokers of the cluster.

    :meth:`send` shares one connection to each broker, which is opened when it is needed and closed
    when it is idle. What waits for a broker that is registered no more fails soon: in a network
    that is cut nothing else says that it does not answer. :meth:`connect` opens one of its own, for
    requests that the other broker holds.
    """

    def __init__(self, registrations: Registrations, settings: PeerSettings) -> None:
        self._registrations = registrations
        self._settings = settings
        self._peers: dict[int, _Peer] = {}
        self._is_closed = False
        self._watcher: asyncio.TimerHandle | None = None

    async def send(
        self,
        broker_id: int,
        api: ApiKey,
        version: int,
        message: Struct,
        timeout: float,
        read: Callable[[Any], Any] = unchanged,
    ) -> Any:
        """Send a request; return what ``read`` makes of the response.

        See :meth:`PeerConnection.request`. Raises PeerError within ``timeout`` seconds.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        connection = await self._shared(broker_id, timeout)
        left = deadline - asyncio.get_running_loop().time()
        return await connection.request(api, version, message, left, read)

    @asynccontextmanager
    async def connect(self, broker_id: int) -> AsyncIterator[PeerConnection]:
        """A new connection, closed on exit. Raises PeerError."""
        connection = await self._open(self._address(broker_id))
        try:
            self._address(broker_id)  # it may have been closed meanwhile
            yield connection
        finally:
            connection.abort()

    def close(self) -> None:
        """Close the shared connections; outstanding and later :meth:`send` calls fail."""
        self._is_closed = True
        if self._watcher is not None:
            self._watcher.cancel()
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    async def _shared(self, broker_id: int, timeout: float) -> PeerConnection:
        address = self._address(broker_id)
        peer = self._peers.get(broker_id)
        if peer is None:
            peer = self._peers[broker_id] = _Peer(self._settings.backoff_s)
        try:
            async with asyncio.timeout(timeout), peer.lock:
                connection = peer.connected_to(address)
                if connection is None:
                    connection = await peer.connect(self._open, lambda: self._address(broker_id))
        except TimeoutError:
            raise PeerError(f"broker {broker_id} was not reached within {timeout:g} s") from None
        peer.used()
        self._watch()
        return connection

    def _watch(self) -> None:
        if self._watcher is None and not self._is_closed:
            self._watcher = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        """Fail what waits for brokers that are registered no more."""
        self._watcher = None
        waiting = {broker_id: peer for broker_id, peer in self._peers.items() if peer.waits}
        for broker_id, peer in waiting.items():
            if broker_id not in self._registrations.brokers:
                peer.drop(f"broker {broker_id} is not registered any more")
        if waiting:
            self._watch()

    def _address(self, broker_id: int) -> Address:
        if self._is_closed:
            raise PeerError("the client of other brokers is closed")
        info = self._registrations.brokers.get(broker_id)
        if info is None:
            raise PeerError(f"broker {broker_id} is not registered")
        listener = self._settings.listener
        if not listener:
            return info.host, info.port
        address = info.address_of(listener)
        if address is None:
            raise PeerError(f"broker {broker_id} has no listener {listener}")
        return address[0], address[1]

    async def _open(self, address: Address) -> PeerConnection:
        settings = self._settings
        return await PeerConnection.open(
            *address,
            client_id=settings.client_id,
            timeout=min(settings.connect_timeout_s, _CONNECT_S),
            max_frame=settings.max_frame,
            receive_buffer=settings.receive_buffer,
            security=settings.security,
        )


class _Peer:
    """The shared connection to one broker, if there is one."""

    def __init__(self, longest_backoff_s: float) -> None:
        self.lock = asyncio.Lock()
        self._backoff = Backoff(longest_s=longest_backoff_s)
        self._retry_at = 0.0
        self._connection: PeerConnection | None = None
        self._connected_to: Address | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def connected_to(self, address: Address) -> PeerConnection | None:
        """The connection, if it is usable and leads to ``address``."""
        connection = self._connection
        if connection is None or connection.failure is not None:
            return None
        return connection if address == self._connected_to else None

    async def connect(
        self, open_: Callable[[Address], Awaitable[PeerConnection]], find: Callable[[], Address]
    ) -> PeerConnection:
        """Connect to the address that ``find`` returns after the back-off. Raises PeerError."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._retry_at - loop.time()))
        address = find()
        try:
            connection = await open_(address)
        except PeerError:
            self._retry_at = loop.time() + self._backoff.failed()
            raise
        self._backoff.succeeded()
        self.drop("the broker is registered at another address")
        if self._is_closed:
            connection.abort()
        self._connection, self._connected_to = connection, address
        return connection

    def used(self) -> None:
        """Postpone closing the connection as idle."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(_IDLE_S, self._close_if_idle)

    def close(self) -> None:
        """Close the connection, also one that is being opened."""
        self._is_closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self.drop("closed")

    def _close_if_idle(self) -> None:
        if self.waits:
            self.used()
        else:
            self.drop("idle")

    @property
    def waits(self) -> bool:
        """Whether a response is outstanding."""
        return self._connection is not None and not self._connection.is_idle

    def drop(self, reason: str) -> None:
        """Close the connection; what waits for a response fails."""
        if self._connection is not None:
            self._connection.abort(reason)
        self._connection = None
