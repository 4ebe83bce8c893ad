"""A thread with an event loop, in which the clients behind the blocking faces live."""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import Any, TypeVar

from qbus.errors import QbusError

from ..errors import ClientClosed, RequestTimedOut

T = TypeVar("T")

_LAST_WAIT = 5.0
"""Seconds for what is cancelled at the end to clean up after itself."""


class LoopThread:
    """One daemon thread that runs an event loop until it is closed, or forgotten.

    Any thread may use it, but not its own: a callback of a client runs there, and would wait for
    itself. A forked process has a copy of the object but not of the thread, and is told so.
    """

    def __init__(self, name: str) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        thread = threading.Thread(target=_serve, args=(started,), name=name, daemon=True)
        thread.start()
        self.loop = started.result()
        self._thread = thread
        self._pid = os.getpid()
        self._awaited: set[Future[Any]] = set()
        # Also at exit, before the interpreter takes away what the thread needs.
        self._finalize = weakref.finalize(self, _stop, self.loop, thread, self._pid, self._awaited)

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread itself."""
        return threading.get_ident() == self._thread.ident

    @property
    def is_closed(self) -> bool:
        """Whether the thread was ended; so it is in a forked process, which never had it."""
        return not self._finalize.alive or self._pid != os.getpid()

    def check_usable(self) -> None:
        """Raise ClientClosed after :meth:`close`, or QbusError in a forked process."""
        if self._pid != os.getpid():
            raise QbusError(
                f"the client belongs to process {self._pid}, of which this is a fork:"
                " make a client after the fork"
            )
        if not self._finalize.alive:
            raise ClientClosed

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """What ``coroutine`` returns or raises, within ``timeout`` seconds (None: no limit).

        It is cancelled when its time is over, or the caller interrupted. Raises
        :class:`~qbus.clients.RequestTimedOut`, and as :meth:`check_usable`.
        """
        try:
            self.check_usable()
            if self.is_current:
                raise QbusError("a client's callback cannot wait for the client: use qbus.aio")
            with _unless_closed():
                future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except BaseException:
            coroutine.close()
            raise
        self._awaited.add(future)
        try:
            self.check_usable()  # once more: close() may not have seen the future
            return self._result(future, timeout)
        finally:
            self._awaited.discard(future)
            future.cancel()

    def _result(self, future: Future[T], timeout: float | None) -> T:
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():  # the coroutine's own error, or it was just in time
                return future.result()
            raise RequestTimedOut(f"not done in {timeout} s") from None
        except CancelledError:
            self.check_usable()
            raise

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """What ``function`` returns or raises, called in the thread; also by a callback there."""
        if self.is_current:
            return function(*args)

        async def in_the_thread() -> T:
            return function(*args)

        return self.run(in_the_thread())

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Have ``function`` called in the thread, soon; raises as :meth:`check_usable`."""
        self.check_usable()
        with _unless_closed():
            self.loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """Cancel what still runs and end the thread. Does nothing the second time, or in a fork."""
        self._finalize()


@contextmanager
def _unless_closed() -> Iterator[None]:
    """Another thread may close the loop at any time."""
    try:
        yield
    except RuntimeError as error:
        raise ClientClosed from error


def _serve(started: Future[asyncio.AbstractEventLoop]) -> None:
    try:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            loop.call_soon(started.set_result, loop)
            loop.run_forever()
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)


def _stop(
    loop: asyncio.AbstractEventLoop,
    thread: threading.Thread,
    pid: int,
    awaited: set[Future[Any]],
) -> None:
    if pid != os.getpid() or loop.is_closed():
        return
    loop.call_soon_threadsafe(loop.stop)
    if threading.current_thread() is not thread:  # where garbage is collected nobody can tell
        thread.join(_LAST_WAIT)
    for future in list(awaited):
        future.cancel()
