"""The one timer of a queue: it looks again when a lock runs out, or a record's time has come."""

import asyncio
from collections.abc import Callable
from typing import Final

from qbus.clock import Clock

from .waiters import PROMISE_S

_TICK_S: Final = 0.005
_LONGEST_S: Final = 0.5  # between two looks at the clock, which may be set
_NEVER: Final = float("inf")
_LONG_AGO: Final = float("-inf")


class Alarm:
    """Calls ``look`` in time, and rather too early than too late. For the event loop."""

    __slots__ = ("_clock", "_look", "_loop", "_not_before", "_plan", "_timer")

    def __init__(self, clock: Clock, look: Callable[[], None]) -> None:
        """Make it in a running event loop."""
        self._clock = clock
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._plan: tuple[int | None, int | None, bool] | None = None  # what it is set for
        self._not_before = _LONG_AGO

    def set(self, expiry_ms: int | None, wakeup_ms: int | None, *, has_promised: bool) -> None:
        """Look when a lock runs out, a record's time comes, or who was called did not come.

        ``expiry_ms`` is of the clock that never goes back, ``wakeup_ms`` of the wall clock; None:
        there is none.
        """
        plan = (expiry_ms, wakeup_ms, has_promised)
        if plan == self._plan and self._timer is not None:
            return
        self._plan = plan
        wait_s = _NEVER
        if expiry_ms is not None:
            wait_s = (expiry_ms - int(self._clock.monotonic() * 1000)) / 1000
        if wakeup_ms is not None:
            wait_s = min(wait_s, (wakeup_ms - self._clock.time_ms()) / 1000)
        if has_promised:
            wait_s = min(wait_s, PROMISE_S)
        if wait_s == _NEVER:
            return
        wait_s = min(max(wait_s, _TICK_S), _LONGEST_S)
        at = max(self._loop.time() + wait_s, self._not_before)
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    def rest(self, seconds: float) -> None:
        """Look after so long, and not before: nothing can be stored now, or given out."""
        now = self._loop.time()
        if self._not_before <= now:
            self._not_before = now + seconds
            self._loop.call_at(self._not_before, self._look)  # for who waits, too

    @property
    def is_resting(self) -> bool:
        """Whether it is not to look yet."""
        return self._not_before != _LONG_AGO and self._loop.time() < self._not_before

    def stop(self) -> None:
        """Look no more, until it is set again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
