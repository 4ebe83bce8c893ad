"""Timers as a dependency: brokers use the event loop's, tests drive theirs by hand."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from qbus.clock import Clock

STORE_TIMEOUT_S: Final = 5.0
"""Seconds for the store to answer; after that, clients get a retriable error."""


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call; harmless when it was made."""


class Timers(Protocol):
    """Schedules calls by the monotonic clock, in seconds."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` at ``when``, or soon if that is past; never synchronously."""


class LoopTimers:
    """Timers of the running event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        delay = max(0.0, when - self._clock.monotonic())
        return asyncio.get_running_loop().call_later(delay, callback)
