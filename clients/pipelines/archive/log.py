"""The log of an archive, which lists its files commit by commit.

It is in ``_spark_metadata``, in the format of Spark's file sink (``FileStreamSinkLog``). Each
commit is a file that is named by its number and lists the added files. Every tenth commit,
``<number>.compact``, lists all files. So ``spark.read.parquet`` of the archive reads the files of
the last commit and no others. Only a ``.compact`` commit can remove files: to replace files, empty
commits come first until the next one is a ``.compact`` commit.

A commit is created atomically, and only if its number does not exist yet.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from qbus.errors import QbusError

from .snapshot import ArchivedFile, Snapshot, covered
from .storage import Conflict, Found, Storage

DIRECTORY = "_spark_metadata"

_EVERY = 10
_VERSION = "v1"
_NAME = re.compile(r"(\d+)(\.compact)?")
_ATTEMPTS = 10

T = TypeVar("T")


class ArchiveError(QbusError):
    """An archive cannot be continued; the message has the reason and a remedy."""


class ArchiveLog:
    """Reads and writes the log; ``snapshot`` is what it last saw or wrote."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._directory = f"{storage.root}/{DIRECTORY}"
        self.snapshot = Snapshot()
        self.reload()

    def reload(self) -> Snapshot:
        """Read the commits of others; raises :class:`ArchiveError` for an invalid log."""
        self.snapshot = self._retried(self._load)
        return self.snapshot

    def paths_since(self, before: int) -> set[str]:
        """The files of all snapshots since a time in ms, the current one included."""

        def read() -> set[str]:
            found = self._listed()
            first = _base(found, before)
            kept = (file for version, file in found.items() if version >= first)
            return {
                archived.path for commit in kept for archived in self._read(_last_name(commit.path))
            }

        return self._retried(read)

    def add(self, files: Iterable[ArchivedFile]) -> None:
        """Commit more files; raises :class:`Conflict`, after which call :meth:`reload`."""
        self._commit(list(files), [])

    def replace(self, removed: Iterable[str], added: Iterable[ArchivedFile]) -> None:
        """Commit files that replace others; raises :class:`Conflict`, as :meth:`add`."""
        while not _is_whole(self.snapshot.version + 1):
            self._commit([], [])
        self._commit(list(added), list(removed))

    def _commit(self, added: list[ArchivedFile], removed: list[str]) -> None:
        following = self.snapshot.changed(added, removed)
        whole = _is_whole(following.version)
        files = following.files.values() if whole else added
        text = "\n".join([_VERSION, *(file.to_line() for file in files)])
        path = f"{self._directory}/{_name(following.version)}"
        try:
            self._storage.create(path, text)
        except Conflict:
            # A file system that retries may find the file that its first attempt has written.
            if self._storage.read(path) != text:
                raise
        self.snapshot = following

    def forget(self, before: int) -> None:
        """Delete commits that no snapshot since a time in ms needs."""
        found = self._listed()
        first = _base(found, before)
        for version, file in found.items():
            if version < first:
                self._storage.delete(file.path)

    def _listed(self) -> dict[int, Found]:
        """The files of the commits."""
        files = list(self._storage.list(self._directory))
        matches = ((_NAME.fullmatch(_last_name(file.path)), file) for file in files)
        return {int(match[1]): file for match, file in matches if match}

    def _retried(self, read: Callable[[], T]) -> T:
        for _ in range(_ATTEMPTS):
            try:
                return read()
            except FileNotFoundError:  # deleted after the listing
                continue
        raise ArchiveError(f"{self._directory}: its files disappear while they are read")

    def _load(self) -> Snapshot:
        found = {version: _last_name(file.path) for version, file in self._listed().items()}
        if not found:
            return Snapshot()
        last = max(found)
        first = max((version for version in found if found[version].endswith("t")), default=0)
        files: dict[str, ArchivedFile] = {}
        for version in range(first, last + 1):
            if version not in found or found[version] != _name(version):
                raise ArchiveError(
                    f"{self._directory}: commit {_name(version)} is missing; restore it, or start"
                    " another archive"
                )
            files.update((file.path, file) for file in self._read(found[version]))
        return Snapshot(last, files, covered(files.values()))

    def _read(self, name: str) -> list[ArchivedFile]:
        path = f"{self._directory}/{name}"
        text = self._storage.read(path)
        try:
            version, *lines = text.splitlines()
            if version != _VERSION:
                raise ValueError(version)
            files = [ArchivedFile.from_line(line) for line in lines]
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveError(
                f"{path} was not written by this pipeline ({type(error).__name__}: {error}):"
                " archive to a directory of its own"
            ) from error
        for file in files:
            if not file.path.startswith(f"{self._storage.root}/"):
                raise ArchiveError(
                    f"the archive was at {file.path.partition('/topic=')[0]} and is now at"
                    f" {self._storage.root}: move it back, or archive its topics again"
                )
        return files


def _base(found: Mapping[int, Found], before: int) -> int:
    """The last complete commit that is older than a time in ms; earlier ones are not needed."""
    whole = (version for version in found if _is_whole(version))
    return max((version for version in whole if found[version].modified < before), default=0)


def _last_name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_whole(version: int) -> bool:
    return (version + 1) % _EVERY == 0


def _name(version: int) -> str:
    return f"{version}.compact" if _is_whole(version) else str(version)


__all__ = ["DIRECTORY", "ArchiveError", "ArchiveLog", "Conflict"]
