"""Bounds on bytes per second. Pure: callers pass the time, in seconds of a monotonic clock.

The bucket may be overdrawn: the size of an answer is known only once it is there. The debt is
waited for.
"""

import math


class TokenBucket:
    """Tokens, one a byte, under a rate that may change with each call.

    At most ``burst_s`` seconds' worth are kept for later.
    """

    __slots__ = ("_burst_s", "_filled_at", "_tokens")

    def __init__(self, now: float, *, tokens: float = 0.0, burst_s: float = 1.0) -> None:
        self._tokens = tokens
        self._filled_at = now
        self._burst_s = burst_s

    def spend(self, count: int) -> None:
        """Take ``count`` tokens, even if there are fewer."""
        self._tokens -= count

    def wait(self, rate: float, now: float) -> float:
        """Refill at ``rate`` bytes per second; return the seconds until more may be spent.

        0.0: now. Infinity: the rate is 0.
        """
        elapsed = now - self._filled_at
        if elapsed > 0:
            self._filled_at = now
            self._tokens += elapsed * rate
        self._tokens = min(self._tokens, rate * self._burst_s)
        if not rate:
            return math.inf
        return max(-self._tokens / rate, 0.0)


class RateLimit:
    """A token bucket under one rate, full at first; ``rate`` 0 is no limit."""

    __slots__ = ("_bucket", "rate")

    def __init__(self, rate: int, now: float, *, burst_s: float = 1.0) -> None:
        """``rate``: bytes per second. ``burst_s``: seconds' worth that may be spent at once."""
        self.rate = rate
        self._bucket = TokenBucket(now, tokens=rate * burst_s, burst_s=burst_s)

    def spend(self, count: int) -> None:
        """Count ``count`` bytes against the limit."""
        if self.rate:
            self._bucket.spend(count)

    def wait(self, now: float) -> float:
        """Return the seconds until more may be spent; 0.0 for now."""
        return self._bucket.wait(self.rate, now) if self.rate else 0.0
