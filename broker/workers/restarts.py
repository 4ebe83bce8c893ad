"""When a process that has ended is started again."""

_FIRST_S = 0.25
_LONGEST_S = 10.0
_WELL_AFTER_S = 10.0


class Restarts:
    """At once if it ran well for a while; otherwise after a pause that doubles each time."""

    def __init__(self) -> None:
        self.count = 0
        self._pause_s = 0.0

    def ended(self, lived_s: float) -> float:
        """Count an end after ``lived_s`` seconds; the seconds to wait before the next start."""
        self.count += 1
        if lived_s >= _WELL_AFTER_S:
            self._pause_s = 0.0
        pause_s = self._pause_s
        self._pause_s = min(max(2 * pause_s, _FIRST_S), _LONGEST_S)
        return pause_s
