"""Serves an embedded store to other processes of the machine, a stream for each session.

A session lives as long as its stream. The system closes the streams of a process that dies,
however it dies: so a session ends at once with its process. A process that lives and stands still
is silent: its session ends when nothing was heard of it for the session time-out, and half as long
again at most. The nodes of a session end with it; on a full disk, as soon as there is room.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from itertools import count
from typing import Any

from qbus.metadata import messages
from qbus.metadata.database import OWN_SESSION
from qbus.metadata.embedded import EmbeddedStore
from qbus.metadata.errors import StoreUnavailable
from qbus.metadata.store import SessionState

_log = logging.getLogger(__name__)

_RETRY_S = 1.0
# Silence is counted in looks, not by the clock: where this process stood still itself, it reads
# what the sessions sent meanwhile before it looks again.
_LOOKS = 4  # in the time-out of a session
_SILENT_LOOKS = 6


class StoreServer:
    """The sessions of a store that is started; when it is lost, so are they."""

    def __init__(self, store: EmbeddedStore, session_timeout_s: float = 9.0) -> None:
        """``session_timeout_s``: seconds of silence that end a session."""
        self._store = store
        self._look_s = session_timeout_s / _LOOKS
        self._numbers = count(OWN_SESSION + 1)
        self._sessions: dict[asyncio.Task[None], _Session] = {}
        self._looking: asyncio.TimerHandle | None = None
        store.on_state(self._end_with_store)

    def serve(self, sock: socket.socket) -> "asyncio.Task[None]":
        """Begin a session over a connected stream; the task ends when its nodes are gone."""
        session = _Session(self._store, next(self._numbers))
        task = asyncio.create_task(session.run(sock))
        self._sessions[task] = session
        task.add_done_callback(self._sessions.pop)
        if self._looking is None:
            self._look_later()
        return task

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(self._look_s, self._look)

    def _look(self) -> None:
        """End the sessions that are silent."""
        for session in self._sessions.values():
            session.end_if_silent()
        self._look_later()

    async def close(self) -> None:
        """End the sessions that are left."""
        if self._looking is not None:
            self._looking.cancel()
        tasks = list(self._sessions)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end_with_store(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            for task in self._sessions:
                task.cancel()


class _Session:
    """One session: requests in their order, answers as they come."""

    def __init__(self, store: EmbeddedStore, number: int) -> None:
        self._store = store
        self._number = number
        self._writer: asyncio.StreamWriter | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._silent_looks = 0
        self._has_begun = False

    def end_if_silent(self) -> None:
        """End the session if nothing has come in several looks, since its first request."""
        if not self._has_begun:  # its process starts, which may take long, and has no nodes yet
            return
        self._silent_looks += 1
        if self._silent_looks == _SILENT_LOOKS and self._writer is not None:
            _log.error(
                "session %d of the metadata store ends: its process lives, and has said nothing for"
                " the session time-out",
                self._number,
            )
            self._writer.transport.abort()

    async def run(self, sock: socket.socket) -> None:
        """Answer until the other side says that it ends, or is gone; then delete its nodes."""
        reader, self._writer = await asyncio.open_connection(sock=sock)
        try:
            end = await self._take_requests(reader)
            await asyncio.gather(*self._under_way, return_exceptions=True)
            is_over = await self._delete_nodes()
            if end is not None:  # it does not wait for a disk with room
                self._send([end, None])
        finally:
            self._writer.close()
        while not is_over:
            await asyncio.sleep(_RETRY_S)
            is_over = await self._delete_nodes()

    async def _take_requests(self, reader: asyncio.StreamReader) -> int | None:
        """Begin what is asked for; return the number of the request to end, if there was one."""
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(messages.LENGTH))
                number, name, *arguments = messages.load(await reader.readexactly(length))
                self._silent_looks, self._has_begun = 0, True
                if name == messages.END:
                    return int(number)
                # Its first step is done before those of later ones, and hands it to the store.
                task = asyncio.create_task(self._answer(number, name, arguments))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
        except (asyncio.IncompleteReadError, OSError):
            pass
        except (ValueError, TypeError) as error:
            _log.error("session %d asks what makes no sense: %s", self._number, error)
        return None

    async def _delete_nodes(self) -> bool:
        """Delete the session's nodes; false if that failed and may work later: the disk is full."""
        try:
            await self._store.end_session(self._number)
        except StoreUnavailable as error:
            _log.warning("session %d of the metadata store: %s", self._number, error)
            return self._store.state is SessionState.LOST  # they are deleted when it is opened
        return True

    async def _answer(self, number: int, name: str, arguments: list[Any]) -> None:
        try:
            result = await self._do(number, name, arguments)
        except messages.TOLD as error:
            self._send([number, None, *messages.error_out(error)])
        except Exception as error:  # noqa: BLE001 - a defect must not leave the session waiting
            _log.exception("session %d: the request %s has failed", self._number, name)
            self._send([number, None, *messages.error_out(error)])
        else:
            self._send([number, result])

    async def _do(self, number: int, name: str, arguments: list[Any]) -> Any:
        store = self._store
        match name:
            case messages.PING:
                return None
            case messages.GET:
                path, is_watched = arguments
                node = await store.get(path, self._watch(number) if is_watched else None)
                return messages.node_out(node)
            case messages.CHILDREN:
                path, is_watched = arguments
                return await store.children(path, self._watch(number) if is_watched else None)
            case messages.GET_MANY | messages.TREE:
                read = store.tree if name == messages.TREE else store.get_many
                found = await read(arguments[0])
                return {path: messages.node_out(node) for path, node in found.items()}
            case messages.TRANSACTION:
                operations = messages.operations_in(arguments[0])
                return await store.transaction_of(self._number, operations)
            case messages.LAZY_TRANSACTION:
                operations = messages.operations_in(arguments[0])
                return await store.lazy_transaction_of(self._number, operations)
        raise ValueError(f"a metadata store has no request {name!r}")

    def _watch(self, number: int) -> Callable[[], None]:
        return lambda: self._send([-number])

    def _send(self, message: list[Any]) -> None:
        assert self._writer is not None
        if not self._writer.is_closing():
            self._writer.write(messages.frame(message))
