"""What is left alone for a while, in the event loop's time."""

import asyncio
import math
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_TICK_S = 0.02  # those whose time is over within a tick go on together


class DelayQueue(Generic[T]):
    """Calls ``go_on`` with each item when its time is over; items cannot be taken back."""

    def __init__(self, go_on: Callable[[T], None]) -> None:
        self._go_on = go_on
        self._ticks: dict[int, list[T]] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def add(self, item: T, seconds: float) -> None:
        """Let ``item`` rest for ``seconds``, or a little longer."""
        loop = asyncio.get_running_loop()
        tick = math.ceil((loop.time() + seconds) / _TICK_S)
        resting = self._ticks.get(tick)
        if resting is None:
            resting = self._ticks[tick] = []
            self._timers[tick] = loop.call_at(tick * _TICK_S, self._wake, tick)
        resting.append(item)

    def clear(self) -> None:
        """Let all of them rest for ever."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._ticks.clear()

    def _wake(self, tick: int) -> None:
        del self._timers[tick]
        for item in self._ticks.pop(tick):
            self._go_on(item)
