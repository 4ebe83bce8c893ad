"""Virtual time, and a network between named places."""

import heapq
from collections.abc import Callable
from random import Random

Event = Callable[[], None]

_SLOW = 0.05
_SLOW_STORE = 0.2
_LOST = 0.02


class World:
    """Runs events in the order of their times. All randomness comes from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.cut: set[tuple[str, str]] = set()
        self.is_calm = False
        self._events: list[tuple[float, int, Event]] = []
        self._count = 0

    def later(self, delay: float, event: Event) -> None:
        """Schedule ``event`` in ``delay`` seconds."""
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, event))

    def send(self, source: str, target: str, event: Event) -> None:
        """Send ``event`` to ``target``: it arrives after a random delay, or is lost."""
        if (source, target) in self.cut or (not self.is_calm and self.random.random() < _LOST):
            return
        slow = not self.is_calm and self.random.random() < (
            _SLOW_STORE if target == "store" else _SLOW
        )
        self.later(self.random.uniform(0.001, 1.5 if slow else 0.02), event)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end
