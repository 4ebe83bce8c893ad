"""A lock file: one process at a time uses a directory. The kernel ends the lock with its process.

The lock is flock(2) on a file that stays empty and is never removed.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from qbus.errors import QbusError


class DirectoryInUse(QbusError):  # noqa: N818 - names the condition
    """Another process holds the lock of the directory."""


class DirectoryLock:
    """The exclusive lock in the file ``path``, which guards the directory that the file is in.

    ``holder`` names those who may hold it, for the error message: "another agent".
    """

    def __init__(self, path: Path, holder: str = "another process") -> None:
        self._path = path
        self._holder = holder
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock at once, if this object does not hold it yet.

        Raises:
            DirectoryInUse: another process holds it.
            OSError: the lock file cannot be opened or locked.
        """
        if self._file is not None:
            return
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not try_lock(file):
                raise DirectoryInUse(f"{self._holder} uses {self._path.parent}")
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """Whether the lock in the file ``path`` is held; without the file it is not.

    Raises OSError where the file cannot be opened or locked.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: checks do not see each other
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def try_lock(file: int) -> bool:
    """Lock an open file exclusively until it is closed; False if it is locked already."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
