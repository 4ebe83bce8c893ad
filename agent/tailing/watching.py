"""Noticing changes at once by inotify(7).

Directories are watched, not files: ten thousand files in one directory need one watch.
"""

import contextlib
import errno
import logging
import os
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from qbus.errors import ConfigError
from qbus.extras import lacks

log = logging.getLogger(__name__)

_HEADER = struct.Struct("iIII")  # watch, mask, cookie, length of the name with its padding
_LENGTH = struct.Struct("I")
_LENGTH_AT = 12
_LONGEST_EVENT = _HEADER.size + 256
_BUFFER_BYTES = 64 * 1024
_MOST_BUFFERS = 16
_MOST_PATHS = 10_000
"""Paths that are kept by the events of writes to them: these come again and again."""


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
            raise ConfigError(lacks("inotify needs inotify-simple", "agent")) from None
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
            raise ConfigError(f"inotify: {_reason(error)}") from error
        self._watches: dict[str, int] = {}
        self._directories: dict[int, str] = {}
        self._paths: dict[bytes, str] = {}
        self.is_complete = True
        self.descriptor: int = self._inotify.fileno()

    def watch(self, directories: Iterable[str]) -> bool:
        """Watch exactly these directories; return whether any of them is new."""
        wanted = set(directories)
        self._paths.clear()
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
                        "%s is polled, as it cannot be watched: %s", directory, _reason(error)
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
        """Return what happened since the last read.

        Of very many events it returns the first ones; the descriptor stays readable.
        """
        written: set[str] = set()
        needs_scan = False
        known = self._paths
        for event in self._events():
            path = known.get(event)
            if path is not None:
                written.add(path)
                continue
            watch, mask, _, _ = _HEADER.unpack_from(event)
            directory = self._directories.get(watch)
            if mask & self._ignored:
                if directory is not None:
                    self._watches.pop(directory, None)
                    del self._directories[watch]
                known.clear()
                needs_scan = True
            elif mask & self._overflow:
                needs_scan = True
            elif directory is not None:
                if mask & self._written:
                    name = os.fsdecode(event[_HEADER.size :].rstrip(b"\0"))
                    path = os.path.join(directory, name)  # noqa: PTH118
                    written.add(path)
                    if len(known) < _MOST_PATHS:
                        known[event] = path
                else:
                    needs_scan = True
        return Noticed(written, needs_scan)

    def _events(self) -> Iterable[bytes]:
        """Return the events since the last read, each as it is, equal ones once.

        Each write to a file is an event: a file that is written often has very many.
        """
        events: dict[bytes, None] = {}  # in their order
        length_at = _LENGTH.unpack_from
        for _ in range(_MOST_BUFFERS):  # writers may be quicker than this
            try:
                data = os.read(self.descriptor, _BUFFER_BYTES)
            except BlockingIOError:
                break
            start, size = 0, len(data)
            while start < size:
                end = start + _HEADER.size + length_at(data, start + _LENGTH_AT)[0]
                events[data[start:end]] = None
                start = end
            if size <= _BUFFER_BYTES - _LONGEST_EVENT:
                break
        return events

    def close(self) -> None:
        """Close all watches."""
        self._inotify.close()


def _reason(error: OSError) -> str:
    """Say which of the kernel's limits is meant, for whose errors inotify(7) has other names."""
    if error.errno == errno.ENOSPC:
        return "no more watches are allowed: raise the sysctl fs.inotify.max_user_watches"
    if error.errno == errno.EMFILE:
        return (
            "too many open: raise the sysctl fs.inotify.max_user_instances or the open files limit"
        )
    return error.strerror or str(error)
