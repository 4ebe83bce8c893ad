"""How fast a link may be: a bound on bytes per second. Pure but for the time that it is told."""


class Throttle:
    """A token bucket that may be overdrawn: what came is counted after the fact.

    ``rate`` is in bytes per second, 0 for no bound; a second's worth may come at once.
    """

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._tokens = float(rate)
        self._filled_at = now

    def took(self, size: int, now: float) -> None:
        """So many bytes came."""
        if self._rate:
            self._fill(now)
            self._tokens -= size

    def delay(self, now: float) -> float:
        """Seconds until more may be asked for; 0 for now."""
        if not self._rate:
            return 0.0
        self._fill(now)
        return max(-self._tokens / self._rate, 0.0)

    def _fill(self, now: float) -> None:
        elapsed = max(now - self._filled_at, 0.0)
        self._filled_at = max(now, self._filled_at)
        self._tokens = min(self._tokens + elapsed * self._rate, float(self._rate))
