"""Writing positions so that a busy disk hardly delays reading and sending.

Where the disk keeps up, a write goes to the page cache and takes microseconds: less than a thread
would take to be woken. Beside a sync, or while the disk holds writes up, a thread writes. Whether
the disk keeps up again is tried in the event loop: at most one slow write each ``BUSY_S`` seconds
holds it up.
"""

import asyncio
import contextlib
import logging
import resource
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from qbus.clock import Clock

from .positions import Changes, Positions

log = logging.getLogger(__name__)

Done = Callable[[OSError | None], None]
"""Is called with None when everything that had changed is written, else with what went wrong."""

SLOW_S = 0.005
"""A write that takes so many seconds was held up, if it waited: else others had the processor."""
BUSY_S = 10.0
"""For so many seconds after that, a thread writes."""
_TELL_S = 60.0
"""Failed syncs are told once in so many seconds."""


class _Write(NamedTuple):
    """One write, and who waits for it."""

    changes: Changes
    waiting: list[Done]


class _Outcome(NamedTuple):
    """How a write went: whether the disk held it up, and why it failed."""

    was_held_up: bool
    failure: Exception | None


def own_waits() -> int:
    """Return how often this thread gave up the processor to wait for something."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class PositionsWriter:
    """Writes the changes of positions, one write at a time; for one event loop.

    What changes during a write is written together after it.
    """

    def __init__(
        self, positions: Positions, clock: Clock, waits: Callable[[], int] = own_waits
    ) -> None:
        """``waits``: counts how often the calling thread has waited; see :func:`own_waits`."""
        self._waits = waits
        self.error: OSError | None = None
        """Why the last write failed, if it did."""
        self.sync_error: OSError | None = None
        """Why the last sync failed, until everything is on stable storage after all."""
        self._tell_at = 0.0
        self._positions = positions
        self._clock = clock
        self._waiting: list[Done] = []
        self._is_writing = False
        self._is_syncing = False
        self._busy_until = 0.0
        self._work: SimpleQueue[_Write | None] = SimpleQueue()
        self._worker: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def write(self, done: Done | None = None) -> None:
        """Write all changes, now or soon, then call ``done``; failed ones are still to be written.

        ``done`` may be called before this returns.
        """
        if done is not None:
            self._waiting.append(done)
        if not self._is_writing:
            self._begin()

    async def written(self) -> None:
        """Return when all changes are written. Raises OSError."""
        future: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()

        def done(error: OSError | None) -> None:
            if not future.done():
                future.set_result(error)

        self.write(done)
        error = await future
        if error is not None:
            raise error

    async def sync(self) -> None:
        """Return when all changes are on stable storage.

        Raises OSError, which the log and ``error`` or ``sync_error`` tell of. After a failed sync
        the next write writes everything anew.
        """
        await self.written()
        if self._positions.is_unsynced:
            self._is_syncing = True
            try:
                await asyncio.to_thread(self._positions.sync)
            except OSError as failure:
                self._fail_sync(failure)
                raise
            finally:
                self._is_syncing = False
        self.sync_error = None

    async def close(self) -> None:
        """Write all changes, if they can be written, and end the thread."""
        with contextlib.suppress(OSError):
            await self.written()
        worker, self._worker = self._worker, None
        if worker is not None:
            self._work.put(None)
            await asyncio.to_thread(worker.join)

    def _begin(self) -> None:
        changes = self._positions.take()
        waiting, self._waiting = self._waiting, []
        if changes is None:
            for done in waiting:
                done(None)
            return
        self._is_writing = True
        write = _Write(changes, waiting)
        is_large = changes.is_whole  # and is synced at once
        if is_large or self._is_syncing or self._clock.monotonic() < self._busy_until:
            self._hand_over(write)
        else:
            self._end(write, self._store(write))

    def _hand_over(self, write: _Write) -> None:
        if self._worker is None:
            self._loop = asyncio.get_running_loop()
            self._worker = Thread(target=self._run, name="positions", daemon=True)
            self._worker.start()
        self._work.put(write)

    def _run(self) -> None:
        """Store what is handed over, in the thread."""
        assert self._loop is not None
        while (write := self._work.get()) is not None:
            outcome = self._store(write)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._end, write, outcome)

    def _store(self, write: _Write) -> _Outcome:
        started, waits, failure = self._clock.monotonic(), self._waits(), None
        try:
            self._positions.store(write.changes)
        except Exception as error:  # noqa: BLE001 - who waits is told
            failure = error
        is_slow = self._clock.monotonic() - started >= SLOW_S
        return _Outcome(is_slow and self._waits() > waits, failure)

    def _end(self, write: _Write, outcome: _Outcome) -> None:
        self._is_writing = False
        failure = outcome.failure
        if outcome.was_held_up and not write.changes.is_whole:
            self._busy_until = self._clock.monotonic() + BUSY_S
        if failure is None:
            self._positions.stored(write.changes)
            if self.error is not None:
                log.info("positions can be written again: %s", self._positions.path)
            self.error = None
            if write.changes.is_whole:
                self.sync_error = None
        else:
            self._positions.restore(write.changes)
            self._fail(failure)
        for done in write.waiting:
            done(self.error)
        if self._waiting and not self._is_writing:
            self._begin()

    def _fail(self, failure: Exception) -> None:
        is_news = self.error is None
        if isinstance(failure, OSError):
            self.error = failure
        else:
            self.error = OSError(f"{type(failure).__name__}: {failure}")
        if is_news:
            reason = self.error.strerror or self.error
            path = self._positions.path
            log.error("positions cannot be written, so reading stops: %s: %s", path, reason)

    def _fail_sync(self, failure: OSError) -> None:
        self.sync_error = failure
        now = self._clock.monotonic()
        if now >= self._tell_at:
            self._tell_at = now + _TELL_S
            log.error(
                "positions may not be on the disk, so all are written anew: %s: %s",
                self._positions.path,
                failure.strerror or failure,
            )
