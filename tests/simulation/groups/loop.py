"""An event loop with virtual time: waiting takes no real time."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from qbus.broker.group.timers import Timer

Event = Callable[[], object]

_SLOW = 0.03
_LOST = 0.02


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock stands still while callbacks are ready, and jumps to the next timer."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Leaping(self))

    def time(self) -> float:
        return self.now


class _Leaping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._virtual = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the simulation has no more events")
        self._virtual.now += max(0.0, timeout)
        return []


class World:
    """Virtual time, randomness and network delays. It is a Clock."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.random = Random(seed)
        self.loop = loop
        self.is_calm = False

    def monotonic(self) -> float:
        """Seconds."""
        return self.loop.now

    def time_ms(self) -> int:
        """Milliseconds."""
        return int(1_000_000 + self.loop.now * 1000)

    def delay(self) -> float:
        """The delay of one message."""
        is_slow = not self.is_calm and self.random.random() < _SLOW
        return self.random.uniform(0.001, 1.5 if is_slow else 0.02)

    def is_lost(self) -> bool:
        """Whether one message is lost."""
        return not self.is_calm and self.random.random() < _LOST

    def later(self, delay: float, event: Event) -> None:
        """Schedule ``event`` in ``delay`` seconds."""
        self.loop.call_later(delay, event)


class Process:
    """A process that runs, is paused or is dead; a dead one does nothing any more."""

    def __init__(self, world: World) -> None:
        self.is_up = True
        self.is_paused = False
        self._world = world
        self._backlog: list[Event] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def do(self, event: Event) -> None:
        """Run ``event`` in this process: now, after the pause, or never."""
        if self.is_paused:
            self._backlog.append(event)
        elif self.is_up:
            event()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start work that ends with the process."""
        task = self._world.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def resume(self) -> None:
        """Continue with everything that arrived meanwhile."""
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for event in backlog:
            self.do(event)

    def kill(self) -> None:
        """Kill the process."""
        self.is_up = self.is_paused = False
        for task in self._tasks:
            task.cancel()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """The timers of coordinators."""
        return self._world.loop.call_at(when, self.do, callback)
