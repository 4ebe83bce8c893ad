"""Which files of logs stay open: as many as the limit allows, the least recently used are closed.

Two kinds of files count against one limit. Files that are only read are opened by their path and
kept in the order of their use. Segments that are appended to hold theirs themselves, so that an
append looks nothing up; the cache asks them to close it, each one that was used since it was last
asked gets a second chance (the CLOCK algorithm).

A file is closed when the last reader lets go of it: what is being sent, or searched, goes on.
"""

import errno
import threading
from collections import OrderedDict
from typing import Final, Protocol

from .files import File, Files, open_files

_MOST_LOOKS: Final = 128
"""How many holders one open asks, so that its time is bounded; most are asked at the next."""


class Holder(Protocol):
    """Holds a file open for writing; opens it again after it was closed."""

    in_use: bool
    """Whether the file was used since the cache last looked."""

    def let_go(self) -> bool:
        """Close the file, unless some of it is not stable yet; whether it was closed."""


class FileCache:
    """Opens files and keeps at most ``limit`` of them open; thread-safe.

    Holders whose files are not stable yet cannot close them: then ``short`` is set, until
    :meth:`relieve`, and up to a quarter more files are open before EMFILE is raised.
    """

    def __init__(self, files: Files, limit: int = 256) -> None:
        self.files = files
        self.limit = limit
        self.short = False
        self._open: OrderedDict[str, File] = OrderedDict()
        self._held: OrderedDict[str, Holder] = OrderedDict()
        self._by_directory: dict[str, set[str]] = {}  # paths
        self._lock = threading.RLock()  # opening a file may have to close one

    def get(self, path: str) -> File:
        """The open file, for reading; raises OSError when it cannot be opened."""
        with self._lock:
            file = self._open.get(path)
            if file is not None:
                self._open.move_to_end(path)
                return file
            self._make_room()
            file = self._open[path] = self.files.open(path)
            self._by_directory.setdefault(_directory(path), set()).add(path)
            return file

    def hold(self, holder: Holder, path: str) -> File:
        """The file, opened for writing, counted until it is dropped; raises OSError."""
        with self._lock:
            self._make_room()
            file = self.files.open(path, write=True)
            self._held[path] = holder
            self._by_directory.setdefault(_directory(path), set()).add(path)
            return file

    def drop(self, holder: Holder, path: str) -> None:
        """``holder`` has closed its file."""
        with self._lock:
            if self._held.get(path) is holder:
                del self._held[path]
                self._forget_name(path)

    def forget(self, path: str) -> None:
        """Let go of a file that has another name now, or none; who holds it may keep it."""
        with self._lock:
            self._open.pop(path, None)
            self._held.pop(path, None)
            self._forget_name(path)

    def forget_directory(self, path: str) -> None:
        """Let go of all files in a directory likewise."""
        with self._lock:
            for known in self._by_directory.pop(path, ()):
                self._open.pop(known, None)
                self._held.pop(known, None)

    def relieve(self) -> None:
        """Close what is too much, after files were made stable."""
        with self._lock:
            self.short = False
            while len(self) > self.limit and self._close_one():
                pass

    def close_one(self) -> bool:
        """Close a file, though there may be more; whether one could be closed."""
        with self._lock:
            return self._close_one()

    def is_tight(self) -> bool:
        """Whether files are short, so that readers should keep none open for long."""
        return len(self) >= self.limit or open_files() >= self.limit

    def __len__(self) -> int:
        return len(self._open) + len(self._held)

    def _make_room(self) -> None:
        """Close files until there is room for one more. Raises OSError EMFILE."""
        while len(self) >= self.limit:
            if self._close_one():
                continue
            self.short = True
            if len(self) >= self.limit + self.limit // 4:
                raise OSError(errno.EMFILE, f"{len(self)} files of logs are open, the most allowed")
            return

    def _close_one(self) -> bool:
        """Close a file of the kind that has more of them, or else of the other."""
        if len(self._open) >= len(self._held):
            return self._close_read() or self._close_held()
        return self._close_held() or self._close_read()

    def _close_read(self) -> bool:
        if not self._open:
            return False
        path, _ = self._open.popitem(last=False)
        self._forget_name(path)
        return True

    def _close_held(self) -> bool:
        held = self._held
        for _ in range(min(2 * len(held), _MOST_LOOKS)):
            path, holder = next(iter(held.items()))
            if not holder.in_use and holder.let_go():
                del held[path]
                self._forget_name(path)
                return True
            holder.in_use = False
            held.move_to_end(path)
        return False

    def _forget_name(self, path: str) -> None:
        """Take a path out of its directory's, if it is open in neither way."""
        if path in self._open or path in self._held:
            return
        directory = _directory(path)
        paths = self._by_directory.get(directory)
        if paths is not None:
            paths.discard(path)
            if not paths:
                del self._by_directory[directory]


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
