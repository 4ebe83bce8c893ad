"""Work that the broker does from time to time: a registry that anything may add to.

Each task runs on its own, so that a slow disk delays none of the others. A task that fails is
logged, keeps its last error, and runs again at its next time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final

from qbus.service.threads import Threads

_log = logging.getLogger(__name__)

_THREADS: Final = 4

Work = Callable[[], Awaitable[object] | None]


class BackgroundTask:
    """One kind of work: ``work`` is called every ``interval_s`` seconds, by its ``name``.

    ``runs`` counts how often it was done; ``last_error`` is what its last run failed with, and
    None after one that did not fail.
    """

    def __init__(self, name: str, interval_s: float, work: Work) -> None:
        self.name = name
        self.interval_s = interval_s
        self.runs = 0
        self.last_error: Exception | None = None
        self._work = work

    async def repeat(self) -> None:
        """Wait, work, and so on for ever."""
        while True:
            await asyncio.sleep(self.interval_s)
            await self.run()

    async def run(self) -> None:
        """Do the work once, and wait until it is done; a failure is logged."""
        try:
            outcome = self._work()
            if outcome is not None:
                await outcome
        except Exception as error:  # noqa: BLE001 - next time it may work
            self.last_error = error
            _log.exception(
                "background task %r failed; it runs again in %g s", self.name, self.interval_s
            )
        else:
            self.last_error = None
        self.runs += 1


class BackgroundTasks:
    """All background tasks of a broker, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, BackgroundTask] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._threads = Threads(_THREADS, "qbus-background")
        self._is_started = False

    def __iter__(self) -> Iterator[BackgroundTask]:
        return iter(self._tasks.values())

    def __getitem__(self, name: str) -> BackgroundTask:
        return self._tasks[name]

    def add(self, name: str, interval_s: float, work: Work) -> BackgroundTask:
        """Call ``work`` in the event loop every ``interval_s`` seconds, and await what it returns.

        Tasks may be added before and after the start. Raises ValueError when the name is taken.
        """
        if name in self._tasks:
            raise ValueError(f"there is a background task {name!r} already")
        task = self._tasks[name] = BackgroundTask(name, interval_s, work)
        if self._is_started:
            self._start(task)
        return task

    def add_threaded(
        self, name: str, interval_s: float, work: Callable[[], object]
    ) -> BackgroundTask:
        """As :meth:`add`, for work that waits for disks: it runs in a thread."""
        return self.add(name, interval_s, lambda: self.in_thread(work))

    def in_thread(self, work: Callable[[], object]) -> Awaitable[object]:
        """Run ``work`` once in one of the tasks' threads."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    def start(self) -> None:
        """Begin with all tasks."""
        self._is_started = True
        for task in self:
            self._start(task)

    async def stop(self) -> None:
        """Begin nothing any more, and wait for what runs in threads."""
        self._is_started = False
        running, self._running = self._running, {}
        for task in running.values():
            task.cancel()
        for task in running.values():
            with suppress(asyncio.CancelledError):
                await task
        await asyncio.to_thread(self._threads.shutdown)

    def _start(self, task: BackgroundTask) -> None:
        self._running[task.name] = asyncio.create_task(task.repeat(), name=task.name)
