"""One page over HTTP, such as metrics, from a thread of its own; bounded in every direction.

A request has no body, and one connection has one request (RFC 9112 with ``Connection: close``).
Whoever is slow, sends too much or something else than HTTP is answered with the error's status, as
far as that can be said, and loses the connection. Connections have a limit: a new one takes the
place of the oldest that has not sent its request yet, so that idle ones keep nobody out.
"""

import asyncio
import base64
import hmac
import logging
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple

from .descriptors import OUT_OF_DESCRIPTORS, SpareDescriptor, limit, shortages

_log = logging.getLogger(__name__)

MAX_HEAD: Final = 16 * 1024
MAX_HEADERS: Final = 64
MAX_CONNECTIONS: Final = 256
REQUEST_S: Final = 10.0
"""How long a client may take for its TLS handshake and its request."""

RESPONSE_S: Final = 60.0
"""How long it may take to receive the response."""

MAX_SENDING: Final = 64 << 20
"""How many bytes of responses wait for their clients at most; one response may have more."""

_BACKLOG: Final = 128
_AT_ONCE: Final = 2  # pages that are made
_ACCEPT_AGAIN_S: Final = 0.1
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,32}) ([!-~]{1,8192}) HTTP/1\.[01]")
_HEADER_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(rb"[\t -~\x80-\xff]*")
_SINGLE: Final = frozenset({"authorization", "host"})


class BadRequestError(Exception):
    """The bytes are no request that is served; ``status`` says why."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class Request(NamedTuple):
    """A request; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Response:
    """A response with its whole body."""

    status: HTTPStatus
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, *, with_body: bool = True) -> bytes:
        """Its bytes; the answer to HEAD has no body, and the length of one."""
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
            f"Content-Length: {len(self.body)}",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        head = "".join(f"{line}\r\n" for line in lines).encode("latin-1")
        return head + b"\r\n" + (self.body if with_body else b"")


def parse_request(head: bytes) -> Request:
    """Read a request's line and headers, which end with an empty line. Raises BadRequestError."""
    line, *rest = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    if len(rest) > MAX_HEADERS:
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    headers: dict[str, str] = {}
    for text in rest:
        name, value = _parse_header(text)
        if name in headers:
            if name in _SINGLE:
                raise BadRequestError(HTTPStatus.BAD_REQUEST)
            value = f"{headers[name]}, {value}"
        headers[name] = value
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return Request(found[1].decode("ascii"), found[2].decode("ascii"), headers)


def _parse_header(text: bytes) -> tuple[str, str]:
    """Name, in lower case, and value, without the spaces around it. Takes linear time.

    Raises BadRequestError.
    """
    name, colon, value = text.partition(b":")
    if not (colon and _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    return name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")


def basic_credentials(header: str) -> tuple[str, str] | None:
    """User and password of an ``Authorization`` header (RFC 7617); None: it has another form."""
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(token.strip(), validate=True).decode()
    except ValueError:
        return None
    user, colon, password = text.partition(":")
    return (user, password) if colon else None


class Caller(NamedTuple):
    """Who asks: the address, what it says of itself, and its certificate in DER, if it has any."""

    host: str
    user: str | None = None
    password: str | None = None
    certificate: bytes | None = None

    def __repr__(self) -> str:
        return f"Caller({self.host})"


Decide = Callable[[Caller], Awaitable[HTTPStatus]]
"""Tells whether somebody may see the page: OK, UNAUTHORIZED for whoever has not said who it is, or
in vain, or FORBIDDEN. It is awaited in the server's thread."""

_INNER: Final = "x-qbus-inner"
_ADDRESS: Final = "x-qbus-client"
_CERTIFICATE: Final = "x-qbus-certificate"


class Asking(NamedTuple):
    """On whose behalf a process asks another one of this program: what a client has shown.

    ``authorization`` is the header of that name; ``certificate`` is in DER.
    """

    host: str
    authorization: str = ""
    certificate: bytes | None = None

    def headers(self, secret: str) -> dict[str, str]:
        """The headers that say so; ``secret``: what both processes know, and nobody else."""
        found = {_INNER: secret, _ADDRESS: self.host}
        if self.authorization:
            found["Authorization"] = self.authorization
        if self.certificate is not None:
            found[_CERTIFICATE] = base64.b64encode(self.certificate).decode("ascii")
        return found

    @classmethod
    def parse(cls, headers: Mapping[str, str], secret: str) -> "Asking | None":
        """What the headers say; None: they are not those of a process that knows the secret."""
        stated = headers.get(_INNER, "").encode("latin-1")
        if not secret or not hmac.compare_digest(stated, secret.encode("latin-1")):
            return None
        encoded = headers.get(_CERTIFICATE)
        certificate = None if encoded is None else base64.b64decode(encoded)
        return cls(headers.get(_ADDRESS, ""), headers.get("authorization", ""), certificate)


asking: ContextVar[Asking | None] = ContextVar("asking", default=None)
"""Who makes the request that is answered."""


class PageServer:
    """Serves one page, which ``render`` makes, in a thread, of each request.

    ``tls`` makes the context of a connection; None: nothing is encrypted. ``decide``: None: anybody
    may see the page. ``inner_secret``: what another process of this program says that asks for
    others; empty: none does.
    """

    def __init__(
        self,
        sock: socket.socket,
        render: Callable[[Request], Response],
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        decide: Decide | None = None,
        inner_secret: str = "",
        request_s: float = REQUEST_S,
        max_connections: int | None = None,
    ) -> None:
        """``sock`` listens. ``request_s``: how long a client may take to ask, in seconds.

        ``max_connections``: None: 256, or a sixteenth of the process's descriptors if that is less.
        """
        self._sock = sock
        self._render = render
        self._tls = tls
        self._decide = decide
        self._inner_secret = inner_secret
        self._request_s = request_s
        self._max_connections = max_connections or min(MAX_CONNECTIONS, limit() // 16 + 1)
        self._spare = SpareDescriptor()
        self._asking: dict[asyncio.Task[None], str] = {}  # and from where; the oldest first
        self._sending: dict[asyncio.Task[None], int] = {}  # and how many bytes; the oldest first
        self._tasks: set[asyncio.Task[None]] = set()
        self._rendering = asyncio.Semaphore(_AT_ONCE)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._sock.setblocking(False)
        self._thread.start()
        self._is_ready.wait()

    def stop(self) -> None:
        """Close everything, and wait until that is done."""
        loop, over = self._loop, self._over
        if loop is not None and over is not None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(over.set)
        self._thread.join()
        self._sock.close()
        self._spare.close()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._loop.add_reader(self._sock, self._on_acceptable)
        self._is_ready.set()
        await self._over.wait()
        self._loop.remove_reader(self._sock)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_acceptable(self) -> None:
        """Accept one client: there may be many, and those that are here go on meanwhile."""
        try:
            connection, address = self._sock.accept()
        except BlockingIOError:
            return
        except OSError as error:  # for want of descriptors, or the client has gone
            if error.errno in OUT_OF_DESCRIPTORS:
                self._spare.turn_away(self._sock)
                shortages.report(f"accept connections for {self._thread.name}", error)
            self._accept_later()
            return
        connection.setblocking(False)
        if len(self._tasks) >= self._max_connections and not self._drop_oldest():
            connection.close()
            return
        host = str(address[0])
        task = asyncio.get_running_loop().create_task(self._converse(connection, host))
        self._tasks.add(task)
        self._asking[task] = host
        task.add_done_callback(partial(self._ended, connection))

    def _accept_later(self) -> None:
        loop, over = asyncio.get_running_loop(), self._over

        def accept_again() -> None:
            if over is not None and not over.is_set():
                loop.add_reader(self._sock, self._on_acceptable)

        loop.remove_reader(self._sock)
        loop.call_later(_ACCEPT_AGAIN_S, accept_again)

    def _drop_oldest(self) -> bool:
        """Close the oldest connection without a request, of the address with most of them.

        Whether there is one.
        """
        if not self._asking:
            return False
        ((host, _),) = Counter(self._asking.values()).most_common(1)
        task = next(task for task, address in self._asking.items() if address == host)
        del self._asking[task]
        self._tasks.discard(task)
        task.cancel()
        return True

    def _ended(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        connection.close()  # it may have been cancelled before it began
        self._tasks.discard(task)
        self._asking.pop(task, None)
        self._sending.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("a connection for metrics has failed: %s", error)

    async def _converse(self, connection: socket.socket, host: str) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(self._request_s) as patience:
                reader, writer = await self._open(connection)
                request = await _read_request(reader)
                patience.reschedule(None)
            self._no_longer_asking()
            answer = await self._answer(request, self._caller(request, host, writer))
            data = answer.encode(with_body=request.method != "HEAD")
            del answer
            self._make_room_for(len(data))
            writer.write(data)
            del data  # the transport has copied what is not sent yet
            async with asyncio.timeout(RESPONSE_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except BadRequestError as error:
            await _refuse(writer, error.status)
        except TimeoutError:
            await _refuse(writer, HTTPStatus.REQUEST_TIMEOUT)
        except (OSError, asyncio.IncompleteReadError, ssl.SSLError) as error:
            _log.debug("the client of metrics at %s is gone: %s", host, error)
        finally:
            if writer is not None:
                writer.transport.abort()

    def _no_longer_asking(self) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._asking.pop(task, None)

    def _make_room_for(self, size: int) -> None:
        """Count a response of ``size`` bytes; beyond the limit, drop those that take longest."""
        task = asyncio.current_task()
        assert task is not None
        others = sum(self._sending.values())
        while self._sending and others + size > MAX_SENDING:
            oldest = next(iter(self._sending))
            others -= self._sending.pop(oldest)
            oldest.cancel()
            _log.warning("a response with metrics is dropped: clients read them too slowly")
        self._sending[task] = size

    async def _open(
        self, connection: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(MAX_HEAD, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        context = None if self._tls is None else self._tls()
        limit = None if context is None else self._request_s
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=context, ssl_handshake_timeout=limit
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def _caller(self, request: Request, host: str, writer: asyncio.StreamWriter) -> Caller:
        found = Asking.parse(request.headers, self._inner_secret)
        if found is None:
            encryption: ssl.SSLObject | None = writer.get_extra_info("ssl_object")
            certificate = None if encryption is None else encryption.getpeercert(True)
            found = Asking(host, request.headers.get("authorization", ""), certificate)
        asking.set(found)
        user, password = basic_credentials(found.authorization) or (None, None)
        return Caller(found.host, user, password, found.certificate)

    async def _answer(self, request: Request, caller: Caller) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET, HEAD"})
        status = HTTPStatus.OK if self._decide is None else await _admit(self._decide, caller)
        if status is HTTPStatus.UNAUTHORIZED:
            challenge = 'Basic realm="qbus metrics", charset="UTF-8"'
            return Response(status, headers={"WWW-Authenticate": challenge})
        if status is not HTTPStatus.OK:
            return Response(status)
        async with self._rendering:
            try:
                return await asyncio.to_thread(self._render, request)
            except Exception:  # noqa: BLE001 - a defect must not leave the client waiting
                _log.exception("the page of metrics cannot be made")
                return Response(HTTPStatus.INTERNAL_SERVER_ERROR)


async def _admit(decide: Decide, caller: Caller) -> HTTPStatus:
    try:
        return await decide(caller)
    except Exception:  # noqa: BLE001 - nobody is let in when in doubt
        _log.exception("it cannot be decided who may see the metrics")
        return HTTPStatus.SERVICE_UNAVAILABLE


async def _read_request(reader: asyncio.StreamReader) -> Request:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
    return parse_request(head)


async def _refuse(writer: asyncio.StreamWriter | None, status: HTTPStatus) -> None:
    if writer is None:
        return
    with suppress(OSError, TimeoutError, ssl.SSLError):
        async with asyncio.timeout(1.0):
            writer.write(Response(status).encode())
            await writer.drain()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; an empty host means all interfaces. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
