"""Making the names in a directory stable: once for all who wait for that."""

import threading

from .files import Files


class DirectorySync:
    """One directory's syncs, one at a time; whoever comes meanwhile shares the next one."""

    __slots__ = ("_begun", "_changed", "_done", "_files", "_is_busy", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._changed = threading.Condition()
        self._begun = self._done = 0
        self._is_busy = False

    def sync(self) -> None:
        """Return when all names that are there now are stable. Raises OSError."""
        with self._changed:
            wanted = self._begun + 1  # one that is under way may have begun too early
            while self._is_busy and self._done < wanted:
                self._changed.wait()
            if self._done >= wanted:
                return
            self._is_busy = True
            self._begun = number = self._begun + 1
        done = 0
        try:
            self._files.sync_directory(self._path)
            done = number
        finally:
            with self._changed:
                self._is_busy = False
                self._done = max(self._done, done)
                self._changed.notify_all()
