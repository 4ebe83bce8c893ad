"""Commands to other nodes: what is not led here is asked of the node that leads it."""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, cast

from qbus.clock import Clock
from qbus.config import Address
from qbus.errors import ConfigError

from ..delay.log_throttle import LogThrottle
from . import resp
from .errors import CommandError
from .nodes import Node, TlsAddress

_log = logging.getLogger(__name__)

_SAY_AGAIN_S: Final = 60.0
_CONNECT_S: Final = 5.0
_READ_BYTES: Final = 256 * 1024

Reply = bytes | int | list[Any] | None


class NodeUnavailableError(Exception):
    """Another node cannot be reached, or did not answer; what it was asked may be done or not."""


class _ReplyReader(Protocol):
    """hiredis, as far as it is needed."""

    def feed(self, data: bytes, /) -> None: ...

    def gets(self) -> Any: ...


def _reply_reader() -> _ReplyReader:
    import hiredis  # noqa: PLC0415 - which a broker that is alone need not load

    return cast(
        "_ReplyReader",
        hiredis.Reader(protocolError=NodeUnavailableError, replyError=CommandError),
    )


class Link(NamedTuple):
    """How a node connects to others: what it says of itself, and how it encrypts.

    ``user`` and ``password``: given with AUTH; without a user, the password alone; without a
    password, nothing. ``tls`` makes the context of a connection to an address where TLS is spoken.
    """

    user: str = ""
    password: bytes = b""
    tls: Callable[[], ssl.SSLContext] | None = None

    @property
    def greeting(self) -> list[bytes | str | int]:
        """The command that a connection begins with; empty: there is none."""
        if not self.password:
            return []
        return ["AUTH", *([self.user] if self.user else []), self.password]

    def __repr__(self) -> str:
        return f"Link(user={self.user!r}, tls={self.tls is not None})"


class PeerConnection:
    """A connection to another node; commands are answered in their order."""

    def __init__(self, address: Address, link: Link) -> None:
        self._address = address
        self._link = link
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._opening = asyncio.Lock()

    async def call(self, arguments: Sequence[bytes | str | int], timeout_s: float) -> Reply:
        """The reply to a command.

        Raises CommandError for an error reply, NodeUnavailableError.
        """
        try:
            async with asyncio.timeout(timeout_s):
                future = await self._send(arguments)
                reply: Reply = await future
        except TimeoutError:
            self.close()
            raise NodeUnavailableError(f"{self._address} did not answer in time") from None
        except OSError as error:
            self.close()
            raise NodeUnavailableError(f"{self._address}: {error}") from error
        return reply

    def close(self) -> None:
        """Close the connection; the next command opens it again."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._lost(f"the connection to {self._address} was closed")

    async def _send(self, arguments: Sequence[bytes | str | int]) -> asyncio.Future[Any]:
        async with self._opening:
            if self._writer is None:
                await self._open()
            return self._write(arguments)

    def _write(self, arguments: Sequence[bytes | str | int]) -> asyncio.Future[Any]:
        writer = self._writer
        if writer is None:
            raise NodeUnavailableError(f"the connection to {self._address} was closed")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        writer.write(resp.command(arguments))
        return future

    async def _open(self) -> None:
        link = self._link
        async with asyncio.timeout(_CONNECT_S):
            context = await self._context()
            reader, self._writer = await asyncio.open_connection(*self._address, ssl=context)
        self._reading = asyncio.create_task(self._read(reader))
        if greeting := link.greeting:
            try:
                await self._write(greeting)
            except CommandError as error:
                self.close()
                raise NodeUnavailableError(f"{self._address} refuses this node: {error}") from error

    async def _context(self) -> ssl.SSLContext | None:
        if not isinstance(self._address, TlsAddress):
            return None
        if self._link.tls is None:
            raise NodeUnavailableError(f"{self._address} speaks TLS, and this node does not")
        try:
            return await asyncio.to_thread(self._link.tls)  # it reads files
        except ConfigError as error:
            raise NodeUnavailableError(f"{self._address}: {error}") from error

    async def _read(self, reader: asyncio.StreamReader) -> None:
        replies, why = _reply_reader(), "closed the connection"
        try:
            while data := await reader.read(_READ_BYTES):
                replies.feed(data)
                while (reply := replies.gets()) is not False:
                    self._answer(reply)
        except (OSError, NodeUnavailableError) as error:
            why = str(error)
        self._reading = None
        self._lost(f"{self._address} {why}")

    def _answer(self, reply: Any) -> None:
        if not self._waiting:
            raise NodeUnavailableError("it answers what it was not asked")
        future = self._waiting.popleft()
        if future.done():
            return
        if isinstance(reply, CommandError):
            future.set_exception(reply)
        else:
            future.set_result(reply)

    def _lost(self, why: str) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError, RuntimeError):
                writer.close()
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_exception(NodeUnavailableError(why))


class Peers:
    """The connections to all other nodes: one for quick commands, one for each that waits."""

    def __init__(self, link: Link, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._connections: dict[Address, PeerConnection] = {}

    async def call(self, address: Address, *arguments: bytes | str | int) -> Reply:
        """The reply to a command that is answered at once.

        Raises CommandError for an error reply, NodeUnavailableError.
        """
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self.connect(address)
        return await connection.call(arguments, self._timeout_s)

    def connect(self, address: Address) -> PeerConnection:
        """A connection of one's own, for commands that wait; it is opened by the first one."""
        return PeerConnection(address, self._link)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


class SilentNodes:
    """The nodes that did not answer in time, until they do.

    Nobody who wants an answer soon waits for them. Whenever one of them would be asked, it is asked
    beside everything else whether it answers again.
    """

    def __init__(
        self,
        greet: Callable[[Node], Coroutine[Any, Any, None]],
        run: Callable[[Coroutine[Any, Any, None]], object],
        clock: Clock,
    ) -> None:
        """``greet`` ends once a node answers, or raises as :class:`Peers` does."""
        self._greet = greet
        self._run = run
        self._is_greeted: dict[str, bool] = {}  # by the node's name: whether that is under way
        self._lines = LogThrottle(clock, _SAY_AGAIN_S)

    def add(self, node: Node) -> None:
        """A node has not answered in time."""
        if node.name in self._is_greeted:
            return
        self._is_greeted[node.name] = False
        if self._lines.allows():
            _log.warning(
                "node %s at %s does not answer in time: jobs that it has are not waited for until"
                " it does; look at its load, its log and the network (said once a minute at most)",
                *(node.name[:8], node.for_nodes),
            )

    def discard(self, node: Node) -> None:
        """A node has answered."""
        if self._is_greeted.pop(node.name, None) is not None:
            _log.info("node %s at %s answers again", node.name[:8], node.for_nodes)

    def keep(self, names: Collection[str]) -> None:
        """These nodes alone live; those that come back begin anew."""
        for name in self._is_greeted.keys() - names:
            del self._is_greeted[name]

    def has(self, node: Node) -> bool:
        """Whether a node has not answered of late; if so, it is asked whether it does by now."""
        is_greeted = self._is_greeted.get(node.name)
        if is_greeted is False:
            self._is_greeted[node.name] = True
            self._run(self._try(node))
        return is_greeted is not None

    async def _try(self, node: Node) -> None:
        try:
            await self._greet(node)
        except CommandError as error:  # it answers, if only that
            _log.debug("node %s refuses to say whether it is there: %s", node.name, error)
        except NodeUnavailableError as error:
            _log.debug("node %s is still silent: %s", node.name, error)
            return
        finally:  # a defect leaves it silent, but not for ever
            if node.name in self._is_greeted:
                self._is_greeted[node.name] = False
        self.discard(node)
