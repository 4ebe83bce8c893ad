"""One connection to a broker: requests go out as they come, answers come back in that order."""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Self

from qbus._version import __version__
from qbus.errors import ErrorCode, WireError
from qbus.wire import ApiKey, decode_response, encode_request
from qbus.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

from .errors import ConnectionFailed, RequestTimedOut, check
from .frames import FrameReader
from .versions import SPOKEN, highest_common

MAX_FRAME_BYTES = 100 * 1024 * 1024
_CLOSE_TIMEOUT = 5.0
_MAX_CORRELATION_ID = 0x7FFFFFFF


class Connection(asyncio.BufferedProtocol):
    """A connection on which both sides know which versions they share.

    A request that is not answered in time closes it, since nothing behind that answer can be
    trusted to come.
    """

    def __init__(self, name: str, client_id: str) -> None:
        self._name = name
        self._client_id = client_id
        self._frames = FrameReader(MAX_FRAME_BYTES)
        self._transport: asyncio.Transport | None = None
        self._pending: deque[tuple[int, asyncio.Future[memoryview]]] = deque()
        self._correlation_id = 0
        self._versions: Mapping[int, tuple[int, int]] = {ApiKey.API_VERSIONS: (0, 3)}
        self._failure: ConnectionFailed | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()

    @classmethod
    async def open(cls, host: str, port: int, client_id: str, timeout: float) -> Self:
        """Connect and agree on versions, in ``timeout`` seconds.

        Raises :class:`ConnectionFailed`, or :class:`RequestTimedOut`.
        """
        name = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: cls(name, client_id), host, port
                )
        except TimeoutError:
            raise RequestTimedOut(f"{name} does not accept a connection") from None
        except OSError as error:
            raise ConnectionFailed(f"{name}: {error}") from error
        try:
            await connection._agree_on_versions(timeout)
        except BaseException:
            connection.abort()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self._failure is None

    def version(self, api: ApiKey) -> int:
        """The highest version of ``api`` that both sides speak.

        Raises :class:`~qbus.errors.ApiError` UNSUPPORTED_VERSION.
        """
        return highest_common(api, self._versions)

    async def request(self, api: ApiKey, message: Any, timeout: float) -> Any:
        """The response to ``message``, within ``timeout`` seconds.

        Raises :class:`ConnectionFailed`, :class:`RequestTimedOut`,
        :class:`~qbus.errors.WireError` for an answer that is none, and
        :class:`~qbus.errors.ApiError` UNSUPPORTED_VERSION.
        """
        version = self.version(api)
        frame = await self._exchange(api, version, message, timeout)
        return decode_response(api, version, frame)[1]

    async def send(self, api: ApiKey, message: Any) -> None:
        """Send a message that is not answered (Produce with ``acks=0``)."""
        self._write(api, self.version(api), message)
        await self._writable.wait()
        self._check_open()

    async def close(self) -> None:
        """Send what is written, then close; what is still unanswered fails."""
        self._fail("closed")
        if self._transport is not None:
            self._transport.close()
            try:
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await self._lost.wait()
            except TimeoutError:
                self._transport.abort()

    def abort(self, reason: str = "closed") -> None:
        """Close without waiting; what is still unanswered fails."""
        self._fail(reason)
        if self._transport is not None:
            self._transport.abort()

    async def _agree_on_versions(self, timeout: float) -> None:
        request = ApiVersionsRequest(
            client_software_name="qbus-python", client_software_version=__version__
        )
        _, version = SPOKEN[ApiKey.API_VERSIONS]
        frame = await self._exchange(ApiKey.API_VERSIONS, version, request, timeout)
        # A broker that does not know the version says so in the form of version 0.
        if int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION:
            frame = await self._exchange(ApiKey.API_VERSIONS, 0, request, timeout)
            version = 0
        response: ApiVersionsResponse = decode_response(ApiKey.API_VERSIONS, version, frame)[1]
        check(response.error_code)
        self._versions = {
            served.api_key: (served.min_version, served.max_version) for served in response.api_keys
        }

    async def _exchange(
        self, api: ApiKey, version: int, message: Any, timeout: float
    ) -> memoryview:
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._pending.append((self._write(api, version, message), answer))
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            self.abort(f"no answer to {api.name} within {timeout} s")
            raise RequestTimedOut(f"{self._name}: no answer to {api.name} in {timeout} s") from None

    def _write(self, api: ApiKey, version: int, message: Any) -> int:
        self._check_open()
        assert self._transport is not None
        self._correlation_id = (self._correlation_id + 1) & _MAX_CORRELATION_ID
        parts = encode_request(api, version, self._correlation_id, self._client_id, message)
        self._transport.writelines(parts)
        return self._correlation_id

    def _check_open(self) -> None:
        if self._failure is not None:
            raise ConnectionFailed(str(self._failure))

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = ConnectionFailed(f"{self._name}: {reason}")
        self._writable.set()
        while self._pending:
            _, answer = self._pending.popleft()
            if not answer.done():
                answer.set_exception(ConnectionFailed(str(self._failure)))

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "the broker closed the connection")
        self._lost.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._answered(frame)
        except WireError as error:
            self.abort(str(error))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _answered(self, frame: memoryview) -> None:
        if not self._pending:
            raise WireError("an answer to no request")
        correlation_id, answer = self._pending[0]
        if int.from_bytes(frame[:4], "big") != correlation_id:
            raise WireError("an answer to another request")
        self._pending.popleft()
        if not answer.done():
            answer.set_result(frame)
