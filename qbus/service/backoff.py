"""Exponential back-off: how long to wait before an operation that failed is tried again."""

import random

JITTER = 0.2
"""The default spread of a delay: up to a fifth less or more."""

_MOST_DOUBLINGS = 30


def backoff_delay(
    failures: int, first_s: float, longest_s: float, *, jitter: float = JITTER
) -> float:
    """Return the seconds to wait after ``failures`` earlier failures (0: this is the first).

    ``first_s`` doubles with each failure up to ``longest_s``; then ``jitter`` spreads it.
    """
    delay = min(first_s * (1 << min(failures, _MOST_DOUBLINGS)), longest_s)
    if not jitter:
        return delay
    return delay * random.uniform(1 - jitter, 1 + jitter)  # noqa: S311 - spreads load


class Backoff:
    """The delays of one operation that may fail again and again."""

    __slots__ = ("_first_s", "_jitter", "_longest_s", "failures")

    def __init__(
        self, first_s: float = 0.05, longest_s: float = 1.0, *, jitter: float = JITTER
    ) -> None:
        """``first_s``, ``longest_s``: the first delay, and the one it doubles up to, in seconds."""
        self._first_s = first_s
        self._longest_s = longest_s
        self._jitter = jitter
        self.failures = 0
        """Failures since the last success."""

    def failed(self) -> float:
        """Count a failure; return the seconds to wait before the next attempt."""
        delay = backoff_delay(self.failures, self._first_s, self._longest_s, jitter=self._jitter)
        self.failures += 1
        return delay

    def succeeded(self) -> None:
        """Start again with the shortest delay."""
        self.failures = 0
