"""A real file system whose operations do what a test says."""

import os
from collections.abc import Callable

from qbus.broker.log import File, OsFiles
from qbus.broker.log.files import Data

Hook = Callable[[str, str], None]


def failing(error: int, *operations: str, path: str = "") -> Hook:
    """Raises ``error`` from these operations on paths that contain ``path``."""

    def fail(operation: str, name: str) -> None:
        if operation in operations and path in name:
            raise OSError(error, os.strerror(error), name)

    return fail


def healthy(_operation: str, _path: str) -> None:
    """Nothing happens."""


class FailingFile:
    """A file that asks ``before`` of its :class:`FailingFiles` before it reads or writes."""

    def __init__(self, file: File, files: "FailingFiles", path: str) -> None:
        self._file = file
        self._files = files
        self._path = path

    def fileno(self) -> int:
        return self._file.fileno()

    def size(self) -> int:
        return self._file.size()

    def read_at(self, position: int, length: int, *, wait: bool = True) -> bytes:
        self._files.before("read", self._path)
        return self._file.read_at(position, length, wait=wait)

    def is_cached(self, position: int) -> bool:
        self._files.before("read", self._path)
        return self._file.is_cached(position)

    def write_at(self, position: int, data: Data) -> int:
        self._files.before("write", self._path)
        return self._file.write_at(position, data)

    def truncate(self, size: int) -> None:
        self._files.before("truncate", self._path)
        self._file.truncate(size)

    def sync(self) -> None:
        self._files.before("sync", self._path)
        self._file.sync()


class FailingFiles(OsFiles):
    """Calls ``before`` with the operation and its path; what that raises, the operation raises."""

    def __init__(self) -> None:
        self.before: Hook = healthy

    def open(self, path: str, *, write: bool = False) -> File:  # type: ignore[override]
        self.before("open", path)
        return FailingFile(super().open(path, write=write), self, path)

    def rename(self, source: str, target: str) -> None:
        self.before("rename", source)
        super().rename(source, target)

    def sync_directory(self, path: str) -> None:
        self.before("sync directory", path)
        super().sync_directory(path)
