"""A connection to another broker: pipelined requests, answered in the order they were sent.

A response is handed over as soon as it is complete, in the same turn of the event loop, so that its
records can be appended straight from the receive buffer, without a copy.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Self

from qbus.errors import AuthenticationError, ConfigError, NoToken, QbusError, WireError
from qbus.frames import FrameReader
from qbus.security.authenticator import Authenticator
from qbus.security.client import ClientSecurity
from qbus.security.connecting import OutgoingSecurity, explain_tls
from qbus.wire import ApiKey, Part, Struct, decode_response, encode_request

_MAX_CORRELATION_ID = 0x7FFFFFFF
_NOT_BEFORE_S = 0.001
_TRUSTED_BYTES = 16 * 1024 * 1024
_SASL_VERSIONS = {ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2}


class PeerError(QbusError):
    """The other broker cannot be reached, did not answer in time, or sent a malformed response."""

    @property
    def retriable(self) -> bool:
        return True


OnResponse = Callable[[Any], None]
"""Takes the response, or a PeerError in its place. The response is valid until it returns."""


class _InFlightRequest(NamedTuple):
    correlation_id: int
    api: ApiKey
    version: int
    deadline: float
    on_response: OnResponse


class _Held(NamedTuple):
    """A request that waits until the connection is authenticated again."""

    request: _InFlightRequest
    parts: list[Part]


def unchanged(response: Any) -> Any:
    """Return the response as it is."""
    return response


def _completing(future: asyncio.Future[Any], read: Callable[[Any], Any] = unchanged) -> OnResponse:
    def on_response(response: Any) -> None:
        if future.done():
            return
        if isinstance(response, PeerError):
            future.set_exception(response)
        else:
            future.set_result(read(response))

    return on_response


def _reason(error: Exception, security: OutgoingSecurity | None) -> str:
    """What is said of an error of connecting."""
    if security is None or not security.settings.uses_tls:
        return str(error)
    has_certificate = security.settings.ssl_certificate_location is not None
    return explain_tls(error, has_certificate=has_certificate).reason


class PeerConnection(asyncio.BufferedProtocol):
    """One connection. Once ``failure`` is set it is closed for good; ``on_failure`` is called then.

    Versions are not negotiated: the brokers of a cluster have them in common. A broker that does
    not know a version closes the connection.
    """

    def __init__(self, name: str, client_id: str, max_frame: int, timeout: float) -> None:
        """Use :meth:`open`."""
        self._name = name
        self._client_id = client_id
        self._frames = FrameReader(max_frame, trusted=_TRUSTED_BYTES, spare=1)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[_InFlightRequest] = deque()
        self._correlation_id = 0
        self._authenticator: Authenticator | None = None
        self._held: list[_Held] | None = None
        self._is_encrypted = False
        self._timeout = timeout
        self._timer: asyncio.TimerHandle | None = None
        self.failure: PeerError | None = None
        self.on_failure: Callable[[], None] | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout: float,
        max_frame: int,
        receive_buffer: int = -1,
        security: OutgoingSecurity | None = None,
    ) -> Self:
        """Connect within ``timeout`` seconds, and authenticate within as many again for each step.

        ``max_frame``: the largest response accepted, in bytes. ``receive_buffer``: the socket's
        receive buffer, in bytes; -1 is the system's default. ``security``: what protects the
        connection; None: nothing does. Raises PeerError.
        """
        name = f"{host}:{port}"
        try:
            credentials = None if security is None else await security.credentials()
            context = None if credentials is None else credentials[1]
            async with asyncio.timeout(timeout):
                transport, connection = await asyncio.get_running_loop().create_connection(
                    lambda: cls(name, client_id, max_frame, timeout), host, port, ssl=context
                )
        except TimeoutError:
            raise PeerError(f"{name} did not accept a connection within {timeout:g} s") from None
        except (OSError, OverflowError, ValueError) as error:
            raise PeerError(f"{name}: {_reason(error, security)}") from error
        except NoToken as error:
            raise PeerError(f"{name}: {error}") from error
        if receive_buffer > 0:
            sock: socket.socket = transport.get_extra_info("socket")
            with suppress(OSError):  # closed already: the first request fails
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if security is not None and credentials is not None:
            await connection._authenticate(security, credentials[0])
        return connection

    @property
    def is_idle(self) -> bool:
        """Whether no response is outstanding."""
        return not (self._in_flight or self._held)

    def send(
        self, api: ApiKey, version: int, message: Struct, timeout: float, on_response: OnResponse
    ) -> None:
        """Send a request; ``on_response`` is called once, within ``timeout`` seconds.

        A response that is late closes the connection. Raises PeerError if it is closed already.
        """
        if self.failure is not None:
            raise PeerError(str(self.failure))
        request, parts = self._encoded(api, version, message, timeout, on_response)
        if self._held is not None:
            self._held.append(_Held(request, parts))
        else:
            self._write(request, parts)

    def _encoded(
        self, api: ApiKey, version: int, message: Struct, timeout: float, on_response: OnResponse
    ) -> tuple[_InFlightRequest, list[Part]]:
        self._correlation_id = (self._correlation_id + 1) & _MAX_CORRELATION_ID
        parts = encode_request(api, version, self._correlation_id, self._client_id, message)
        deadline = self._loop.time() + timeout
        return _InFlightRequest(self._correlation_id, api, version, deadline, on_response), parts

    def _write(self, request: _InFlightRequest, parts: list[Part]) -> None:
        assert self._transport is not None
        self._in_flight.append(request)
        if self._is_encrypted:
            self._transport.write(b"".join(parts))  # one record of TLS, not one for each part
        else:
            self._transport.writelines(parts)
        if self._timer is None or request.deadline < self._timer.when():
            self._watch(request.deadline)

    async def request(
        self,
        api: ApiKey,
        version: int,
        message: Struct,
        timeout: float,
        read: Callable[[Any], Any] = unchanged,
    ) -> Any:
        """Send a request and return what ``read`` makes of the response. Raises PeerError.

        ``read`` is called while the response is valid. Without it, the response is returned, and
        any records in it are void.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self.send(api, version, message, timeout, _completing(future, read))
        return await future

    async def _authenticate(self, security: OutgoingSecurity, settings: ClientSecurity) -> None:
        if not settings.uses_sasl:
            return
        self._authenticator = Authenticator(self._name, self, security)
        try:
            await self._authenticator.authenticate(settings)
        except (AuthenticationError, ConfigError) as error:
            self.abort(str(error))
            raise PeerError(f"{self._name}: {error}") from None
        except BaseException:
            self.abort()
            raise

    # What the authenticator calls.

    async def ask_sasl(self, api: ApiKey, message: Struct) -> Any:
        """Return the response to a request of SASL, also while others are held back.

        Those in flight are answered before it, however long they wait. Raises PeerError.
        """
        if self.failure is not None:
            raise PeerError(str(self.failure))
        answer: asyncio.Future[Any] = self._loop.create_future()
        latest = max((request.deadline for request in self._in_flight), default=0.0)
        timeout = max(0.0, latest - self._loop.time()) + self._timeout
        version = _SASL_VERSIONS[api]
        self._write(*self._encoded(api, version, message, timeout, _completing(answer)))
        return await answer

    def hold(self) -> None:
        """Keep back requests from now on."""
        self._held = []

    def go_on(self) -> None:
        """Send what was kept back."""
        held, self._held = self._held or [], None
        for request, parts in held:
            if self.failure is not None:
                request.on_response(self.failure)
            else:
                self._write(request, parts)

    def abort(self, reason: str = "closed") -> None:
        """Close at once; every outstanding request fails with ``reason``."""
        if self.failure is None:
            self.failure = PeerError(f"{self._name}: {reason}")
            if self._timer is not None:
                self._timer.cancel()
            if self._transport is not None:
                self._transport.abort()
            if self._authenticator is not None:
                self._authenticator.stop()
            requests, self._in_flight = self._in_flight, deque()
            held, self._held = self._held or [], None
            for request in (*requests, *(each.request for each in held)):
                request.on_response(self.failure)
            if self.on_failure is not None:
                self.on_failure()

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check)

    def _check(self) -> None:
        """Close the connection if a response is late; one timer serves all requests."""
        self._timer = None
        if self._in_flight:
            oldest = self._in_flight[0]
            earliest = min(request.deadline for request in self._in_flight)
            if earliest <= self._loop.time() + _NOT_BEFORE_S:
                self.abort(f"no response to {oldest.api.name} in time")
            else:
                self._watch(earliest)

    def _dispatch(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise WireError("a response without a request")
        request = self._in_flight[0]
        if frame[:4] != request.correlation_id.to_bytes(4, "big"):
            raise WireError("a response to another request")
        _, response = decode_response(request.api, request.version, frame)
        self._in_flight.popleft()
        request.on_response(response)

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._is_encrypted = transport.get_extra_info("ssl_object") is not None

    def connection_lost(self, exc: Exception | None) -> None:
        self.abort(str(exc) if exc else "the broker closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                if self.failure is not None:
                    return
                self._dispatch(frame)
        except WireError as error:
            self.abort(f"malformed response: {error}")
