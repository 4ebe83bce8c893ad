"""Commands to other nodes: what is not led here is asked of the node that leads it.

A node answers the commands of one connection in their order. So what waits there, for replicas or
for a disk, never shares a connection with what is answered at once, and whether a node lives is
asked over a connection that carries nothing else.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, cast

from qbus.config import Address
from qbus.errors import ConfigError

from . import resp
from .errors import CommandError
from .nodes import TlsAddress

_CONNECT_S: Final = 5.0
_READ_BYTES: Final = 256 * 1024
_MOST_QUICK: Final = 2  # connections to a node for what it answers at once
_MOST_PATIENT: Final = 16  # for what may wait; more than that share them

_LOCAL: Final = "QBUS.LOCAL"

Word = bytes | str | int
Reply = bytes | int | list[Any] | None


class NodeUnavailableError(Exception):
    """Another node cannot be reached, or did not answer; what it was asked may be done or not.

    The message says which node, what it was asked, and why there is no answer.
    """


class _NoAnswerError(Exception):
    """Why there is no answer, in words that follow the name of a node."""


class _ReplyReader(Protocol):
    """hiredis, as far as it is needed."""

    def feed(self, data: bytes, /) -> None: ...

    def gets(self) -> Any: ...


def _reply_reader() -> _ReplyReader:
    import hiredis  # noqa: PLC0415 - which a broker that is alone need not load

    return cast(
        "_ReplyReader",
        hiredis.Reader(protocolError=_NoAnswerError, replyError=CommandError),
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
    def greeting(self) -> list[Word]:
        """The command that a connection begins with; empty: there is none."""
        if not self.password:
            return []
        return ["AUTH", *([self.user] if self.user else []), self.password]

    def __repr__(self) -> str:
        return f"Link(user={self.user!r}, tls={self.tls is not None})"


class NodeConnection:
    """A connection to another node; commands are answered in their order.

    The first command opens it. It ends once: whoever asks after that needs another one.
    """

    def __init__(self, address: Address, link: Link) -> None:
        self._address = address
        self._link = link
        self._writer: asyncio.StreamWriter | None = None
        self._opening: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._unanswered: deque[asyncio.Future[Any]] = deque()
        self._is_closed = False
        self._is_doubtful = False  # an answer did not come in time
        self.callers = 0
        """How many wait for an answer."""

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._is_closed

    @property
    def takes_more(self) -> bool:
        """Whether anything more should be asked over it."""
        return not self._is_closed and not self._is_doubtful

    async def call(self, arguments: Sequence[Word], timeout_s: float) -> Reply:
        """The reply to a command.

        An answer that does not come in time ends the connection as soon as nobody else waits for
        one. Raises CommandError for an error reply, NodeUnavailableError.
        """
        self.callers += 1
        try:
            async with asyncio.timeout(timeout_s):
                await self._opened()
                reply: Reply = await self._write(arguments)
        except TimeoutError:
            self._is_doubtful = True
            why = f"did not answer {_name_of(arguments)} within {timeout_s:g} s"
            raise NodeUnavailableError(f"{self._address} {why}") from None
        except _NoAnswerError as error:
            why = f"{error}, and has not answered {_name_of(arguments)}"
            raise NodeUnavailableError(f"{self._address} {why}") from error
        finally:
            self.callers -= 1
            if self._is_doubtful and not self.callers:
                self.close()
        return reply

    def close(self) -> None:
        """Close it; who waits for an answer hears of that."""
        for task in (self._opening, self._reading):
            if task is not None:
                task.cancel()
        self._lost("was closed by this node")

    async def _opened(self) -> None:
        """Wait until it is open: whoever goes away meanwhile ends that for nobody else."""
        if self._is_closed:
            raise _NoAnswerError("was left by this node")
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._on_open)
        try:
            await asyncio.shield(self._opening)
        except asyncio.CancelledError:
            if self._opening.cancelled():
                raise _NoAnswerError("was closed by this node") from None
            raise

    def _on_open(self, opening: asyncio.Task[None]) -> None:
        if not opening.cancelled() and opening.exception() is not None:
            self._lost("cannot be reached")  # who waits has the reason

    def _write(self, arguments: Sequence[Word]) -> asyncio.Future[Any]:
        writer = self._writer
        if writer is None:
            raise _NoAnswerError("has closed the connection")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._unanswered.append(future)
        writer.write(resp.command(arguments))
        return future

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(_CONNECT_S):
                context = await self._context()
                reader, self._writer = await asyncio.open_connection(*self._address, ssl=context)
                self._reading = asyncio.create_task(self._read(reader))
                if greeting := self._link.greeting:
                    await self._write(greeting)
        except TimeoutError:
            raise _NoAnswerError(f"cannot be connected to within {_CONNECT_S:g} s") from None
        except OSError as error:
            raise _NoAnswerError(f"cannot be reached: {error}") from error
        except CommandError as error:
            raise _NoAnswerError(f"refuses this node: {error}") from error

    async def _context(self) -> ssl.SSLContext | None:
        if not isinstance(self._address, TlsAddress):
            return None
        if self._link.tls is None:
            raise _NoAnswerError("speaks TLS, and this node does not")
        try:
            return await asyncio.to_thread(self._link.tls)  # it reads files
        except ConfigError as error:
            raise _NoAnswerError(f"cannot be reached with TLS: {error}") from error

    async def _read(self, reader: asyncio.StreamReader) -> None:
        replies, why = _reply_reader(), "has closed the connection"
        try:
            while data := await reader.read(_READ_BYTES):
                replies.feed(data)
                while (reply := replies.gets()) is not False:
                    self._answer(reply)
        except OSError as error:
            why = f"has lost the connection: {error}"
        except _NoAnswerError as error:
            why = f"answers what is no reply: {error}"
        self._lost(why)

    def _answer(self, reply: Any) -> None:
        if not self._unanswered:
            raise _NoAnswerError("nothing was asked")
        future = self._unanswered.popleft()
        if future.done():  # whoever asked has gone
            return
        if isinstance(reply, CommandError):
            future.set_exception(reply)
        else:
            future.set_result(reply)

    def _lost(self, why: str) -> None:
        """It has ended: tell who waits for an answer ``why``."""
        self._is_closed = True
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError, RuntimeError):
                writer.close()
        unanswered, self._unanswered = self._unanswered, deque()
        for future in unanswered:
            if not future.done():
                future.set_exception(_NoAnswerError(why))


def _name_of(arguments: Sequence[Word]) -> str:
    """What a command is called: never what it is about."""
    name = next((word for word in arguments if word not in {_LOCAL, _LOCAL.encode()}), "")
    return name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)


class _Pool:
    """Connections to one node for commands of one kind: as many as are used, up to ``most``."""

    def __init__(self, address: Address, link: Link, most: int) -> None:
        self._address = address
        self._link = link
        self._most = most
        self._connections: list[NodeConnection] = []

    def pick(self) -> NodeConnection:
        """A connection on which nobody waits, or where the fewest do."""
        self._connections = [one for one in self._connections if not one.is_closed]
        usable = [one for one in self._connections if one.takes_more]
        best = min(usable, key=lambda one: one.callers, default=None)
        if best is None or (best.callers and len(usable) < self._most):
            best = NodeConnection(self._address, self._link)
            self._connections.append(best)
        return best

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody waits for an answer."""
        return any(one.callers for one in self._connections)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()


class Peers:
    """The connections to all other nodes: apart for what waits, and for what does not."""

    def __init__(self, link: Link, timeout_s: float) -> None:
        """``timeout_s``: for how long an answer is waited for if nobody says otherwise."""
        self._link = link
        self._timeout_s = timeout_s
        self._pools: dict[tuple[Address, int], _Pool] = {}
        self._greeted: dict[Address, _Pool] = {}

    async def call(self, address: Address, *arguments: Word) -> Reply:
        """A node's own reply to a command that it answers at once.

        Raises CommandError for an error reply, NodeUnavailableError.
        """
        connection = self._pool(address, _MOST_QUICK).pick()
        return await connection.call([_LOCAL, *arguments], self._timeout_s)

    async def call_patiently(
        self, address: Address, *arguments: Word, timeout_s: float | None = None
    ) -> Reply:
        """The same for a command that may wait for replicas or a disk, for so many seconds."""
        connection = self._pool(address, _MOST_PATIENT).pick()
        most_s = self._timeout_s if timeout_s is None else timeout_s
        return await connection.call([_LOCAL, *arguments], most_s)

    async def greet(self, address: Address, timeout_s: float) -> None:
        """Return once a node has said that it is there, which nothing keeps it from if it is.

        Raises CommandError, if it refuses to say so, NodeUnavailableError.
        """
        pool = self._greeted.get(address)
        if pool is None:
            pool = self._greeted[address] = _Pool(address, self._link, 1)
        await pool.pick().call([_LOCAL, "PING"], timeout_s)

    def connect(self, address: Address) -> NodeConnection:
        """A connection of one's own, for commands behind which nothing is answered."""
        return NodeConnection(address, self._link)

    def keep(self, addresses: Container[Address]) -> None:
        """Close what leads to other addresses than these, as soon as nobody waits there."""
        for key, pool in list(self._pools.items()):
            if key[0] not in addresses and not pool.is_waited_for:
                self._pools.pop(key).close()
        for address, pool in list(self._greeted.items()):
            if address not in addresses and not pool.is_waited_for:
                self._greeted.pop(address).close()

    def close(self) -> None:
        """Close all connections."""
        for pool in [*self._pools.values(), *self._greeted.values()]:
            pool.close()
        self._pools.clear()
        self._greeted.clear()

    def _pool(self, address: Address, most: int) -> _Pool:
        pool = self._pools.get((address, most))
        if pool is None:
            pool = self._pools[address, most] = _Pool(address, self._link, most)
        return pool
