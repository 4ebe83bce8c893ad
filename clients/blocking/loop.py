"""The thread with an event loop that blocking clients live in."""

import asyncio
import atexit
import inspect
import logging
import os
import select
import selectors
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from qbus.errors import QbusError

from ..errors import ClientClosed, RequestTimedOut

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LAST_WAIT = 5.0
"""Seconds that cancelled work has to clean up at the end."""
_MOMENT = 20e-6
"""Seconds, and what the system adds, in which a thread that waits for the interpreter gets it."""


class LoopThread:
    """A daemon thread that runs an event loop until it is closed, or garbage collected.

    Any thread may use it except itself: a callback of a client runs there, and would wait for
    itself. In a forked process the thread does not exist, and calls raise an error.
    """

    def __init__(self, name: str) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        thread = threading.Thread(target=_serve, args=(started,), name=name, daemon=True)
        thread.start()
        self.loop = started.result()
        self._thread = thread
        self._pid = os.getpid()
        self._awaited: set[_Call[Any]] = set()
        self._events = _events_of(self.loop)
        """The file that is readable while something has arrived for the loop; -1: none is."""
        # Also at exit, while the interpreter still has what the thread needs.
        self._finalize = weakref.finalize(self, _stop, self.loop, thread, self._pid, self._awaited)

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.get_ident() == self._thread.ident

    @property
    def is_closed(self) -> bool:
        """Whether the thread has ended; true in a forked process, which has no such thread."""
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
        """Return what ``coroutine`` returns or raises, within ``timeout`` seconds (None: no limit).

        It is cancelled on time-out, or when the caller is interrupted. Raises
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
        """Cancel what remains of ``call``."""
        if call.is_over:
            return
        try:
            self.loop.call_soon_threadsafe(call.cancel)
        except RuntimeError:  # the loop is closed
            call.cancel()

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Return what ``function`` returns or raises in the thread; callbacks there may call it
        too.
        """
        if self.is_current:
            return function(*args)

        async def in_the_thread() -> T:
            return function(*args)

        return self.run(in_the_thread())

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Have ``function`` called in the thread, soon; raise as :meth:`check_usable`."""
        self.check_usable()
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError as error:  # another thread has closed the loop
            raise ClientClosed from error

    def give_way(self) -> None:
        """Let the thread go on if something has arrived for it. For threads that are busy.

        Python runs one thread at a time, and lets one that waits for it run after 5 ms: meanwhile
        nothing would be received. The thread needs much less to have the system do so.
        """
        if self._events >= 0:
            poll = select.poll()  # one for each call: several threads may not share one
            poll.register(self._events, select.POLLIN)
            if poll.poll(0):
                time.sleep(_MOMENT)

    def finish(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``last`` in the thread and then end it, without waiting for that.

        The interpreter waits for it at its exit. Safe in a finalizer: it takes no lock.
        """
        _finishing.add(self)
        self._finalize.atexit = False  # the exit waits instead of stopping it
        self.loop.call_soon_threadsafe(self._begin_last, last)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _begin_last(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.loop.create_task(last()).add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a client could not be closed", exc_info=error)
        _finishing.discard(self)
        self._finalize.detach()  # at the interpreter's exit, it would do nothing any more
        for call in list(self._awaited):
            call.finish()
        self.loop.stop()

    def close(self) -> None:
        """Cancel what runs and end the thread. Does nothing the second time, or in a fork."""
        self._finalize()


_finishing: set[LoopThread] = set()


@atexit.register
def _wait_for_last() -> None:
    for thread in list(_finishing):
        if not thread.is_closed:
            thread.join()


class _Call(Generic[T]):
    """A coroutine in the loop that another thread waits for.

    It uses a lock because a :class:`~concurrent.futures.Future` takes twice the time. The lock is
    released where the coroutine ends: a task's callbacks run only after everything due in the loop.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[None] | None = None
        self._outcome: Callable[[], T] = _closed
        self._unfinished = threading.Lock()
        self._unfinished.acquire()

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return inspect.getcoroutinestate(self._coroutine) == inspect.CORO_CLOSED

    def start(self) -> None:
        """Run it. In the loop's thread."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Cancel it. In the loop's thread, or after that ended."""
        if self._task is None:
            self._coroutine.close()
        else:
            self._task.cancel()

    def finish(self) -> None:
        """Wake the waiting thread."""
        with suppress(RuntimeError):  # nobody waits
            self._unfinished.release()

    def wait(self, timeout: float | None) -> bool:
        """Return whether it finished within ``timeout`` seconds."""
        return self._unfinished.acquire(timeout=-1 if timeout is None else timeout)

    def result(self) -> T:
        """Return or raise its outcome; raise :class:`ClientClosed` if it could not finish."""
        return self._outcome()

    async def _run(self) -> None:
        try:
            returned = await self._coroutine
            self._outcome = lambda: returned
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised in the waiting thread
            self._outcome = partial(_raise, error)
        finally:
            self.finish()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._coroutine.close()  # if cancelled before it began
        if not task.cancelled():
            task.exception()  # such as KeyboardInterrupt, which ended the loop
        self.finish()


def _events_of(loop: asyncio.AbstractEventLoop) -> int:
    """Return the file that tells whether something has arrived for ``loop``; -1: none does."""
    kind = getattr(selectors, "EpollSelector", ())  # other systems have none, and gevent removes it
    selector = getattr(loop, "_selector", None)
    if isinstance(selector, kind):
        events: int = selector.fileno()
        return events
    return -1  # there the thread takes its time


def _closed() -> Any:
    raise ClientClosed


def _raise(error: BaseException) -> Any:
    raise error


def _serve(started: Future[asyncio.AbstractEventLoop]) -> None:
    try:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            _work_on_at_exit(loop)
            loop.call_soon(started.set_result, loop)
            loop.run_forever()
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)


def _work_on_at_exit(loop: asyncio.AbstractEventLoop) -> None:
    """Let ``loop`` do itself, when the interpreter exits, what it leaves to other threads.

    No thread is started any more then, and there is still something to deliver or to spool.
    """
    in_thread = loop.run_in_executor

    def run(executor: Any, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        try:
            return in_thread(executor, function, *args)
        except RuntimeError:
            if threading.main_thread().is_alive():
                raise
        done: asyncio.Future[Any] = loop.create_future()
        try:
            done.set_result(function(*args))
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            done.set_exception(error)
        return done

    loop.run_in_executor = run  # type: ignore[method-assign, assignment]


def _stop(
    loop: asyncio.AbstractEventLoop,
    thread: threading.Thread,
    pid: int,
    awaited: set[_Call[Any]],
) -> None:
    if pid != os.getpid() or loop.is_closed():
        return
    loop.call_soon_threadsafe(loop.stop)
    if threading.current_thread() is not thread:  # garbage may be collected in any thread
        thread.join(_LAST_WAIT)
    for call in list(awaited):
        call.finish()
