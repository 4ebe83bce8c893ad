"""Long work on the event loop, cut into pieces that take turns.

A request of 100,000 elements is handled some elements at a time. Between two pieces the event loop
serves others; of all pieces that wait, one runs in each tick of the loop, first come, first served:
a hundred clients with long requests hold it no longer than one does.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from functools import partial
from types import coroutine
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

PIECE: Final = 200
"""Elements of a request that are handled at once: 10 ms at 50 microseconds each."""


class Turns:
    """Lets one piece of work run in each tick of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], bool]] = deque()
        self._is_scheduled = False

    def call(self, work: Callable[[], bool]) -> None:
        """Call ``work`` in the next tick, or later if others wait.

        It returns whether it has used its turn; else the next one has it.
        """
        self._waiting.append(work)
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._grant)

    def _grant(self) -> None:
        self._is_scheduled = False
        try:
            while self._waiting and not self._waiting.popleft()():
                pass
        finally:
            if self._waiting and not self._is_scheduled:
                self._schedule()


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns:
    """The turns of an event loop."""
    turns = _turns.get(loop)
    if turns is None:
        turns = _turns[loop] = Turns(loop)
    return turns


async def next_turn() -> None:
    """Let others run; go on when it is the caller's turn."""
    loop = asyncio.get_running_loop()
    turn = loop.create_future()
    turns_of(loop).call(partial(_give, turn))
    await turn


def _give(turn: asyncio.Future[None]) -> bool:
    if turn.done():  # it was cancelled
        return False
    turn.set_result(None)
    return True


async def in_pieces(items: Sequence[T], size: int = PIECE) -> AsyncIterator[Sequence[T]]:
    """Yield the items some at a time, with a turn between two pieces.

    A short sequence is one piece, and nothing is waited for.
    """
    if len(items) <= size:
        yield items
        return
    for start in range(0, len(items), size):
        if start:
            await next_turn()
        yield items[start : start + size]


class Pace:
    """Counts the work of loops in loops, and says when it is time for others to have a turn.

    pace = Pace()
    for item in items:
        if pace.is_over():
            await next_turn()
    """

    __slots__ = ("_done", "_size")

    def __init__(self, size: int = PIECE) -> None:
        self._size = size
        self._done = 0

    def is_over(self, weight: int = 1) -> bool:
        """Count work of some elements; whether a piece is done, after which the next one begins."""
        self._done += weight
        if self._done <= self._size:
            return False
        self._done = weight
        return True


def begun(work: Coroutine[Any, Any, T]) -> T | Coroutine[Any, Any, T]:
    """Run ``work`` up to its first wait: its result if it never waits, else what goes on with it.

    So a handler that waits for turns alone, in long requests, answers short ones at once.
    """
    try:
        waited = work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    return _go_on(work, waited)


async def _go_on(work: Coroutine[Any, Any, T], waited: Any) -> T:
    return await _resumed(work, waited)


@coroutine
def _resumed(work: Coroutine[Any, Any, T], waited: Any) -> Generator[Any, Any, T]:
    while True:
        try:
            sent = yield waited
        except BaseException as error:  # noqa: BLE001 - it is for the work, cancellation too
            step: Callable[[], Any] = partial(work.throw, error)
        else:
            step = partial(work.send, sent)
        try:
            waited = step()
        except StopIteration as end:
            result: T = end.value
            return result


async def in_steps(work: Generator[None, None, T]) -> T:
    """Run a generator that yields between steps, with a turn between two of them."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await next_turn()
