"""The end of a turn of the event loop: what came in it is stored, and answered, as one.

Whoever gathers something in a turn has it done at the end, by ``loop.call_soon``: that is the next
turn, for which the loop asks the system what else has come. Where nothing else has come in this
turn, there is nothing to wait for: then it is done as soon as what came was handled.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

_log = logging.getLogger(__name__)

_MOST: Final = 32  # that is done at one end: others have their turn


class Turn:
    """What one client sent is handled, and nothing else has come."""

    __slots__ = ("_callbacks", "_left", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: deque[Callable[[], object]] = deque()
        self._left = _MOST

    def takes(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> bool:
        """Have ``callback`` called at the end; false: it is not of this loop, or there are many."""
        if loop is not self._loop or not self._left:
            return False
        self._left -= 1
        self._callbacks.append(callback)
        return True

    def end(self) -> None:
        """Do what is to be done at the end, and what that leads to.

        What ends the process, as the event loop sees it, is raised; the rest is done in the next
        turn, if there is one.
        """
        global _now  # noqa: PLW0603 - one at a time
        callbacks = self._callbacks
        try:
            while callbacks:
                callback = callbacks.popleft()
                try:
                    callback()
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException:  # noqa: BLE001 - as the event loop does: others go on
                    _log.exception("%r failed at the end of a turn of the event loop", callback)
        finally:
            _now = None
            for callback in callbacks:
                self._loop.call_soon(callback)


_now: Turn | None = None


def begin_turn(loop: asyncio.AbstractEventLoop) -> Turn | None:
    """Begin to handle what came; None: something else has come, too, or is under way.

    :meth:`Turn.end` follows.
    """
    global _now  # noqa: PLW0603 - as above
    ready: Any = getattr(loop, "_ready", True)  # what else it calls in this turn
    if ready or _now is not None:
        return None
    _now = Turn(loop)
    return _now


def at_end(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Call ``callback`` once all was handled that has come in this turn of the event loop."""
    turn = _now  # once: a loop in another thread may end its turn meanwhile
    if turn is None or not turn.takes(loop, callback):
        loop.call_soon(callback)
