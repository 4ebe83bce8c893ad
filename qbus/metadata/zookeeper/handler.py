"""Delivers kazoo's answers, watches and states to an event loop, in the order of their arrival.

kazoo reads its connection in one thread and calls back from two others. One inbox replaces those
two: it delivers in order, and everything that has arrived at once.
"""

import asyncio
import logging
import math
import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from qbus.errors import ConfigError
from qbus.metadata.zookeeper.library import SequentialThreadingHandler
from qbus.service.event_loop.ticks import NEVER, Ticks

_log = logging.getLogger(__name__)

_LOOK_S: Final = 0.05  # how often it is looked whether the loop has moved

Call = Callable[[], object]


class Inbox:
    """Makes calls from any thread in the event loop, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Call] = deque()
        self._woken = False

    def put(self, call: Call) -> None:
        """Schedule ``call`` after all that were put before."""
        self._calls.append(call)
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._empty)
            except RuntimeError:  # the loop is closed
                self._calls.clear()

    def _empty(self) -> None:
        self._woken = False  # first, so that later calls wake the loop again
        for _ in range(len(self._calls)):
            try:
                self._calls.popleft()()
            except Exception:  # noqa: BLE001 - one failure must not stop the others
                _log.exception("a callback of the metadata store failed")


class Answer:
    """Receives kazoo's answer to a request; the caller awaits ``future``."""

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
        """Return the result of a completed request."""
        return self.future.result()

    def rawlink(self, callback: Callable[["Answer"], object]) -> None:
        """Call back in the event loop on completion; kazoo processes some answers further."""
        self.future.add_done_callback(lambda _: callback(self))


def _resolve(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():  # else the caller has given up
        future.set_result(value)


def _reject(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class Waker:
    """Wakes kazoo's thread through an eventfd; serves as both ends.

    kazoo's own socket pair blocks the caller when a few hundred requests wait to be sent.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """The descriptor; readable while the count is above 0."""
        return self._fd

    def send(self, data: bytes) -> None:
        """Count up."""
        os.eventfd_write(self._fd, len(data))

    def recv(self, _: int) -> None:
        """Count down."""
        os.eventfd_read(self._fd)

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's handler interface over an event loop; kazoo keeps its connection thread.

    All that kazoo sends keeps the session alive, and it pings in its thread, whatever the loop
    does. So nothing is sent while the loop has stood still for longer than ``patience_s``, a third
    of the session time-out, which is also the pause between two pings. A stall that is shorter than
    the time-out then never ends the session; a longer one does, after a third more at most::

        time-out 9 s: ping 0, stall 0.1, ping 3, no ping 6 (5.9 > 3)  -> over at 12
                                                 the loop moves at 9  -> ping 9
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect_timeout: float,
        tls: Callable[[], ssl.SSLContext] | None = None,
        *,
        ticks: Ticks | None = None,
        patience_s: float = NEVER,
    ) -> None:
        """``connect_timeout``: seconds that one server may take until the session is connected.

        ``tls`` makes the context of a connection; None: nothing is encrypted. ``ticks``: those of
        the loop, where it is watched.
        """
        super().__init__()
        self._ticks = ticks
        self._patience_s = patience_s
        self._tls = tls
        self.tls_failure = ""
        self._loop = loop
        self._connect_timeout = connect_timeout
        self._is_connecting = False
        self.inbox = Inbox(loop)

    def start(self) -> None:
        """Do nothing: there are no threads."""

    def stop(self) -> None:
        """Do nothing: there are no threads."""

    def async_result(self) -> Answer:
        """Return a receiver for an answer; called in the event loop."""
        return Answer(self.inbox, self._loop.create_future())

    def dispatch_callback(self, callback: Any) -> None:
        """Deliver a watch event."""
        self.inbox.put(partial(callback.func, *callback.args))

    def select(
        self, readable: list[Any], writable: list[Any], _: object, timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Like ``select.select``; kazoo's own creates an epoll object for every message."""
        if writable:
            self._wait_for_loop()
        if self._is_connecting and timeout is not None:
            timeout = min(timeout, self._connect_timeout)
        decrypted = [one for one in readable if isinstance(one, ssl.SSLSocket) and one.pending()]
        if decrypted:  # which the system knows nothing of
            timeout = 0
        poll = select.poll()
        for some, event in ((readable, select.POLLIN), (writable, select.POLLOUT)):
            for one in some:
                poll.register(one, event)
        milliseconds = None if timeout is None else math.ceil(timeout * 1000)
        ready = {fd for fd, _ in poll.poll(milliseconds)}
        return (
            [one for one in readable if one.fileno() in ready or one in decrypted],
            [one for one in writable if one.fileno() in ready],
            [],
        )

    def _wait_for_loop(self) -> None:
        """Wait while the loop stands still; called in kazoo's thread, before it sends."""
        ticks = self._ticks
        if ticks is None or ticks.stands_s(time.perf_counter()) < self._patience_s:
            return
        _log.error(
            "the event loop has stood still for %.1f s: ZooKeeper is sent nothing until it moves,"
            " and ends the session in time",
            self._patience_s,
        )
        while ticks.stands_s(time.perf_counter()) >= self._patience_s:
            time.sleep(_LOOK_S)

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        """Connect with a time-out shorter than the session; kazoo would wait for all of that.

        A server that has just started may accept a connection and then ignore it.
        """
        self._is_connecting = True
        timeout = min(timeout, self._connect_timeout)
        if self._tls is None:
            return super().create_connection(*args, timeout=timeout, **kwargs)
        return self._create_tls(self._tls, kwargs["address"], kwargs["hostname"], timeout)

    def _create_tls(
        self,
        tls: Callable[[], ssl.SSLContext],
        address: tuple[str, int],
        host: str,
        timeout: float,
    ) -> ssl.SSLSocket:
        """Connect with TLS; ``host`` is to be in the certificate. kazoo's own checks no names."""
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            encrypted = tls().wrap_socket(plain, server_hostname=host)
        except (ssl.SSLError, ConfigError) as error:
            plain.close()
            self.tls_failure = str(error)
            raise OSError(f"TLS with {host}: {error}") from error
        except BaseException:
            plain.close()
            raise
        self.tls_failure = ""
        return encrypted

    def connected(self) -> None:
        """Note that the server answered; kazoo's own time-outs apply from now on."""
        self._is_connecting = False

    def create_socket_pair(self) -> tuple[Waker, Waker]:
        """Return what wakes the connection thread."""
        waker = Waker()
        return waker, waker
