"""Items that become due after a delay, in the event loop's time."""

import asyncio
import math
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_TICK_S = 0.02  # items that become due within a tick share a timer


class DelayQueue(Generic[T]):
    """Calls ``on_due`` with each item once its delay is over; single items cannot be removed."""

    def __init__(self, on_due: Callable[[T], None]) -> None:
        self._on_due = on_due
        self._ticks: dict[int, list[T]] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def add(self, item: T, seconds: float) -> None:
        """Delay ``item`` by ``seconds``, or a little more."""
        loop = asyncio.get_running_loop()
        tick = math.ceil((loop.time() + seconds) / _TICK_S)
        items = self._ticks.get(tick)
        if items is None:
            items = self._ticks[tick] = []
            self._timers[tick] = loop.call_at(tick * _TICK_S, self._expire, tick)
        items.append(item)

    def clear(self) -> None:
        """Remove all items."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._ticks.clear()

    def _expire(self, tick: int) -> None:
        del self._timers[tick]
        for item in self._ticks.pop(tick):
            self._on_due(item)
