"""A directory for one process at a time."""

import fcntl
import os
from pathlib import Path

from qbus.errors import QbusError


class DirectoryInUse(QbusError):  # noqa: N818 - what happened
    """Another process uses the directory."""


class Exclusive:
    """A lock in a file, which ends with the process that holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> None:
        """Hold the lock, if that is not so already; raises DirectoryInUse and OSError."""
        if self._file is not None:
            return
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if not isinstance(error, BlockingIOError):
                raise
            raise DirectoryInUse(f"another agent uses {self._path.parent}") from None
        self._file = file

    def release(self) -> None:
        """Let others have it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
