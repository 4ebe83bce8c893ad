"""One connection to a broker: requests go out as they come, responses arrive in that order."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from qbus._version import __version__
from qbus.errors import ApiError, AuthenticationError, ErrorCode, NoToken, QbusError, WireError
from qbus.frames import FrameReader
from qbus.security.authenticator import Authenticator
from qbus.security.client import ClientSecurity
from qbus.security.connecting import OutgoingSecurity
from qbus.wire import ApiKey, Part, decode_response, encode_request
from qbus.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

from ..errors import AuthenticationFailed, ConnectionFailed, TlsFailed, check
from ..security import PLAINTEXT
from . import tls
from .dial import dial
from .in_flight import InFlightRequests, Told
from .receive_mark import ReceiveMark
from .versions import SPOKEN, SPOKEN_BY_ID, highest_common
from .write_buffer import WriteBuffer, write_buffer_of

MAX_FRAME_BYTES = 100 * 1024 * 1024
"""The largest response accepted, as librdkafka's ``receive.message.max.bytes``."""
_CLOSE_TIMEOUT = 5.0
_MAX_CORRELATION_ID = 0x7FFFFFFF
_NEW_S = 2.0
"""Seconds for which a connection is new: brokers close those that do not authenticate at once."""
_ITS_LOG = "the broker's log says why, such as too many connections or no file descriptors; "
_SPEAKS_TLS = f"{_ITS_LOG}if its listener speaks TLS, security.protocol is SSL or SASL_SSL there"
_WANTS_CERTIFICATE = f"{_ITS_LOG}if it wants a client's certificate, see ssl.certificate.location"
_WANTS_SASL = (
    f"{_ITS_LOG}if its listener wants SASL, security.protocol is SASL_SSL or SASL_PLAINTEXT there"
)


Write = Callable[[int, int, str], list[Part]]
"""Writes a whole request of a version, with a correlation id and a client id."""


class PendingAnswer(NamedTuple):
    """A request that was sent; ``frame`` completes with its response, or fails."""

    api: ApiKey
    version: int
    frame: asyncio.Future[memoryview]

    def response(self) -> Any:
        """Return the decoded response. Raises as :meth:`Connection.request`."""
        return decode_response(self.api, self.version, self.frame.result())[1]


class _Held(NamedTuple):
    """A request that waits until the connection is authenticated again."""

    correlation_id: int
    api: ApiKey
    parts: list[Part]
    timeout: float
    answer: asyncio.Future[memoryview] | None
    told: Told | None = None


class Connection(asyncio.BufferedProtocol):
    """A connection whose two sides have agreed on API versions, and trust each other as far as
    the client's security asks for it.

    A request without a response in time closes it, even if nobody waits for that response any more,
    because later responses cannot overtake it. A response to anything but the oldest request closes
    it too.
    """

    def __init__(
        self, name: str, client_id: str, security: ClientSecurity = PLAINTEXT, timeout: float = 30.0
    ) -> None:
        """Use :meth:`open`. ``timeout``: of each request of SASL, in seconds."""
        self._name = name
        self._client_id = client_id
        self._security = security
        self._sasl_timeout = timeout
        self._authenticator: Authenticator | None = None
        self._held: list[_Held] | None = None
        self._first_id = 0  # of the requests after the connection was opened
        self._opened_at = 0.0
        self._frames = FrameReader(MAX_FRAME_BYTES)
        self._transport: asyncio.Transport | None = None
        self._write_buffer: WriteBuffer | None = None
        self._receive_mark: ReceiveMark | None = None  # None: TLS
        self._in_flight = InFlightRequests(self.abort)
        self._correlation_id = 0
        self._versions: Mapping[int, tuple[int, int]] = {ApiKey.API_VERSIONS: (0, 3)}
        self._features: Mapping[str, int] = {}
        self._agreed: dict[ApiKey, int] = {}
        self._failure: ConnectionFailed | None = None
        self._lost_by: Exception | None = None
        self._was_hung_up = False  # by the other side
        self._lost = asyncio.Event()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        client_id: str,
        timeout: float,
        security: OutgoingSecurity | None = None,
    ) -> Self:
        """Connect within ``timeout`` seconds; agree on TLS, on versions, and authenticate, each
        step within as many again.

        security: what protects the connection; None: nothing does.

        Raises :class:`ConnectionFailed`, also if the peer is no broker, :class:`RequestTimedOut`,
        :class:`TlsFailed` or :class:`AuthenticationFailed`.
        """
        name = f"{host}:{port}"
        settings, context = PLAINTEXT, None
        if security is not None:
            try:
                settings, context = await security.credentials()
            except NoToken as error:
                raise ConnectionFailed(f"{name}: {error}") from error
        sock = await dial(host, port, timeout)
        try:
            connection = await tls.start(
                lambda: cls(name, client_id, settings, timeout), sock, host, context, timeout
            )
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError | ValueError):
                raise tls.failure_of(name, error, settings, timeout) from error
            raise
        try:
            await connection._begin(settings, security, timeout)
        except WireError as error:
            connection.abort(str(error))
            raise connection._not_a_broker(error) from error
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _begin(
        self, settings: ClientSecurity, security: OutgoingSecurity | None, timeout: float
    ) -> None:
        """Agree on versions and authenticate, before any other request."""
        try:
            await self._agree_on_versions(timeout)
        except ConnectionFailed as error:
            raise self._unanswered(error) from error
        if security is not None and settings.uses_sasl:
            self._authenticator = Authenticator(self._name, self, security)
            try:
                await self._authenticator.authenticate(settings)
            except AuthenticationError as error:
                mechanism = settings.sasl_mechanism or ""
                raise AuthenticationFailed(f"{self._name}: {error}", mechanism) from None
        self._first_id = self._correlation_id + 1
        self._opened_at = asyncio.get_running_loop().time()

    def _unanswered(self, error: ConnectionFailed) -> ApiError:
        """Return what is raised when the first request is not answered, with its likely cause."""
        if not self._was_hung_up:
            return self._not_a_broker(error)
        if isinstance(self._lost_by, ssl.SSLError):
            return tls.tls_failure(self._name, self._lost_by, self._security)
        if not self._security.uses_tls:
            return ConnectionFailed(f"{error} ({_SPEAKS_TLS})")
        if self._security.ssl_certificate_location is None:
            return ConnectionFailed(f"{error} ({_WANTS_CERTIFICATE})")
        return error

    def _is_unwelcome(self) -> bool:
        """Whether the other side closed a new connection at its first request."""
        return (
            not self._security.uses_sasl
            and self._in_flight.first_id() == self._first_id
            and asyncio.get_running_loop().time() < self._opened_at + _NEW_S
        )

    def _not_a_broker(self, error: QbusError) -> ApiError:
        said = str(error).removeprefix(f"{self._name}: ")
        reason = f"{self._name} does not respond like a broker: {said}"
        if "speaks TLS" in str(error):
            return TlsFailed(f"{reason} (security.protocol is SSL or SASL_SSL there)")
        return ConnectionFailed(reason)

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self._failure is None

    @property
    def load(self) -> int:
        """Number of requests in flight."""
        return len(self._in_flight) + (0 if self._held is None else len(self._held))

    def version(self, api: ApiKey) -> int:
        """Return the highest version of ``api`` that both sides speak.

        Raises :class:`~qbus.errors.ApiError` UNSUPPORTED_VERSION.
        """
        version = self._agreed.get(api)
        if version is None:
            version = self._agreed[api] = highest_common(api, self._versions)
        return version

    def feature(self, name: str) -> int:
        """Return the level of a feature that the whole cluster has (KIP-584); 0: none."""
        return self._features.get(name, 0)

    def version_by_id(self, api: ApiKey) -> int:
        """Return the highest version that names topics by id, or :meth:`version` if there is none.

        Raises :class:`~qbus.errors.ApiError` UNSUPPORTED_VERSION.
        """
        try:
            return highest_common(api, self._versions, SPOKEN_BY_ID)
        except ApiError:
            return self.version(api)

    async def request(
        self,
        api: ApiKey,
        message: Any,
        timeout: float,
        *,
        by_id: bool = False,
        newest: int | None = None,
    ) -> Any:
        """Return the response to ``message``, within ``timeout`` seconds; its records are not
        copied.

        by_id: the message holds topic ids besides names; send the ids if the broker knows them. See
            :meth:`version_by_id`.
        newest: the highest version to speak, where a later one means something else.

        Raises :class:`ConnectionFailed`, :class:`RequestTimedOut`, :class:`~qbus.errors.WireError`
        for a malformed response, and :class:`~qbus.errors.ApiError` UNSUPPORTED_VERSION.
        """
        answer = self.begin(api, message, timeout, by_id=by_id, newest=newest)
        await answer.frame
        return answer.response()

    def begin(
        self,
        api: ApiKey,
        message: Any,
        timeout: float,
        *,
        by_id: bool = False,
        newest: int | None = None,
        told: Told | None = None,
        write: Write | None = None,
    ) -> PendingAnswer:
        """Send ``message`` as :meth:`request` does, without waiting for the response.

        told: called when ``frame`` is done; where a response arrives, before the loop's next turn.
        write: writes it, instead of the codec.

        Raises :class:`ConnectionFailed`, and :class:`~qbus.errors.ApiError` UNSUPPORTED_VERSION.
        """
        version = self.version_by_id(api) if by_id else self.version(api)
        if newest is not None:
            version = min(version, newest)
        return PendingAnswer(
            api, version, self._exchange(api, version, message, timeout, told, write)
        )

    async def send(self, api: ApiKey, message: Any) -> None:
        """Send a message that has no response (Produce with ``acks=0``)."""
        self._check_open()
        correlation_id, parts = self._encoded(api, self.version(api), message)
        if self._held is not None:
            self._held.append(_Held(correlation_id, api, parts, 0, None))
        else:
            self._send(parts)
        assert self._write_buffer is not None
        await self._write_buffer.is_empty.wait()
        self._check_open()

    async def close(self) -> None:
        """Send what is written, then close; requests in flight fail."""
        if self._write_buffer is not None and self.is_open:
            self._write_buffer.hand_over()
        self._fail("closed")
        if self._transport is not None:
            self._transport.close()
            try:
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await self._lost.wait()
            except TimeoutError:
                self._transport.abort()

    def abort(self, reason: str = "closed") -> None:
        """Close without waiting; requests in flight fail."""
        self._fail(reason)
        if self._transport is not None:
            self._transport.abort()

    async def _agree_on_versions(self, timeout: float) -> None:
        request = ApiVersionsRequest(
            client_software_name="qbus-python", client_software_version=__version__
        )
        _, version = SPOKEN[ApiKey.API_VERSIONS]
        frame = await self._exchange(ApiKey.API_VERSIONS, version, request, timeout)
        # A broker that does not know the version refuses it in a response of version 0.
        if int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION:
            frame = await self._exchange(ApiKey.API_VERSIONS, 0, request, timeout)
            version = 0
        response: ApiVersionsResponse = decode_response(ApiKey.API_VERSIONS, version, frame)[1]
        check(response.error_code)
        self._versions = {
            served.api_key: (served.min_version, served.max_version) for served in response.api_keys
        }
        self._features = {
            feature.name: feature.max_version_level for feature in response.finalized_features
        }

    def _exchange(
        self,
        api: ApiKey,
        version: int,
        message: Any,
        timeout: float,
        told: Told | None = None,
        write: Write | None = None,
    ) -> asyncio.Future[memoryview]:
        self._check_open()
        correlation_id, parts = self._encoded(api, version, message, write)
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        if self._held is not None:
            self._held.append(_Held(correlation_id, api, parts, timeout, answer, told))
        else:
            self._send(parts)
            self._check_open()
            self._in_flight.add(correlation_id, api, timeout, answer, told)
        if told is not None:
            answer.add_done_callback(told)
        return answer

    def _encoded(
        self, api: ApiKey, version: int, message: Any, write: Write | None = None
    ) -> tuple[int, list[Part]]:
        self._correlation_id = number = (self._correlation_id + 1) & _MAX_CORRELATION_ID
        if write is not None:
            return number, write(version, number, self._client_id)
        return number, encode_request(api, version, number, self._client_id, message)

    # Called by the authenticator.

    async def ask_sasl(self, api: ApiKey, message: Any) -> Any:
        """Return the response to a request of SASL, also while others are held back.

        Those in flight are answered before it, however long they wait.
        """
        self._check_open()
        version = self.version(api)
        correlation_id, parts = self._encoded(api, version, message)
        self._send(parts)
        self._check_open()
        timeout = self._sasl_timeout + self._in_flight.longest_wait()
        frame = await self._in_flight.add(correlation_id, api, timeout)
        return decode_response(api, version, frame)[1]

    def hold(self) -> None:
        """Keep back requests from now on."""
        self._held = []

    def go_on(self) -> None:
        """Send what was kept back."""
        for request in self._held or ():
            self._send(request.parts)
            if not self.is_open:
                return  # all of them have failed
            if request.answer is not None:
                self._in_flight.add(
                    request.correlation_id,
                    request.api,
                    request.timeout,
                    request.answer,
                    request.told,
                )
        self._held = None

    def _send(self, parts: list[Part]) -> None:
        assert self._write_buffer is not None
        try:
            self._write_buffer.send(parts)
        except OSError as error:
            self.abort(str(error))

    def _check_open(self) -> None:
        if self._failure is not None:
            raise ConnectionFailed(str(self._failure))

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = ConnectionFailed(f"{self._name}: {reason}")
            if self._write_buffer is not None:
                self._write_buffer.clear()
            if self._authenticator is not None:
                self._authenticator.stop()
            self._in_flight.fail(str(self._failure))
            self._fail_held(str(self._failure))

    def _fail_held(self, reason: str) -> None:
        held, self._held = self._held or [], None
        for request in held:
            if request.answer is not None and not request.answer.done():
                request.answer.set_exception(ConnectionFailed(reason))

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._write_buffer = write_buffer_of(transport)
        if transport.get_extra_info("ssl_object") is None:
            self._receive_mark = ReceiveMark(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost_by = exc
        self._was_hung_up = self.is_open
        reason = str(exc) if exc else "the broker closed the connection"
        if self._is_unwelcome():
            reason = f"{reason} ({_WANTS_SASL})"
        self._fail(reason)
        self._lost.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._in_flight.answered(frame)
        except WireError as error:
            self.abort(str(error))
            return
        if self._receive_mark is not None:
            self._receive_mark.expect(self._frames.to_come())

    def pause_writing(self) -> None:
        if self._write_buffer is not None:
            self._write_buffer.pause()

    def resume_writing(self) -> None:
        if self._write_buffer is not None and self.is_open:
            try:
                self._write_buffer.resume()
            except OSError as error:
                self.abort(str(error))
