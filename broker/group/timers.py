"""Timers as a dependency: the event loop's in a broker, hand-driven ones in tests."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from qbus.clock import Clock


class Timer(Protocol):
    """A call that is due at some time."""

    def cancel(self) -> None:
        """Do not make the call; harmless when it was made."""


class Timers(Protocol):
    """Makes calls at given times of the monotonic clock, in seconds."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Have ``callback`` called at ``when``, or soon if that is past; never right now."""


class LoopTimers:
    """Timers of the running event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        delay = max(0.0, when - self._clock.monotonic())
        return asyncio.get_running_loop().call_later(delay, callback)
