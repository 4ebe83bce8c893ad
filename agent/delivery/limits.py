"""What keeps reading within bounds: memory, and bytes per second. Pure."""

_BURST_SECONDS = 0.1
RECORD_OVERHEAD = 96
"""Bytes of memory that a record takes beyond its own."""


class Budget:
    """How much may be in memory, read and not yet acknowledged, in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def has_room(self) -> bool:
        """Whether more may be read."""
        return self.used < self.limit


class RateLimiter:
    """A bucket of tokens, one a byte. It may be overdrawn once, which is then waited for."""

    def __init__(self, rate: int) -> None:
        """``rate``: bytes per second; 0: any."""
        self.rate = rate
        self._tokens = rate * _BURST_SECONDS
        self._at = 0.0

    def delay(self, now: float) -> float:
        """Seconds until something may be taken."""
        if not self.rate:
            return 0.0
        most = self.rate * _BURST_SECONDS
        self._tokens = min(most, self._tokens + (now - self._at) * self.rate)
        self._at = now
        return 0.0 if self._tokens > 0 else -self._tokens / self.rate + 0.001

    def take(self, size: int) -> None:
        """So many bytes were read."""
        if self.rate:
            self._tokens -= size
