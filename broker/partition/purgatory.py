"""Answers that wait: a long poll for records, an ``acks=all`` produce for its acknowledgement.

A delayed *fetch* is completed from here when a partition that it watches changes. A delayed
*produce* is completed by its partitions (:class:`Acknowledgements`); here it has only its time-out.
A partition calls those who wait (:class:`Acknowledgements`, :class:`Watcher`) in the event loop,
from within its own methods: callbacks never block, and never add or remove others before they
return.

A :class:`Delayed` answer is completed by whichever comes first: the partitions that it watches move
on, its time runs out, or its client goes away. Thousands of idle long polls must cost nothing but
their memory, so time-outs are kept in buckets (one timer of the event loop for all answers that run
out within the same tick), and a finished answer leaves its bucket at once.

Answers that became ready are completed together at the end of the event loop's turn: a fetch that
watches ten partitions of one produce request answers once, with the records of all ten.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, Protocol, TypeVar

from qbus.errors import ErrorCode

_log = logging.getLogger(__name__)

T = TypeVar("T")

FETCH_TICK_S: Final = 0.01
PRODUCE_TICK_S: Final = 0.1


class Delayed(Generic[T]):
    """An answer that comes later; cancelling it (the client is gone) withdraws it everywhere.

    Each kind of delayed answer says how it completes (:meth:`complete`), what it answers when its
    time is up (:meth:`expire`), and how it stops to watch partitions (:meth:`withdraw`).
    ``waited_s``: how much of its time was a wait for others, in seconds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.bucket: set[Delayed[Any]] | None = None
        self.scheduled = False
        self.waited_s = 0.0
        # Owned rather than inherited: a subclass of a future cannot be compiled.
        self._future: asyncio.Future[T] = loop.create_future()

    def complete(self) -> None:
        """Answer: what it waited for is there."""
        raise TypeError(f"{type(self).__name__} does not say how it completes")

    def expire(self) -> None:
        """Answer: there is no more time to wait."""
        self.complete()

    def withdraw(self) -> None:
        """Stop watching partitions."""

    def leave(self) -> None:
        """Wait no longer, neither for partitions nor for the time-out."""
        if self.bucket is not None:
            self.bucket.discard(self)
            self.bucket = None
        self.withdraw()

    def answer(self, response: T) -> None:
        """Complete with ``response``, unless the client is gone."""
        self.leave()
        if not self.done():
            self._future.set_result(response)

    def fail(self, error: Exception) -> None:
        """Complete with ``error``, unless the client is gone."""
        self.leave()
        if not self.done():
            self._future.set_exception(error)

    def cancel(self) -> bool:
        """Withdraw the answer: nobody waits for it any more."""
        self.leave()
        return self._future.cancel()

    # As of a future

    def done(self) -> bool:
        """Whether it is answered, failed or cancelled."""
        return self._future.done()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._future.cancelled()

    def exception(self) -> BaseException | None:
        """What it failed with. Raises CancelledError when it was cancelled."""
        return self._future.exception()

    def result(self) -> T:
        """The answer; raises what it failed with."""
        return self._future.result()

    def add_done_callback(self, callback: Callable[[asyncio.Future[T]], object]) -> None:
        """Call back in a later turn of the event loop, once it is done."""
        self._future.add_done_callback(callback)

    def __await__(self) -> Generator[Any, None, T]:
        self._future.add_done_callback(self._waited_for)
        return self._future.__await__()

    def _waited_for(self, future: asyncio.Future[T]) -> None:
        if future.cancelled():  # with the task that waited
            self.leave()


class Timeouts:
    """Delayed answers of one kind, by when they run out: at most one tick late, never early."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tick_s: float) -> None:
        self._loop = loop
        self._tick_s = tick_s
        self._buckets: dict[int, set[Delayed[Any]]] = {}
        self._draining = False

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, delayed: Delayed[Any], seconds: float) -> None:
        """Have ``delayed`` expire ``seconds`` from now, unless it is answered before."""
        if self._draining:
            seconds = 0.0
        tick = math.ceil((self._loop.time() + seconds) / self._tick_s)
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = set()
            self._loop.call_at(tick * self._tick_s, self._fire, tick)
        bucket.add(delayed)
        delayed.bucket = bucket

    def drain(self) -> None:
        """Let no answer wait any longer, neither those that are here nor those still to come."""
        self._draining = True
        for tick in list(self._buckets):
            self._fire(tick)

    def _fire(self, tick: int) -> None:
        for delayed in list(self._buckets.pop(tick, ())):
            delayed.bucket = None
            _attempt(delayed, delayed.expire)


class Purgatory:
    """All delayed answers of the broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.fetches = Timeouts(loop, FETCH_TICK_S)
        self.produces = Timeouts(loop, PRODUCE_TICK_S)
        self._ready: list[Delayed[Any]] = []

    def schedule(self, delayed: Delayed[Any]) -> None:
        """Complete ``delayed`` at the end of this turn of the event loop, once."""
        if delayed.scheduled:
            return
        delayed.scheduled = True
        if not self._ready:
            self.loop.call_soon(self._complete_ready)
        self._ready.append(delayed)

    def _complete_ready(self) -> None:
        ready, self._ready = self._ready, []
        for delayed in ready:
            delayed.scheduled = False
            if not delayed.done():
                _attempt(delayed, delayed.complete)


def _attempt(delayed: Delayed[Any], complete: Callable[[], None]) -> None:
    """A defect in one answer must not keep the others waiting."""
    try:
        complete()
    except Exception as error:  # noqa: BLE001 - it goes to whoever waits for this answer
        _log.debug("a delayed answer failed", exc_info=error)
        delayed.fail(error)


class AckWaiter(Protocol):
    """Waits for the high watermark to pass what it appended."""

    def done(self) -> bool:
        """Whether it waits no longer."""

    def acknowledged(self, token: object, code: ErrorCode) -> None:
        """What was registered with ``token`` is acknowledged (NONE), or it never will be."""


class Acknowledgements:
    """The acknowledgements that a partition owes, in the order of the appends."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, AckWaiter, object]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end_offset: int, waiter: AckWaiter, token: object) -> None:
        """Tell ``waiter`` when everything below ``end_offset`` is acknowledged."""
        waiting = self._waiting
        while waiting and waiting[0][1].done():  # timed out, or its client is gone
            waiting.popleft()
        waiting.append((end_offset, waiter, token))

    def advance(self, offset: int) -> None:
        """Acknowledge everything below ``offset``."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, waiter, token = waiting.popleft()
            waiter.acknowledged(token, ErrorCode.NONE)

    def refuse(self, code: ErrorCode) -> None:
        """Answer ``code`` to all who wait."""
        waiting = self._waiting
        while waiting:
            _, waiter, token = waiting.popleft()
            waiter.acknowledged(token, code)


class Watcher(Protocol):
    """A reader that waits for records to become visible."""

    @property
    def sees_hidden(self) -> bool:
        """Whether hidden batches are news to it, too."""

    def advanced(self, size: int) -> None:
        """``size`` more bytes can be read; 0: something else changed, such as the leader."""


class ReplicaWatcher(Protocol):
    """A follower on another broker, as its leader's partition sees it."""

    @property
    def asked_at(self) -> float:
        """When it asked last, a monotonic time in seconds."""

    def appended(self, size: int) -> None:
        """``size`` more bytes are in the log."""

    def changed(self, *, at_once: bool) -> None:
        """Something else changed: the leader or the log (at once), or the high watermark."""
