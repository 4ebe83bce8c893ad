"""Noticing changes at once by inotify(7).

Directories are watched, not files: ten thousand files in one directory need one watch.
"""

import contextlib
import logging
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from qbus.errors import ConfigError

log = logging.getLogger(__name__)


class Noticed(NamedTuple):
    """Paths that were written to, and whether files were created, deleted or renamed."""

    written: set[str]
    needs_scan: bool


class Watcher:
    """Watches directories; ``descriptor`` becomes readable when something happens.

    ``is_complete``: all directories that it was given are watched.
    """

    def __init__(self) -> None:
        """Raises :class:`~qbus.errors.ConfigError` without inotify_simple or without inotify."""
        try:
            import inotify_simple  # noqa: PLC0415 - optional, and no part of the broker
        except ImportError:
            raise ConfigError("inotify needs qbus[agent]: pip install 'qbus[agent]'") from None
        flags = inotify_simple.flags
        self._written = int(flags.MODIFY)
        self._overflow = int(flags.Q_OVERFLOW)
        self._ignored = int(flags.IGNORED)
        self._mask = int(
            flags.MODIFY
            | flags.CREATE
            | flags.DELETE
            | flags.MOVED_FROM
            | flags.MOVED_TO
            | flags.ATTRIB
            | flags.DELETE_SELF
            | flags.MOVE_SELF
            | flags.ONLYDIR
        )
        try:
            self._inotify: Any = inotify_simple.INotify(nonblocking=True)
        except OSError as error:
            raise ConfigError(f"inotify: {error.strerror}") from error
        self._watches: dict[str, int] = {}
        self._directories: dict[int, str] = {}
        self.is_complete = True
        self.descriptor: int = self._inotify.fileno()

    def watch(self, directories: Iterable[str]) -> bool:
        """Watch exactly these directories; return whether any of them is new."""
        wanted = set(directories)
        for gone in self._watches.keys() - wanted:
            watch = self._watches.pop(gone)
            if self._directories.get(watch) == gone:
                del self._directories[watch]
                with contextlib.suppress(OSError):
                    self._inotify.rm_watch(watch)
        is_complete, has_new = True, False
        for directory in wanted - self._watches.keys():
            try:
                watch = self._inotify.add_watch(directory, self._mask)
            except OSError as error:
                if self.is_complete:
                    log.warning(
                        "%s is polled, as it cannot be watched: %s", directory, error.strerror
                    )
                is_complete = False
                continue
            # Two names of one directory share a watch, whose events name the later one.
            self._watches[directory] = watch
            self._directories[watch] = directory
            has_new = True
        self.is_complete = is_complete
        return has_new

    def read(self) -> Noticed:
        """Return what happened since the last read."""
        written: set[str] = set()
        needs_scan = False
        for watch, mask, _, name in self._inotify.read(timeout=0):
            directory = self._directories.get(watch)
            if mask & self._ignored:
                if directory is not None:
                    self._watches.pop(directory, None)
                    del self._directories[watch]
                needs_scan = True
            elif mask & self._overflow:
                needs_scan = True
            elif directory is not None:
                if mask & self._written:
                    written.add(os.path.join(directory, name))  # noqa: PTH118 - quicker
                else:
                    needs_scan = True
        return Noticed(written, needs_scan)

    def close(self) -> None:
        """Close all watches."""
        self._inotify.close()
