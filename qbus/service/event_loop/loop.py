"""An event loop whose ticks are timed, through the selector: it is asked once a tick."""

import asyncio
import logging
import selectors
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, TypeVar

from qbus.service.event_loop.slow import SlowHandlers
from qbus.service.event_loop.ticks import DEFAULT_SLOW_S, Ticks
from qbus.service.event_loop.watchdog import Watchdog

_log = logging.getLogger(__name__)

T = TypeVar("T")


class TimedSelector(selectors.DefaultSelector):
    """A selector that notes when a loop waits for events, and when it works."""

    def __init__(self, ticks: Ticks, on_slow: Callable[[float, float], None]) -> None:
        """``on_slow`` is given when a tick began that took too long, and when it ended."""
        super().__init__()
        self._ticks = ticks
        self._on_slow = on_slow
        self._wait = super().select

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See :class:`selectors.BaseSelector`."""
        ticks = self._ticks
        began = ticks.began
        if began:
            now = perf_counter()
            if now - began > ticks.slow_s:
                self._tick_was_slow(began, now)
                timeout = 0  # what that has scheduled does not wait for events
            ticks.began = 0.0
        events = self._wait(timeout)
        ticks.number += 1
        ticks.began = perf_counter()
        return events

    def _tick_was_slow(self, began: float, now: float) -> None:
        try:
            self._ticks.check_lease(now)
            self._on_slow(began, now)
        except Exception:  # noqa: BLE001 - raised here it would end the loop
            _log.exception("a slow tick of the event loop could not be dealt with")


class WatchedLoop(asyncio.SelectorEventLoop):
    """An event loop that logs and counts what holds it for too long.

    While it runs, a thread of its own looks at it.
    """

    def __init__(self, slow_s: float = DEFAULT_SLOW_S) -> None:
        self.ticks = Ticks(slow_s)
        self.slow = SlowHandlers(self.ticks)
        super().__init__(TimedSelector(self.ticks, self.slow.tick_ended))

    def run_forever(self) -> None:
        """See :class:`asyncio.AbstractEventLoop`."""
        watchdog = Watchdog(self.ticks, self.slow)
        watchdog.start()
        try:
            super().run_forever()
        finally:
            self.ticks.began = 0.0  # it stands for good, and nobody waits for it
            watchdog.stop()


def run(main: Coroutine[Any, Any, T], slow_s: float = DEFAULT_SLOW_S) -> T:
    """As :func:`asyncio.run`, in a watched loop; ``slow_s``: what is too long, in seconds."""
    with asyncio.Runner(loop_factory=lambda: WatchedLoop(slow_s)) as runner:
        return runner.run(main)


def ticks_of(loop: asyncio.AbstractEventLoop) -> Ticks | None:
    """The ticks of ``loop``, if it is watched."""
    return loop.ticks if isinstance(loop, WatchedLoop) else None
