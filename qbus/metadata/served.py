"""A session with a store that another process of the machine serves; see :mod:`.serving`."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from time import perf_counter
from typing import Any

from qbus.metadata import messages, paths
from qbus.metadata.errors import StoreUnavailable
from qbus.metadata.store import MetadataStore, Node, Op, Result, SessionState, check

_GONE = "the process that serves the metadata store is gone"
_CLOSED = "the session with the metadata store is closed"
_PINGS = 5  # in the time-out of a session


class ServedStore(MetadataStore):
    """A session over a connected stream, which is its own.

    It is lost when the stream ends: the process that serves the store has ended, its file has
    failed, or it has heard nothing for the session time-out. The event loop pings it: one that
    stands still does not. It is suspended only while it is in doubt.
    """

    def __init__(self, sock: socket.socket, session_timeout_s: float = 9.0) -> None:
        self._sock = sock
        self._ping_s = session_timeout_s / _PINGS
        self._state = SessionState.SUSPENDED
        self._callbacks: list[Callable[[SessionState], None]] = []
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._watches: dict[int, Callable[[], None]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._pinging: asyncio.Task[None] | None = None

    @property
    def state(self) -> SessionState:
        """CONNECTED from start to close, unless the stream ends, or the session is in doubt."""
        return self._state

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        """Call ``callback`` when the state changes."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """Begin the session."""
        if self._writer is not None:
            raise StoreUnavailable("the session with the metadata store was begun already")
        reader, self._writer = await asyncio.open_connection(sock=self._sock)
        self._reading = asyncio.create_task(self._read(reader))
        self._enter(SessionState.CONNECTED)
        self._pinging = asyncio.create_task(self._ping())

    def doubt(self) -> None:
        """See :class:`MetadataStore`."""
        if self._state is SessionState.CONNECTED:
            answer = self._ask(messages.PING)
            self._enter(SessionState.SUSPENDED)
            answer.add_done_callback(self._on_pong)

    def _on_pong(self, answer: asyncio.Future[Any]) -> None:
        if not answer.exception() and self._state is SessionState.SUSPENDED:
            self._enter(SessionState.CONNECTED)

    async def _ping(self) -> None:
        """Say again and again that this process lives; requests say it, too."""
        while self._state is not SessionState.LOST:
            if self._state is SessionState.CONNECTED:
                self._ask(messages.PING).add_done_callback(asyncio.Future.exception)
            await asyncio.sleep(self._ping_s)

    async def close(self) -> None:
        """Finish requests under way, and end the session."""
        if self._writer is None:
            self._sock.close()
            return
        if self._state is not SessionState.LOST:
            ended = self._send(messages.END)
            self._enter(SessionState.LOST)
            with suppress(StoreUnavailable):
                await ended
        self._writer.close()
        assert self._reading is not None
        assert self._pinging is not None
        self._pinging.cancel()
        await asyncio.wait([self._reading, self._pinging])

    async def get(self, path: str, watch: Callable[[], None] | None = None) -> Node | None:
        """The node at ``path``."""
        paths.check(path)
        return messages.node_in(await self._ask(messages.GET, path, watch=watch))

    async def get_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        """Those of the nodes that there are."""
        for path in wanted:
            paths.check(path)
        return messages.nodes_in(await self._ask(messages.GET_MANY, list(wanted)))

    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
        """The names below ``path``."""
        paths.check(path)
        names: list[str] = await self._ask(messages.CHILDREN, path, watch=watch)
        return names

    async def tree(self, path: str) -> dict[str, Node]:
        """The nodes from ``path`` down."""
        paths.check(path)
        return messages.nodes_in(await self._ask(messages.TREE, path))

    async def transaction(self, operations: Sequence[Op]) -> list[Result]:
        """Apply the operations together."""
        return await self._transact(messages.TRANSACTION, operations)

    async def lazy_transaction(self, operations: Sequence[Op]) -> list[Result]:
        """Apply the operations together; they are in the system's cache then, not on the disk."""
        return await self._transact(messages.LAZY_TRANSACTION, operations)

    async def _transact(self, name: str, operations: Sequence[Op]) -> list[Result]:
        wanted = tuple(operations)
        for operation in wanted:
            check(operation)
        results: list[Result] = await self._ask(name, messages.operations_out(wanted))
        return results

    def _ask(
        self, name: str, *arguments: Any, watch: Callable[[], None] | None = None
    ) -> asyncio.Future[Any]:
        if self._writer is None or self._state is not SessionState.CONNECTED:
            raise StoreUnavailable(_CLOSED)
        return self._send(name, *arguments, watch=watch)

    def _send(
        self, name: str, *arguments: Any, watch: Callable[[], None] | None = None
    ) -> asyncio.Future[Any]:
        assert self._writer is not None, "the session has not begun"
        number = next(self._numbers)
        if name in {messages.GET, messages.CHILDREN}:
            arguments = (*arguments, watch is not None)
        if watch is not None:
            self._watches[number] = watch
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        started = perf_counter()
        answer.add_done_callback(lambda _: self.timings.observe(perf_counter() - started))
        self._writer.write(messages.frame([number, name, *arguments]))
        return answer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(messages.LENGTH))
                self._take(messages.load(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._enter(SessionState.LOST)
            answers, self._answers = self._answers, {}
            for answer in answers.values():
                if not answer.done():
                    answer.set_exception(StoreUnavailable(_GONE))

    def _take(self, message: list[Any]) -> None:
        number, *rest = message
        if number < 0:
            watch = self._watches.pop(-number, None)
            if watch is not None:
                watch()
            return
        answer = self._answers.pop(number)
        if answer.done():  # cancelled
            return
        result, *error = rest
        if error:
            answer.set_exception(messages.error_in(*error))
        else:
            answer.set_result(result)

    def _enter(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        if state is SessionState.LOST:
            watches, self._watches = self._watches, {}
            for watch in watches.values():
                watch()
        for callback in self._callbacks:
            callback(state)
