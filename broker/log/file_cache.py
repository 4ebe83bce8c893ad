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
        self._lock = threading.Lock()

    def get(self, path: str) -> File:
        """The open file; raises OSError when it cannot be opened."""
        with self._lock:
            file = self._open.get(path)
            if file is not None:
                self._open.move_to_end(path)
                return file
            file = self._open[path] = self.files.open(path)
            if len(self._open) > self._limit:
                self._open.popitem(last=False)
            return file

    def forget(self, path: str) -> None:
        """Let go of a file that has another name now, or none."""
        with self._lock:
            self._open.pop(path, None)

    def forget_directory(self, path: str) -> None:
        """Let go of all files in a directory."""
        with self._lock:
            for known in [known for known in self._open if known.startswith(f"{path}/")]:
                del self._open[known]

    def __len__(self) -> int:
        return len(self._open)
