"""Deleted files, renamed at once and removed after a while, as ``file.delete.delay.ms`` says.

A read that has a segment open finishes, and removing a large file, which takes the disk a while,
is not in anyone's way. What is left of it after a crash is removed when the directory is opened.
"""

import logging
import threading

from qbus.clock import Clock

from .files import Files

_logger = logging.getLogger(__name__)


class Trash:
    """Files and partition directories that wait for their removal. Thread-safe."""

    def __init__(self, files: Files, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._waiting: list[tuple[float, str]] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, path: str, delay_ms: int) -> None:
        """Remove the file or directory ``path`` in ``delay_ms``."""
        with self._lock:
            self._waiting.append((self._clock.monotonic() + delay_ms / 1000, path))

    def empty(self) -> int:
        """Remove what is due; how many paths that were. What cannot be removed is tried again."""
        now = self._clock.monotonic()
        with self._lock:
            due = [entry for entry in self._waiting if entry[0] <= now]
            self._waiting = [entry for entry in self._waiting if entry[0] > now]
        removed = 0
        for entry in due:
            try:
                remove_path(self._files, entry[1])
                removed += 1
            except OSError as error:
                _logger.warning("cannot remove %s yet: %s", entry[1], error)
                with self._lock:
                    self._waiting.append(entry)
        return removed


def remove_path(files: Files, path: str) -> None:
    """Remove a file, or a directory of files. Raises OSError."""
    try:
        names = files.list(path)
    except NotADirectoryError:
        files.remove(path)
        return
    except FileNotFoundError:
        return
    for name in names:
        files.remove(f"{path}/{name}")
    files.remove_directory(path)
