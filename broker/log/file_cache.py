"""How many files stay open that nobody writes to: the least recently used are let go."""

import threading
from collections import OrderedDict

from .files import File, Files


class FileCache:
    """Opens files for reading and keeps the last ``limit`` of them open.

    A file that is let go while someone still reads it closes when the reader drops it.
    Thread-safe.
    """

    def __init__(self, files: Files, limit: int = 256) -> None:
        self.files = files
        self._limit = limit
        self._open: OrderedDict[str, File] = OrderedDict()
        self._by_directory: dict[str, set[str]] = {}  # paths
        self._lock = threading.Lock()

    def get(self, path: str) -> File:
        """The open file; raises OSError when it cannot be opened."""
        with self._lock:
            file = self._open.get(path)
            if file is not None:
                self._open.move_to_end(path)
                return file
            file = self._open[path] = self.files.open(path)
            self._by_directory.setdefault(_directory(path), set()).add(path)
            if len(self._open) > self._limit:
                self._let_go(next(iter(self._open)))
            return file

    def forget(self, path: str) -> None:
        """Let go of a file that has another name now, or none."""
        with self._lock:
            self._let_go(path)

    def forget_directory(self, path: str) -> None:
        """Let go of all files in a directory."""
        with self._lock:
            for known in self._by_directory.pop(path, ()):
                self._open.pop(known, None)

    def _let_go(self, path: str) -> None:
        if self._open.pop(path, None) is not None:
            directory = _directory(path)
            paths = self._by_directory[directory]
            paths.discard(path)
            if not paths:
                del self._by_directory[directory]

    def __len__(self) -> int:
        return len(self._open)


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
