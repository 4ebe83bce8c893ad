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

from qbus.errors import QbusError, WireError
from qbus.frames import FrameReader
from qbus.wire import ApiKey, Struct, decode_response, encode_request

_MAX_CORRELATION_ID = 0x7FFFFFFF
_NOT_BEFORE_S = 0.001
_TRUSTED_BYTES = 16 * 1024 * 1024


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


def unchanged(response: Any) -> Any:
    """Return the response as it is."""
    return response


class PeerConnection(asyncio.BufferedProtocol):
    """One connection. Once ``failure`` is set it is closed for good; ``on_failure`` is called then.

    Versions are not negotiated: the brokers of a cluster have them in common. A broker that does
    not know a version closes the connection.
    """

    def __init__(self, name: str, client_id: str, max_frame: int) -> None:
        """Use :meth:`open`."""
        self._name = name
        self._client_id = client_id
        self._frames = FrameReader(max_frame, trusted=_TRUSTED_BYTES, spare=1)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[_InFlightRequest] = deque()
        self._correlation_id = 0
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
    ) -> Self:
        """Connect within ``timeout`` seconds. Raises PeerError.

        ``max_frame``: the largest response accepted, in bytes. ``receive_buffer``: the socket's
        receive buffer, in bytes; -1 is the system's default.
        """
        name = f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout):
                transport, connection = await asyncio.get_running_loop().create_connection(
                    lambda: cls(name, client_id, max_frame), host, port
                )
        except TimeoutError:
            raise PeerError(f"{name} did not accept a connection within {timeout:g} s") from None
        except (OSError, OverflowError, ValueError) as error:
            raise PeerError(f"{name}: {error}") from error
        if receive_buffer > 0:
            sock: socket.socket = transport.get_extra_info("socket")
            with suppress(OSError):  # closed already: the first request fails
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        return connection

    @property
    def is_idle(self) -> bool:
        """Whether no response is outstanding."""
        return not self._in_flight

    def send(
        self, api: ApiKey, version: int, message: Struct, timeout: float, on_response: OnResponse
    ) -> None:
        """Send a request; ``on_response`` is called once, within ``timeout`` seconds.

        A response that is late closes the connection. Raises PeerError if it is closed already.
        """
        if self.failure is not None:
            raise PeerError(str(self.failure))
        assert self._transport is not None
        self._correlation_id = (self._correlation_id + 1) & _MAX_CORRELATION_ID
        parts = encode_request(api, version, self._correlation_id, self._client_id, message)
        deadline = self._loop.time() + timeout
        self._in_flight.append(
            _InFlightRequest(self._correlation_id, api, version, deadline, on_response)
        )
        self._transport.writelines(parts)
        if self._timer is None or deadline < self._timer.when():
            self._watch(deadline)

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

        def on_response(response: Any) -> None:
            if future.done():
                return
            if isinstance(response, PeerError):
                future.set_exception(response)
            else:
                future.set_result(read(response))

        self.send(api, version, message, timeout, on_response)
        return await future

    def abort(self, reason: str = "closed") -> None:
        """Close at once; every outstanding request fails with ``reason``."""
        if self.failure is None:
            self.failure = PeerError(f"{self._name}: {reason}")
            if self._timer is not None:
                self._timer.cancel()
            if self._transport is not None:
                self._transport.abort()
            requests, self._in_flight = self._in_flight, deque()
            for request in requests:
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
