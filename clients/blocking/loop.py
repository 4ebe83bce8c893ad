"""A thread with an event loop, in which the clients behind the blocking faces live."""

import asyncio
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

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
        self._awaited: set[_Call[Any]] = set()
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
        call = _Call(coroutine)
        self._awaited.add(call)
        try:
            self._start(call)
            if not call.wait(timeout):
                raise RequestTimedOut(f"not done in {timeout} s")
            return call.result()
        finally:
            self._awaited.discard(call)
            self._drop(call)

    def _start(self, call: "_Call[Any]") -> None:
        try:
            if self.is_current:
                raise QbusError("a client's callback cannot wait for the client: use qbus.aio")
            self.post(call.start)
        except QbusError:
            call.cancel()
            raise

    def _drop(self, call: "_Call[Any]") -> None:
        """Let nothing of ``call`` go on."""
        if call.is_over:
            return
        try:
            self.loop.call_soon_threadsafe(call.cancel)
        except RuntimeError:  # the loop is closed: nothing goes on there
            call.cancel()

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
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError as error:  # another thread has closed the loop
            raise ClientClosed from error

    def close(self) -> None:
        """Cancel what still runs and end the thread. Does nothing the second time, or in a fork."""
        self._finalize()


class _Call(Generic[T]):
    """A coroutine on its way through the loop, for which another thread waits.

    A lock instead of a :class:`~concurrent.futures.Future`: that takes twice the time. It is
    released where the coroutine ends: a task's callbacks come after all that is due in the loop.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[None] | None = None
        self._outcome: Callable[[], T] = _closed
        self._unfinished = threading.Lock()
        self._unfinished.acquire()

    @property
    def is_over(self) -> bool:
        """Whether nothing of it goes on any more."""
        return inspect.getcoroutinestate(self._coroutine) == inspect.CORO_CLOSED

    def start(self) -> None:
        """In the loop's thread: run it."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._done)

    def cancel(self) -> None:
        """In the loop's thread, or when there is none any more: do not go on with it."""
        if self._task is None:
            self._coroutine.close()
        else:
            self._task.cancel()

    def finish(self) -> None:
        """Let nobody wait any longer."""
        with suppress(RuntimeError):  # nobody did
            self._unfinished.release()

    def wait(self, timeout: float | None) -> bool:
        """Whether it finished within ``timeout`` seconds."""
        return self._unfinished.acquire(timeout=-1 if timeout is None else timeout)

    def result(self) -> T:
        """What it returned or raised; :class:`ClientClosed` if it could not finish."""
        return self._outcome()

    async def _run(self) -> None:
        try:
            returned = await self._coroutine
            self._outcome = lambda: returned
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised where it is waited for
            self._outcome = partial(_raise, error)
        finally:
            self.finish()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._coroutine.close()  # if it was cancelled before it began
        if not task.cancelled():
            task.exception()  # such as KeyboardInterrupt, which ended the loop
        self.finish()


def _closed() -> Any:
    raise ClientClosed


def _raise(error: BaseException) -> Any:
    raise error


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
    awaited: set[_Call[Any]],
) -> None:
    if pid != os.getpid() or loop.is_closed():
        return
    loop.call_soon_threadsafe(loop.stop)
    if threading.current_thread() is not thread:  # where garbage is collected nobody can tell
        thread.join(_LAST_WAIT)
    for call in list(awaited):
        call.finish()
