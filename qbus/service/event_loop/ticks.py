"""The current tick of an event loop: when it began, and what it is at."""

from collections.abc import Callable
from typing import Final

NEVER: Final = float("inf")
DEFAULT_SLOW_S: Final = 0.1


class Ticks:
    """The ticks of one event loop: what it does between two waits for events.

    All times are in seconds of ``perf_counter``, which other threads may compare with it.
    ``began``: when the current tick did; 0.0 while the loop waits for events. ``number`` counts
    them. ``slow_s``: how long a callback may take before it is logged. ``current`` is the client
    whose request is being handled, ``current_key`` which request it is, as its protocol numbers
    them; ``requests`` counts them. ``explained_s``: the part of the current tick that is logged
    already.
    """

    def __init__(self, slow_s: float = DEFAULT_SLOW_S) -> None:
        self.began = 0.0
        self.number = 0
        self.slow_s = slow_s
        self.current: object | None = None
        self.current_key = 0
        self.requests = 0
        self.explained_s = 0.0
        self._lease_s = NEVER
        self._on_lapse: Callable[[float], object] | None = None
        self._lapsed_tick = -1

    def stands_s(self, now: float) -> float:
        """For how long the loop has been in its current tick; 0.0: it waits for events."""
        began = self.began  # once: the loop goes on meanwhile
        return now - began if began else 0.0

    def lease(self, seconds: float, on_lapse: Callable[[float], object]) -> None:
        """Call ``on_lapse`` once a tick has lasted that long, before the next request is begun.

        It gets the seconds that the loop has stood still for, and is called in the loop.
        """
        self._lease_s, self._on_lapse = seconds, on_lapse

    def check_lease(self, now: float) -> None:
        """Call what waits for that, if the current tick has lasted too long; once a tick."""
        stood_s = self.stands_s(now)
        if stood_s <= self._lease_s or self._lapsed_tick == self.number:
            return
        self._lapsed_tick = self.number
        if self._on_lapse is not None:
            self._on_lapse(stood_s)

    def begin_request(self, client: object, now: float) -> None:
        """Note whose request is handled from ``now`` on; :meth:`end_request` follows."""
        if now - self.began > self._lease_s:
            self.check_lease(now)
        self.current = client
        self.requests += 1

    def end_request(self, began: float, now: float) -> bool:
        """Note that the request that began then is handled; whether it took too long."""
        self.current = None
        if now - began <= self.slow_s:
            return False
        self.check_lease(now)
        self.explained_s += now - began
        return True
