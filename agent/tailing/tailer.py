"""Following all files of all sources: what to look at, and when."""

import asyncio
import logging
from collections.abc import Callable

from qbus.clock import Clock
from qbus.errors import ConfigError
from qbus.service.backoff import backoff_delay

from ..config import Tailing
from ..config.config import INOTIFY, POLL
from ..positions import Positions
from .descriptors import Descriptors
from .discovery import Discovery
from .file import Chunk, TailedFile
from .framing import Flush, flush_after
from .registry import Registry
from .source import SourceReader
from .watching import Watcher

log = logging.getLogger(__name__)

_LONGEST_RETRY_S = 600.0
_SHORTEST_TICK = 0.05
_SCAN_SHARE = 5.0
"""After a scan of one second there is none for so many, unless one is due anyway."""


class Tailer:
    """Finds files and tells which have something to read; see :meth:`take`.

    ``on_ready`` is called with a file once it has something, until ``take`` found its end.
    """

    def __init__(
        self,
        sources: list[SourceReader],
        tailing: Tailing,
        positions: Positions,
        clock: Clock,
        on_ready: Callable[[TailedFile], None],
        *,
        linger: float = 0.05,
    ) -> None:
        """``linger``: seconds from a change until the file is read, for others to gather.

        Raises :class:`~qbus.errors.ConfigError` where inotify is asked for and not there.
        """
        self.descriptors = Descriptors(tailing.max_open_files)
        self.registry = Registry(sources, positions, clock)
        self._discovery = Discovery(sources)
        self._clock = clock
        self._on_ready = on_ready
        self._linger = linger
        self._poll_interval = tailing.poll_interval_ms / 1000
        self._discovery_interval = tailing.discovery_interval_ms / 1000
        self._watcher = _watcher(tailing.watch)
        self._wake = asyncio.Event()
        self._unfinished: set[TailedFile] = set()
        self._next_scan = 0.0
        self._next_poll = 0.0
        self._is_rearranged = True
        self._rested = 0.0

    @property
    def files(self) -> list[TailedFile]:
        """All files that are followed."""
        return list(self.registry.files.values())

    async def run(self) -> None:
        """Follow, until cancelled."""
        loop = asyncio.get_running_loop()
        if self._watcher is not None:
            loop.add_reader(self._watcher.descriptor, self._noticed)
        try:
            while True:
                pause = await self._turn()
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self._wake.clear()
        finally:
            if self._watcher is not None:
                loop.remove_reader(self._watcher.descriptor)
                self._watcher.close()
            self.descriptors.close_all()

    def take(self, file: TailedFile, most: int) -> Chunk | None:
        """The next records of a file, made of about ``most`` bytes; None: it has none now."""
        now = self._clock.monotonic()
        try:
            chunk = file.take(most)
        except OSError as error:
            self._fail(file, error, now)
            return None
        self.descriptors.used(file)
        if chunk is not None:
            return chunk
        file.is_ready = False
        file.flush = Flush.NOTHING
        file.error, file.retries = None, 0
        if file.rest:
            self._unfinished.add(file)
        file.note_if_done()
        return None

    # What is done in turn.

    async def _turn(self) -> float:
        """Do what is due; seconds until the next is."""
        noticed = self._read_events()
        now = self._clock.monotonic()
        if now >= self._next_scan or (self._is_rearranged and now >= self._rested):
            await self._scan()
            now = self._clock.monotonic()
        for path in noticed:
            for file in self.registry.at(path):
                self._look(file, now)
        if now >= self._next_poll:
            self._next_poll = now + self._poll_interval
            self._poll(now)
        self._flush(now)
        due = [self._next_scan, self._next_poll]
        if self._is_rearranged:
            due.append(self._rested)
        if self._unfinished:
            due.append(now + min(self._poll_interval, 0.25))
        return max(0.0, min(due) - now)

    def _noticed(self) -> None:
        """Something happened: gather what else does for a moment."""
        assert self._watcher is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._watcher.descriptor)
        loop.call_later(self._linger, self._wake.set)

    def _read_events(self) -> set[str]:
        if self._watcher is None:
            return set()
        noticed = self._watcher.read()
        self._is_rearranged = self._is_rearranged or noticed.is_rearranged
        asyncio.get_running_loop().add_reader(self._watcher.descriptor, self._noticed)
        return noticed.written

    async def _scan(self) -> None:
        """Find out which files there are."""
        started = self._clock.monotonic()
        self._is_rearranged = False
        known = {file.path for file in self.files}
        sighting = await asyncio.to_thread(self._discovery.look, known)
        if self._watcher is not None and self._watcher.watch(sighting.directories):
            self._is_rearranged = True  # something may have come before it was watched
        now = self._clock.monotonic()
        for file in self.registry.update(sighting):
            self._look(file, now)
        for source in self._discovery.sources:
            self.registry.looked_at(source)
        self._rested = now + max(_SHORTEST_TICK, _SCAN_SHARE * (now - started))
        self._next_scan = now + self._discovery_interval

    def _poll(self, now: float) -> None:
        """Look at those files whose changes nobody tells of."""
        is_told = self._watcher is not None and self._watcher.is_complete
        for file in self.files:
            if not is_told or file.is_left or file.is_new or file.retries:
                self._look(file, now)
            if self.registry.is_over(file, now):
                self.descriptors.close(file)
                self._unfinished.discard(file)
                self.registry.remove(file)
        self.descriptors.close_idle(now)

    def _look(self, file: TailedFile, now: float) -> None:
        """See whether a file has something to read."""
        if file.retries and now < file.retry_at:
            return
        try:
            if file.descriptor is None and not self.registry.is_changed(file):
                return
            file.look(now)
            if self.registry.is_waiting(file):
                return
        except FileNotFoundError:
            file.close()
            file.is_gone = not self.registry.find(file)
            self._is_rearranged = True
            return
        except OSError as error:
            self._fail(file, error, now)
            return
        finally:
            self.descriptors.used(file)
        file.note_if_done()
        if not file.is_read and not file.is_ready:
            self._ready(file)

    def _ready(self, file: TailedFile) -> None:
        file.is_ready = True
        self._unfinished.discard(file)
        self._on_ready(file)

    def _fail(self, file: TailedFile, error: OSError, now: float) -> None:
        """A file cannot be read: say so, and try again later."""
        file.is_ready = False
        file.error = error.strerror or str(error)
        if not file.retries:
            log.warning("%s: %s", file.path, file.error)
        self.descriptors.close(file)
        file.retry_at = now + backoff_delay(
            file.retries, self._poll_interval, _LONGEST_RETRY_S, jitter=0
        )
        file.retries += 1

    def _flush(self, now: float) -> None:
        """Take for whole what has been waited for long enough."""
        for file in list(self._unfinished):
            config = file.source.config
            seconds = flush_after(
                is_left=file.is_left,
                has_lines=file.has_lines,
                partial=config.rotated_timeout_ms / 1000,
                lines=config.multiline_timeout_ms / 1000,
            )
            if seconds is None or now - file.changed_at < seconds:
                continue
            self._unfinished.discard(file)
            self._look(file, now)
            if file.is_ready or now - file.changed_at < seconds:
                self._unfinished.add(file)
                continue
            is_old = now - file.changed_at >= config.rotated_timeout_ms / 1000
            file.flush = Flush.ALL if file.is_left and is_old else Flush.LINES
            self._ready(file)


def _watcher(wanted: str) -> Watcher | None:
    if wanted == POLL:
        return None
    try:
        return Watcher()
    except ConfigError as error:
        if wanted == INOTIFY:
            raise
        log.warning("files are polled: %s", error)
        return None
