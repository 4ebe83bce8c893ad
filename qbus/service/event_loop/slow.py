"""Counts and logs what holds the event loop for too long: by request, command or callback."""

import logging
import time
from collections.abc import Callable
from typing import Final

from qbus.service.event_loop.callbacks import Place
from qbus.service.event_loop.ticks import Ticks

_log = logging.getLogger(__name__)

_PAUSE_S: Final = 10.0
_MOST_NAMES: Final = 100
_MOST_LINES: Final = 10

STANDSTILL_S: Final = 1.0
"""From here on a stall is logged while it lasts, too."""

OTHERS: Final = "(others)"
UNKNOWN: Final = "(unknown)"
"""What no look of the watchdog saw: many short callbacks, or a machine that lets none look."""


class _Handler:
    """What is known of one kind of request, command or callback."""

    __slots__ = ("count", "cpu_s", "logged_at", "longest_s", "seconds", "unlogged")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.cpu_s = 0.0
        self.longest_s = 0.0
        self.logged_at = float("-inf")
        self.unlogged = 0


class SlowHandlers:
    """What took longer than ``ticks.slow_s``, by name: how often, and for how long.

    A line of the log for each; but in ten seconds one for each name, and ten in all. It is a
    warning if the processor was used for too long, or nobody was served for a second. ``place`` is
    where the watchdog saw the loop stand last, and ``cpu_before`` what the loop's thread had used
    of the processor before a time.
    """

    def __init__(self, ticks: Ticks, cpu_time: Callable[[], float] = time.thread_time) -> None:
        self.ticks = ticks
        self._cpu_time = cpu_time
        self._handlers: dict[str, _Handler] = {}
        self._lines_since = float("-inf")
        self._lines = 0
        self.place: Place | None = None
        self.cpu_before: Callable[[float], float | None] = _unknown
        self.describe: Callable[[object, int], str] = _describe

    @property
    def counts(self) -> dict[str, int]:
        """How often each held the loop for too long."""
        return {name: handler.count for name, handler in list(self._handlers.items())}

    @property
    def seconds(self) -> dict[str, float]:
        """For how many seconds in all."""
        return {name: handler.seconds for name, handler in list(self._handlers.items())}

    @property
    def cpu_seconds(self) -> dict[str, float]:
        """For how many seconds in all the processor was used meanwhile, at most."""
        return {name: handler.cpu_s for name, handler in list(self._handlers.items())}

    @property
    def longest(self) -> dict[str, float]:
        """The longest time of each, in seconds."""
        return {name: handler.longest_s for name, handler in list(self._handlers.items())}

    def note(self, name: str, began: float, now: float, client: str = "") -> None:
        """Count, and log, that ``name`` held the loop from ``began`` to ``now``; in the loop."""
        handler = self._handler(name)
        seconds = now - began
        handler.count += 1
        handler.seconds += seconds
        handler.longest_s = max(seconds, handler.longest_s)
        cpu_s = self._cpu_s(began, seconds)
        handler.cpu_s += cpu_s or 0.0
        if now - handler.logged_at < _PAUSE_S or not self._may_log(now):
            handler.unlogged += 1
            return
        place = self.place
        again = f"; {handler.unlogged} times more since its last line" if handler.unlogged else ""
        handler.logged_at, handler.unlogged = now, 0
        whose = f" of {client}" if client else ""
        cpu = "" if cpu_s is None else f", at most {cpu_s:.3f} s of that on the processor"
        line = place.line if place is not None and place.tick == self.ticks.number else ""
        where = f"; it stood at {line}" if line else ""
        worked = cpu_s is None or cpu_s > self.ticks.slow_s or seconds >= STANDSTILL_S
        _log.log(
            logging.WARNING if worked else logging.INFO,
            "%s%s held the event loop for %.3f s%s%s%s",
            *(name, whose, seconds, cpu, where, again),
        )

    def tick_ended(self, began: float, now: float) -> None:
        """Count what no request explains of a tick that took too long; in the loop."""
        ticks, place = self.ticks, self.place
        explained, ticks.explained_s = ticks.explained_s, 0.0
        if now - began - explained <= ticks.slow_s:
            return
        seen = place is not None and place.tick == ticks.number
        name = place.callback if seen and place is not None else UNKNOWN
        self.note(name, began + explained, now)

    def _may_log(self, now: float) -> bool:
        if now - self._lines_since >= _PAUSE_S:
            self._lines_since, self._lines = now, 0
        self._lines += 1
        return self._lines <= _MOST_LINES

    def _handler(self, name: str) -> _Handler:
        handler = self._handlers.get(name)
        if handler is None:
            if len(self._handlers) >= _MOST_NAMES:
                name = OTHERS
            handler = self._handlers.setdefault(name, _Handler())
        return handler

    def _cpu_s(self, began: float, seconds: float) -> float | None:
        before = self.cpu_before(began)
        return None if before is None else min(max(self._cpu_time() - before, 0.0), seconds)


def _unknown(_: float) -> float | None:
    return None


def _describe(client: object, _: int) -> str:
    return f"a request of {client}"
