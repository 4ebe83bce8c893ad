"""The file layer: all that the log asks of an operating system, so that tests can lose writes.

What the log relies on is what POSIX promises, and no more: bytes are stable after ``sync``, names
(creations, renames, removals) are stable after ``sync_directory``; before that, any part of them
may be lost in a power cut, in any order.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from typing import Final, Protocol

from qbus.service.descriptors import OUT_OF_DESCRIPTORS

Data = bytes | bytearray | memoryview

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTOR = OUT_OF_DESCRIPTORS
PASSING = NO_SPACE | NO_DESCRIPTOR | {errno.ENOMEM, errno.EFBIG}
"""Errors that say nothing about the disk's health: what is short now may be there later."""


class File(Protocol):
    """An open file, closed when it is let go of. Every method may raise OSError."""

    def fileno(self) -> int:
        """The file descriptor, for ``os.sendfile``."""

    def size(self) -> int:
        """The file's length in bytes."""

    def read_at(self, position: int, length: int, *, wait: bool = True) -> bytes:
        """``length`` bytes from ``position``, fewer only at the end of the file.

        Without ``wait``, BlockingIOError instead of waiting for a disk.
        """

    def is_cached(self, position: int) -> bool:
        """Whether reading the byte at ``position`` waits for no disk; true behind the end."""

    def write_at(self, position: int, data: Data) -> int:
        """Write at ``position``; how many bytes were written, which may be fewer than given."""

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""

    def sync(self) -> None:
        """Return when all that was written is on stable storage."""


PRIVATE: Final = 0o700
"""The mode of a data directory: records are nobody else's on the machine to read."""


class Files(Protocol):
    """The file system. Every method may raise OSError."""

    def open(self, path: str, *, write: bool = False) -> File:
        """Open a file; for writing, create it when it does not exist."""

    def lock(self, path: str) -> File | None:
        """Hold ``path`` locked for as long as the file lives; None: another holds it."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, in no order."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""

    def is_directory(self, path: str) -> bool:
        """Whether a directory is there."""

    def size(self, path: str) -> int:
        """The length of a file in bytes."""

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        """Create a directory and its parents where they are missing; ``mode``: who may use it."""

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, replacing a file of that name."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of the file system that ``path`` is on: all of them, and those free to use."""

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory are on stable storage."""


_open_files: Final[set[int]] = set()  # the descriptors of all that are open


def open_files() -> int:
    """How many files this process has open through :class:`OsFiles`, whoever holds them."""
    return len(_open_files)


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "_probe")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._probe = True
        _open_files.add(fd)

    def __del__(self) -> None:
        _open_files.discard(self._fd)
        os.close(self._fd)

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_at(self, position: int, length: int, *, wait: bool = True) -> bytes:
        if wait or not self._probe:
            data = os.pread(self._fd, length, position)
            return data if len(data) == length else self._read_rest(position, length, data)
        return self._read_cached(position, length)

    def _read_rest(self, position: int, length: int, data: bytes) -> bytes:
        while len(data) < length:
            more = os.pread(self._fd, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def _read_cached(self, position: int, length: int) -> bytes:
        buffer = bytearray(length)
        count = self._read_into(buffer, position)
        if count == length:
            return bytes(buffer)
        if not self._probe:
            return self.read_at(position, length)
        if position + count < self.size():
            raise BlockingIOError(errno.EAGAIN, "not in the page cache")
        return bytes(buffer[:count])

    def is_cached(self, position: int) -> bool:
        try:
            return not self._probe or self._read_into(bytearray(1), position) >= 0
        except BlockingIOError:
            return False

    def _read_into(self, buffer: bytearray, position: int) -> int:
        """Read what is in the page cache. Where that cannot be told, nothing, and probe no more."""
        try:
            return os.preadv(self._fd, (buffer,), position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self._probe = False  # such as tmpfs, which is memory
            return 0

    def write_at(self, position: int, data: Data) -> int:
        return os.pwrite(self._fd, data, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)


def _no_room() -> bool:
    """Nothing can be closed."""
    return False


class OsFiles:
    """The operating system's file system.

    ``make_room`` is called when there is no descriptor for a file: whether it closed another one.
    """

    def __init__(self) -> None:
        self.make_room: Callable[[], bool] = _no_room

    def open(self, path: str, *, write: bool = False) -> OsFile:
        return OsFile(self._open(path, os.O_RDWR | os.O_CREAT if write else os.O_RDONLY))

    def _open(self, path: str, flags: int) -> int:
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, 0o644)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self.make_room():
                    raise

    def lock(self, path: str) -> OsFile | None:
        file = self.open(path, write=True)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return file

    def list(self, path: str) -> list[str]:
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return os.listdir(fd)  # noqa: PTH208 - names, not paths
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        return os.access(path, os.F_OK)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)  # noqa: PTH112

    def size(self, path: str) -> int:
        return os.stat(path).st_size  # noqa: PTH116 - paths are strings here

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        os.makedirs(path, mode, exist_ok=True)  # noqa: PTH103

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)  # noqa: PTH105

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)  # noqa: PTH106

    def space(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def sync_directory(self, path: str) -> None:
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_all(file: File, position: int, data: Data) -> None:
    """Write all of ``data``; raises OSError with some of it perhaps written."""
    written = file.write_at(position, data)
    while written < len(data):
        more = file.write_at(position + written, memoryview(data)[written:])
        if more == 0:
            raise OSError(errno.EIO, "write made no progress")
        written += more


def read_file(files: Files, path: str) -> bytes:
    """All of a small file."""
    file = files.open(path)
    return file.read_at(0, file.size())


def write_atomically(files: Files, path: str, data: bytes) -> None:
    """Replace a file so that after any crash it holds either the old or the new content.

    The new content is stable on return.
    """
    replace_file(files, path, data, sync=True)
    files.sync_directory(path.rpartition("/")[0])


def replace_file(files: Files, path: str, data: bytes, *, sync: bool) -> None:
    """Replace a file in one step, not stable yet; without ``sync``, it may be found torn."""
    # A roll and a checkpoint, each in its thread, may write the same snapshot at the same time.
    temporary = f"{path}.sync.tmp" if sync else f"{path}.tmp"
    files.remove(temporary)
    file = files.open(temporary, write=True)
    write_all(file, 0, data)
    if sync:
        file.sync()
    files.rename(temporary, path)
