"""Tailing the files of all sources: what is checked, and when."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

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
from .generations import Generations, SharePartition
from .registry import Registry
from .source import SourceReader
from .watching import Noticed, Watcher

log = logging.getLogger(__name__)

_LONGEST_RETRY_S = 600.0
_SHORTEST_TICK = 0.05
_WORK_S = 0.002
"""So many seconds go to a late timer, as those of the event loop are by up to one millisecond, and
to reading and sending what came by then."""
_SCAN_SHARE = 5.0
"""After a scan of one second the next one waits so many seconds, unless it is due anyway."""


def _unset(_: TailedFile) -> None:
    raise AssertionError("nobody reads")


def _at_once(notice: Callable[[], object]) -> None:
    notice()


class Tailer:
    """Finds files and notices those with something to read; see :meth:`read_chunk`.

    ``on_ready``, to be set before :meth:`run`, is called once for a file with something to read,
    until ``read_chunk`` has reached its end.
    """

    def __init__(
        self,
        sources: list[SourceReader],
        tailing: Tailing,
        positions: Positions,
        clock: Clock,
        *,
        shares_partition: SharePartition,
        save: Callable[[], object],
        linger: float = 0.05,
    ) -> None:
        """``linger``: the least seconds between two reads of changes, so that they are batched.

        A change after such a pause is read at once, any other one after ``linger`` at most.

        shares_partition: see :class:`Generations`. save: has changed positions written soon.

        Raises :class:`~qbus.errors.ConfigError` if inotify is required and not available.
        """
        self.descriptors = Descriptors(tailing.max_open_files)
        self.registry = Registry(sources, positions, clock)
        self._generations = Generations(shares_partition)
        self._discovery = Discovery(sources)
        self._clock = clock
        self.on_ready: Callable[[TailedFile], None] = _unset
        self._save = save
        self.together: Callable[[Callable[[], object]], object] = _at_once
        """Calls what it is given, which calls ``on_ready`` for files that changed together."""
        self._pause = max(linger - _WORK_S, linger / 2)
        self._poll_interval = tailing.poll_interval_ms / 1000
        self._discovery_interval = tailing.discovery_interval_ms / 1000
        self._watcher = _watcher(tailing.watch)
        self._wake = asyncio.Event()
        self._resting: asyncio.TimerHandle | None = None
        self._is_listening = False
        self._is_steady = False
        self._again_at = 0.0
        self._failure: Exception | None = None
        self._unfinished: set[TailedFile] = set()
        self._next_scan = 0.0
        self._next_poll = 0.0
        self._needs_scan = True
        self._rescan_at = 0.0

    @property
    def files(self) -> list[TailedFile]:
        """All tailed files."""
        return list(self.registry.files.values())

    async def run(self) -> None:
        """Tail, until cancelled."""
        if self._watcher is not None:
            self._listen(self._watcher)
        try:
            while True:
                pause = await self._turn()
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self._wake.clear()
                if self._failure is not None:
                    raise self._failure
        finally:
            self.close()

    def close(self) -> None:
        """Close all files; also needed where :meth:`run` was cancelled before it began."""
        if self._watcher is not None:
            self._ignore(self._watcher)
            self._watcher.close()
        self.descriptors.close_all()

    def read_chunk(self, file: TailedFile, most: int) -> Chunk | None:
        """Return the next records of a file, from about ``most`` bytes; None: it has none now.

        After None, and after the last records that it has now, it waits for ``on_ready`` again.
        """
        try:
            chunk = file.read_chunk(most)
        except OSError as error:
            self._fail(file, error, self._clock.monotonic())
            return None
        self.descriptors.used(file)
        if chunk is None or chunk.is_last:
            self._has_read(file)
        if file.is_written:  # and nothing new was there to be read: it may have been truncated
            self._check(file, self._clock.monotonic())
        return chunk

    def _has_read(self, file: TailedFile) -> None:
        file.is_ready = False
        file.flush = Flush.NOTHING
        self._recovered(file)
        if file.rest:
            if not self._unfinished:
                self._wake.set()  # to look after it from now on
            self._unfinished.add(file)
        file.note_if_done()
        if self._generations.is_anyone_waiting:
            self._wake.set()

    # The loop.

    async def _turn(self) -> float:
        """Do what is due; return the seconds until something is due again."""
        now = self._clock.monotonic()
        if now >= self._next_scan or (self._needs_scan and now >= self._rescan_at):
            await self._scan()
            now = self._clock.monotonic()
        for file in self._generations.due(now):
            self._check(file, now)
        if now >= self._next_poll:
            self._next_poll = now + self._poll_interval
            self._poll(now)
        self._flush(now)
        due = [self._next_scan, self._next_poll]
        if self._needs_scan:
            due.append(self._rescan_at)
        if self._unfinished:
            due.append(now + min(self._poll_interval, 0.25))
        return max(0.0, min(due) - now)

    def _listen(self, watcher: Watcher) -> None:
        """Read events as soon as there are any."""
        if not self._is_listening:
            self._is_listening = True
            asyncio.get_running_loop().add_reader(watcher.descriptor, self._on_events, watcher)

    def _rest(self, watcher: Watcher) -> None:
        """Leave events where they are for a while."""
        if self._is_listening:
            self._is_listening = False
            asyncio.get_running_loop().remove_reader(watcher.descriptor)

    def _rest_until(self, at: float, watcher: Watcher) -> None:
        """Leave events where they are until then."""
        self._rest(watcher)
        self._resting = asyncio.get_running_loop().call_at(at, self._on_events, watcher)

    def _ignore(self, watcher: Watcher) -> None:
        """Read no events any more."""
        self._rest(watcher)
        if self._resting is not None:
            self._resting.cancel()

    def _on_events(self, watcher: Watcher) -> None:
        """Handle the events there are; those of the next ``linger`` are handled together.

        While they come that quickly, a timer alone tells when to handle more: to be told of each
        first one as well would cost as much again. Where they seldom come, no timer is needed.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        if self._is_listening and started < self._again_at:
            self._is_steady = True
            self._rest_until(self._again_at, watcher)
            return
        try:
            noticed = watcher.read()
            self.together(partial(self._take_in, noticed))
        except Exception as error:  # noqa: BLE001 - it ends the tailing
            self._rest(watcher)
            self._failure = error
            self._wake.set()
        else:
            if not (noticed.written or noticed.needs_scan):
                self._is_steady = False
                self._listen(watcher)
                return
            ended = loop.time()  # at least half of the time is left for all else
            self._again_at = max(started + self._pause, ended + (ended - started))
            if self._is_steady:
                self._rest_until(self._again_at, watcher)

    def _take_in(self, noticed: Noticed) -> None:
        self._needs_scan = self._needs_scan or noticed.needs_scan
        if noticed.written:
            now = self._clock.monotonic()
            for path in noticed.written:
                for file in self.registry.at(path):
                    if not file.is_ready and file.note_write(now):
                        self._ready(file)
                    else:
                        self._check(file, now)
        if self._needs_scan or self._generations.is_anyone_waiting:
            self._wake.set()

    async def _scan(self) -> None:
        """Find the files that exist, and check those that may have something to read."""
        started = self._clock.monotonic()
        self._needs_scan = False
        paths = {file: file.path for file in self.files}
        # Lines are read meanwhile, and files found under new names.
        scan = await asyncio.to_thread(self._discovery.scan, set(paths.values()))
        if self._watcher is not None and self._watcher.watch(scan.directories):
            self._needs_scan = True  # files may have appeared before the watch
        now = self._clock.monotonic()
        for file in self.registry.update(scan, paths):
            self._check(file, now)
        news = [source for source in self._discovery.sources if self.registry.mark_seen(source)]
        if news:
            self._save()  # with its files: what is added to them is shipped after a crash, too
        self._rescan_at = now + max(_SHORTEST_TICK, _SCAN_SHARE * (now - started))
        self._next_scan = now + self._discovery_interval

    def _poll(self, now: float) -> None:
        """Check the files that inotify does not cover; remove finished ones."""
        is_watched = self._watcher is not None and self._watcher.is_complete
        for file in self.files:
            if not is_watched or file.is_rotated or file.is_new or file.retries:
                self._check(file, now)
            if self.registry.is_finished(file, now):
                self.descriptors.close(file)
                self._unfinished.discard(file)
                self._generations.left(file)
                self.registry.remove(file)
        self.descriptors.close_idle(now)

    def _check(self, file: TailedFile, now: float) -> None:
        """Refresh a file; if it has something to read, hand it over."""
        if file.retries and now < file.retry_at:
            return
        try:
            if file.descriptor is None and not self.registry.is_changed(file):
                return
            file.refresh(now)
            if self.registry.is_waiting(file):
                return
        except FileNotFoundError:
            file.close()
            file.is_gone = not self.registry.find(file)
            self._needs_scan = True
            return
        except OSError as error:
            self._fail(file, error, now)
            return
        finally:
            self.descriptors.used(file)
        file.note_if_done()
        if file.is_read:
            self._recovered(file)
        elif not file.is_ready and not self._has_to_wait(file, now):
            self._ready(file)

    def _has_to_wait(self, file: TailedFile, now: float) -> bool:
        if file.has_begun:
            return False
        return self._generations.has_to_wait(
            file, lambda: self.registry.siblings(file), lambda other: self._check(other, now), now
        )

    def _ready(self, file: TailedFile) -> None:
        file.is_ready = True
        self._unfinished.discard(file)
        self.on_ready(file)

    def _fail(self, file: TailedFile, error: OSError, now: float) -> None:
        """Note that a file cannot be read, and retry later."""
        file.is_ready = False
        file.error = error.strerror or str(error)
        if not file.retries:
            log.warning("%s: %s; trying again", file.path, file.error)
        self.descriptors.close(file)
        file.retry_at = now + backoff_delay(
            file.retries, self._poll_interval, _LONGEST_RETRY_S, jitter=0
        )
        file.retries += 1

    @staticmethod
    def _recovered(file: TailedFile) -> None:
        """Note that a file can be read."""
        if file.retries:
            log.info("%s can be read again", file.path)
            file.error, file.retries = None, 0

    def _flush(self, now: float) -> None:
        """Complete unfinished data that have waited for long enough."""
        for file in list(self._unfinished):
            config = file.source.config
            seconds = flush_after(
                is_rotated=file.is_rotated,
                has_lines=file.has_lines,
                partial=config.rotated_timeout_ms / 1000,
                lines=config.multiline_timeout_ms / 1000,
            )
            if seconds is None or now - file.changed_at < seconds:
                continue
            self._unfinished.discard(file)
            self._check(file, now)
            if file.is_ready or now - file.changed_at < seconds:
                self._unfinished.add(file)
                continue
            is_old = now - file.changed_at >= config.rotated_timeout_ms / 1000
            file.flush = Flush.ALL if file.is_rotated and is_old else Flush.LINES
            self._ready(file)


def _watcher(wanted: str) -> Watcher | None:
    if wanted == POLL:
        return None
    try:
        return Watcher()
    except ConfigError as error:
        if wanted == INOTIFY:
            raise
        log.warning("inotify is not available, so files are polled: %s", error)
        return None
