"""A thread that looks at an event loop, and says where it stands while it stands.

It looks twice in the time that is too long for a callback, so that it has seen every callback that
takes that time. Code that keeps the interpreter's lock stops this thread, too: then it looks as
soon as that code is done, before the loop has gone on to the next callback.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from time import perf_counter
from types import FrameType
from typing import Final

from qbus.service.event_loop.callbacks import Place, place_of
from qbus.service.event_loop.slow import STANDSTILL_S, SlowHandlers
from qbus.service.event_loop.ticks import Ticks

_log = logging.getLogger(__name__)

_LEAST_PERIOD_S: Final = 0.01
_MOST_PERIOD_S: Final = 0.5
_PAUSE_S: Final = 10.0
_AGAIN_S: Final = 60.0


class Watchdog:
    """Looks at the loop of the thread that makes it, until :meth:`stop`."""

    def __init__(
        self,
        ticks: Ticks,
        slow: SlowHandlers,
        *,
        now: Callable[[], float] = perf_counter,
        frames: Callable[[], Mapping[int, FrameType]] = sys._current_frames,
    ) -> None:
        self._ticks = ticks
        self._slow = slow
        self._now = now
        self._frames = frames
        self._thread_id = threading.get_ident()
        self._cpu = _LoopCpu(self._thread_id)
        self._seen_tick = -1
        self._logged_tick = -1
        self._logged_at = float("-inf")
        self._unlogged = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="qbus-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._slow.cpu_before = self._cpu.before
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        period_s = min(max(self._ticks.slow_s / 2, _LEAST_PERIOD_S), _MOST_PERIOD_S)
        while not self._stopped.wait(period_s):
            try:
                self.look()
            except Exception:  # noqa: BLE001 - what only looks must not stop looking
                _log.exception("the watchdog of the event loop has failed to look")

    def look(self) -> None:
        """Look once."""
        ticks, now = self._ticks, self._now()
        number, stands_s = ticks.number, ticks.stands_s(now)
        if number != self._seen_tick:
            self._seen_tick = number
            self._cpu.mark(now)
        if stands_s < ticks.slow_s / 2:
            return
        place = self._place(number)
        if place is None:
            return
        self._slow.place = place
        if stands_s >= STANDSTILL_S:
            self._log_standstill(place, now, stands_s)

    def _place(self, number: int) -> Place | None:
        """Where the loop stands; None: it has gone on meanwhile."""
        frame = self._frames().get(self._thread_id)
        if frame is None or self._ticks.number != number or not self._ticks.began:
            return None
        return place_of(frame, number)

    def _log_standstill(self, place: Place, now: float, stands_s: float) -> None:
        """Once for each stall; a stall that lasts is logged again each minute."""
        is_new = place.tick != self._logged_tick
        if now - self._logged_at < (_PAUSE_S if is_new else _AGAIN_S):
            self._unlogged += is_new
            self._logged_tick = place.tick if is_new else self._logged_tick
            return
        self._logged_tick, self._logged_at = place.tick, now
        current = self._ticks.current
        at = place.callback
        if current is not None:
            at = self._slow.describe(current, self._ticks.current_key)
        also = f" ({self._unlogged} more stalls since the last line)" if self._unlogged else ""
        self._unlogged = 0
        _log.error(
            "the event loop has stood still for %.1f s, and nobody is served: it is at %s%s\n%s",
            stands_s,
            at,
            also,
            "".join(place.stack.format()).rstrip(),
        )


class _LoopCpu:
    """How much of the processor the loop's thread had used, at the looks before its last ticks."""

    def __init__(self, thread_id: int) -> None:
        self._clock = time.pthread_getcpuclockid(thread_id)
        self._last = self._before = (float("-inf"), 0.0)

    def mark(self, now: float) -> None:
        """Note it, at the first look in a tick."""
        self._before, self._last = self._last, (now, time.clock_gettime(self._clock))

    def before(self, began: float) -> float | None:
        """What it had used when a tick began, or a little before that; None: it is not known."""
        for at, used in (self._last, self._before):
            if float("-inf") < at <= began:
                return used
        return None
