"""kazoo's answers, watches and states, brought into an event loop in the order they came.

kazoo reads its connection in one thread, and would call back from two others. Here one inbox takes
the place of both: what the server said first arrives first, and as much as has come meanwhile
arrives at once.
"""

import asyncio
import logging
import math
import os
import select
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from qbus.metadata.zookeeper.library import SequentialThreadingHandler

_log = logging.getLogger(__name__)

Call = Callable[[], object]


class Inbox:
    """Calls from any thread, made in the event loop in their order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Call] = deque()
        self._woken = False

    def put(self, call: Call) -> None:
        """Have ``call`` made in the event loop, after those put here before."""
        self._calls.append(call)
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._empty)
            except RuntimeError:  # the loop is closed: nobody waits
                self._calls.clear()

    def _empty(self) -> None:
        self._woken = False  # first: what is put here from now on wakes the loop again
        for _ in range(len(self._calls)):
            try:
                self._calls.popleft()()
            except Exception:  # noqa: BLE001 - whoever fails, the others are answered
                _log.exception("a callback of the metadata store has failed")


class Answer:
    """What kazoo puts the answer to a request into; whoever asked awaits ``future``."""

    __slots__ = ("_inbox", "future")

    def __init__(self, inbox: Inbox, future: asyncio.Future[Any]) -> None:
        self._inbox = inbox
        self.future = future

    def set(self, value: object = None) -> None:
        """The request succeeded."""
        self._inbox.put(partial(_resolve, self.future, value))

    def set_exception(self, error: BaseException) -> None:
        """The request failed, or its outcome is unknown."""
        self._inbox.put(partial(_reject, self.future, error))

    def get(self) -> Any:
        """What was put here, when that is done."""
        return self.future.result()

    def rawlink(self, callback: Callable[["Answer"], object]) -> None:
        """Call back, in the event loop, when that is done: kazoo does more with some answers."""
        self.future.add_done_callback(lambda _: callback(self))


def _resolve(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():  # else whoever asked gave up
        future.set_result(value)


def _reject(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class Waker:
    """Both ends of what wakes kazoo's thread: a count in the kernel.

    kazoo's own pair of sockets blocks whoever asks when some hundred requests wait to be sent.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """For a selector: readable while the count is above 0."""
        return self._fd

    def send(self, data: bytes) -> None:
        """Count up."""
        os.eventfd_write(self._fd, len(data))

    def recv(self, _: int) -> None:
        """Count down."""
        os.eventfd_read(self._fd)

    def close(self) -> None:
        """Close it; again does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's handler interface over an event loop; kazoo's own thread for the connection stays."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connect_timeout: float) -> None:
        """``connect_timeout``: how long one server may take to begin to serve us, in seconds."""
        super().__init__()
        self._loop = loop
        self._connect_timeout = connect_timeout
        self._is_connecting = False
        self.inbox = Inbox(loop)

    def start(self) -> None:
        """There are no threads to start."""

    def stop(self) -> None:
        """There are no threads to stop."""

    def async_result(self) -> Answer:
        """Called in the event loop, by whatever sends a request."""
        return Answer(self.inbox, self._loop.create_future())

    def dispatch_callback(self, callback: Any) -> None:
        """A watch has something to tell."""
        self.inbox.put(partial(callback.func, *callback.args))

    def select(
        self, readable: list[Any], writable: list[Any], _: object, timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As ``select.select``; kazoo's own builds and drops an epoll for every message."""
        if self._is_connecting and timeout is not None:
            timeout = min(timeout, self._connect_timeout)
        poll = select.poll()
        for some, event in ((readable, select.POLLIN), (writable, select.POLLOUT)):
            for one in some:
                poll.register(one, event)
        milliseconds = None if timeout is None else math.ceil(timeout * 1000)
        ready = {fd for fd, _ in poll.poll(milliseconds)}
        return (
            [one for one in readable if one.fileno() in ready],
            [one for one in writable if one.fileno() in ready],
            [],
        )

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        """Connect, but do not wait for one server until the session has expired, as kazoo would.

        A server that has just been started may accept a connection and then forget about it.
        """
        self._is_connecting = True
        timeout = min(timeout, self._connect_timeout)
        return super().create_connection(*args, timeout=timeout, **kwargs)

    def connected(self) -> None:
        """The server has answered: from now on kazoo's own time-outs hold."""
        self._is_connecting = False

    def create_socket_pair(self) -> tuple[Waker, Waker]:
        """What wakes the thread of the connection."""
        waker = Waker()
        return waker, waker
