"""One line of the log for what happens again and again."""

from typing import Final

from qbus.clock import Clock

_PAUSE_S: Final = 10.0


class LogThrottle:
    """Allows a line of the log once in ``pause_s`` seconds."""

    __slots__ = ("_clock", "_last", "_pause_s")

    def __init__(self, clock: Clock, pause_s: float = _PAUSE_S) -> None:
        self._clock = clock
        self._pause_s = pause_s
        self._last = float("-inf")

    def allows(self) -> bool:
        """Whether a line may be written now; it counts as written."""
        now = self._clock.monotonic()
        if now - self._last < self._pause_s:
            return False
        self._last = now
        return True
