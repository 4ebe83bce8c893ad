"""Timers as a dependency: brokers use the event loop's, tests drive theirs by hand."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from qbus.clock import Clock

STORE_TIMEOUT_S: Final = 5.0
"""Seconds for the store to answer; then clients are told to try again."""


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
