"""A connection to another broker: requests go out as they come, answers come back in that order.

Answers are handed over as soon as they are whole, in the same turn of the event loop, so that the
records in them can be appended from where they were received: nothing is copied.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Self

from qbus.errors import QbusError, WireError
from qbus.wire import ApiKey, Struct, decode_response, encode_request

from .frame_buffer import FrameBuffer

_MAX_CORRELATION_ID = 0x7FFFFFFF
_NOT_BEFORE_S = 0.001


class PeerFailed(QbusError):  # noqa: N818 - what happened
    """The other broker cannot be reached, does not answer, or answers nonsense."""

    @property
    def retriable(self) -> bool:
        return True


Answered = Callable[[Any], None]
"""Takes the response, or the PeerFailed instead of it. The response is void once it returns."""


class _Request(NamedTuple):
    correlation_id: int
    api: ApiKey
    version: int
    deadline: float
    answered: Answered


class PeerConnection(asyncio.BufferedProtocol):
    """One connection; it is of no use any more once ``failure`` says why, see ``on_failure``.

    Which versions the other side speaks is not asked: brokers of one cluster have them in common.
    One that does not closes the connection, which is reported as such.
    """

    def __init__(self, name: str, client_id: str, max_frame: int) -> None:
        """Use :meth:`open`."""
        self._name = name
        self._client_id = client_id
        self._frames = FrameBuffer(max_frame)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._requests: deque[_Request] = deque()
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self.failure: PeerFailed | None = None
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
        """Connect within ``timeout`` seconds; answers are of ``max_frame`` bytes at most.

        ``receive_buffer`` is the system's, in bytes; -1: it decides itself. Raises PeerFailed.
        """
        name = f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout):
                transport, connection = await asyncio.get_running_loop().create_connection(
                    lambda: cls(name, client_id, max_frame), host, port
                )
        except TimeoutError:
            raise PeerFailed(f"{name} does not accept a connection in {timeout:g} s") from None
        except (OSError, OverflowError, ValueError) as error:
            raise PeerFailed(f"{name}: {error}") from error
        if receive_buffer > 0:
            sock: socket.socket = transport.get_extra_info("socket")
            with suppress(OSError):  # it is closed by now, which the first request finds out
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        return connection

    def send(
        self, api: ApiKey, version: int, message: Struct, timeout: float, answered: Answered
    ) -> None:
        """Have ``answered`` called once, in ``timeout`` seconds: with the response or PeerFailed.

        Raises PeerFailed when the connection failed before.
        """
        if self.failure is not None:
            raise PeerFailed(str(self.failure))
        assert self._transport is not None
        self._correlation_id = (self._correlation_id + 1) & _MAX_CORRELATION_ID
        parts = encode_request(api, version, self._correlation_id, self._client_id, message)
        deadline = self._loop.time() + timeout
        self._requests.append(_Request(self._correlation_id, api, version, deadline, answered))
        self._transport.writelines(parts)
        if self._timer is None or deadline < self._timer.when():
            self._watch(deadline)

    async def ask(self, api: ApiKey, version: int, message: Struct, timeout: float) -> Any:
        """The response to ``message``, which must have no records in it. Raises PeerFailed."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def answered(answer: Any) -> None:
            if future.done():
                return
            if isinstance(answer, PeerFailed):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.send(api, version, message, timeout, answered)
        return await future

    def abort(self, reason: str = "closed") -> None:
        """Close at once; whoever waits for an answer is told why."""
        if self.failure is None:
            self.failure = PeerFailed(f"{self._name}: {reason}")
            if self._timer is not None:
                self._timer.cancel()
            if self._transport is not None:
                self._transport.abort()
            requests, self._requests = self._requests, deque()
            for request in requests:
                request.answered(self.failure)
            if self.on_failure is not None:
                self.on_failure()

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check)

    def _check(self) -> None:
        """Notice what is late; one timer for all requests, most of which it never sees."""
        self._timer = None
        if self._requests:
            oldest = self._requests[0]
            earliest = min(request.deadline for request in self._requests)
            if earliest <= self._loop.time() + _NOT_BEFORE_S:
                self.abort(f"no answer to {oldest.api.name} in time")
            else:
                self._watch(earliest)

    def _answer(self, frame: memoryview) -> None:
        if not self._requests:
            raise WireError("an answer to no request")
        request = self._requests[0]
        if frame[:4] != request.correlation_id.to_bytes(4, "big"):
            raise WireError("an answer to another request")
        _, response = decode_response(request.api, request.version, frame)
        self._requests.popleft()
        request.answered(response)

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.abort(str(exc) if exc else "the broker closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._frames.target()

    def buffer_updated(self, nbytes: int) -> None:
        frames = self._frames
        frames.received(nbytes)
        try:
            for frame in frames.frames():
                if self.failure is not None:
                    return
                self._answer(frame)
        except WireError as error:
            self.abort(f"does not answer as a broker does: {error}")
