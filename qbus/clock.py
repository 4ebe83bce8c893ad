"""Time as a dependency, so that tests can control it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time for records and people, and monotonic time for measuring."""

    def time_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""


class SystemClock:
    """The machine's clocks."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that only moves by :meth:`advance`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._start_ms = now_ms

    def time_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return (self._now_ms - self._start_ms) / 1000

    def advance(self, seconds: float) -> None:
        """Move both readings forward by ``seconds``; never back."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back: {seconds}")
        self._now_ms += round(seconds * 1000)
