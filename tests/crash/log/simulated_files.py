"""A file system in memory that forgets what nobody synced, as a power cut does.

Contents and names are kept twice: as a program sees them, and as a list of changes since the last
sync. A power cut keeps of those changes what it pleases:

- a file's sectors of 512 bytes are each as they were after some change since the last sync, and so
  is its length: writes are dropped, torn and reordered, and holes read as zeros;
- each creation, rename or removal of a name in a directory that was not synced is kept or lost,
  independently of all others.

A killed process keeps everything.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from qbus.broker.log.files import Data

SECTOR = 512


class Choice(Protocol):
    """What a power cut decides."""

    def version(self, versions: int) -> int:
        """Which of a sector's or a length's versions is on the disk, 0 the one last synced."""

    def keeps(self) -> bool:
        """Whether a change of a name is on the disk."""


class NothingKept:
    """Only what was synced is there."""

    def version(self, versions: int) -> int:
        return 0

    def keeps(self) -> bool:
        return False


class EverythingKept:
    """Nothing is lost: the process was killed."""

    def version(self, versions: int) -> int:
        return versions - 1

    def keeps(self) -> bool:
        return True


class DataKept:
    """Contents are there, names are not."""

    def version(self, versions: int) -> int:
        return versions - 1

    def keeps(self) -> bool:
        return False


class NamesKept:
    """Names are there, contents are not."""

    def version(self, versions: int) -> int:
        return 0

    def keeps(self) -> bool:
        return True


class RandomKept:
    """Each is there or not, as the dice fall."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def version(self, versions: int) -> int:
        return self._random.randrange(versions)

    def keeps(self) -> bool:
        return self._random.random() < 0.5


@dataclass
class Inode:
    """A file's content, and all it was since the last sync, the synced one first."""

    data: bytes = b""
    versions: list[bytes] = field(default_factory=lambda: [b""])

    def change(self, data: bytes) -> None:
        self.data = data
        self.versions.append(data)

    def sync(self) -> None:
        self.versions = [self.data]

    def after_crash(self, choice: Choice) -> Inode:
        count = len(self.versions)
        length = len(self.versions[choice.version(count)])
        sectors = []
        for start in range(0, length, SECTOR):
            version = self.versions[choice.version(count)]
            sectors.append(version[start : start + SECTOR].ljust(SECTOR, b"\0"))
        data = b"".join(sectors)[:length]
        return Inode(data, [data])


@dataclass
class Directory:
    """A directory's names, those that were synced, and the changes since."""

    names: Names = field(default_factory=dict)
    synced: Names = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        change(self.names)
        self.changes.append(change)

    def sync(self) -> None:
        self.synced = dict(self.names)
        self.changes = []

    def after_crash(self, choice: Choice) -> Directory:
        names = dict(self.synced)
        for change in self.changes:
            if choice.keeps():
                change(names)
        left = {name: node.after_crash(choice) for name, node in names.items()}
        return Directory(left, dict(left))


Names = dict[str, Inode | Directory]
Change = Callable[[Names], None]


def _adding(name: str, node: Inode | Directory) -> Change:
    def add(names: Names) -> None:
        names[name] = node

    return add


def _removing(name: str) -> Change:
    def remove(names: Names) -> None:
        names.pop(name, None)

    return remove


class SimulatedFile:
    """An open file; it stays readable whatever becomes of its name."""

    def __init__(self, files: SimulatedFiles, inode: Inode, path: str) -> None:
        self._files = files
        self._inode = inode
        self._path = path

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "there is no descriptor")

    def size(self) -> int:
        return len(self._inode.data)

    def read_at(self, position: int, length: int, *, wait: bool = True) -> bytes:
        return self._inode.data[position : position + length]

    def is_cached(self, position: int) -> bool:
        return True

    def write_at(self, position: int, data: Data) -> int:
        data = bytes(data)
        data = data[: self._files.before("write", self._path, len(data))]
        old = self._inode.data.ljust(position, b"\0")
        self._inode.change(old[:position] + data + old[position + len(data) :])
        return len(data)

    def truncate(self, size: int) -> None:
        self._files.before("truncate", self._path)
        self._inode.change(self._inode.data[:size].ljust(size, b"\0"))

    def sync(self) -> None:
        self._files.before("sync", self._path)
        self._inode.sync()


class SimulatedFiles:
    """The file system. ``observe`` is told of each change before it is made."""

    def __init__(self, root: Directory | None = None) -> None:
        self._root = root or Directory()
        self.observe: Callable[[str, str], None] = lambda kind, path: None
        self.failure: Failure | None = None
        self.operations = 0

    def after_crash(self, choice: Choice) -> SimulatedFiles:
        """The file system that the next process finds."""
        return SimulatedFiles(self._root.after_crash(choice))

    def before(self, kind: str, path: str, length: int = 0) -> int:
        """A change is about to be made; how many bytes of it are. Raises OSError when told to."""
        self.observe(kind, path)
        self.operations += 1
        if self.failure is not None:
            return self.failure.strike(self.operations, kind, path, length)
        return length

    def open(self, path: str, *, write: bool = False) -> SimulatedFile:
        directory, name = self._place(path)
        node = directory.names.get(name)
        if node is None and write:
            self.before("create", path)
            node = Inode()
            directory.change(_adding(name, node))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return SimulatedFile(self, node, path)

    def lock(self, path: str) -> SimulatedFile | None:
        return self.open(path, write=True)

    def list(self, path: str) -> list[str]:
        return list(self._directory(path).names)

    def exists(self, path: str) -> bool:
        try:
            directory, name = self._place(path)
        except FileNotFoundError:
            return False
        return name in directory.names

    def is_directory(self, path: str) -> bool:
        if not self.exists(path):
            return False
        directory, name = self._place(path)
        return isinstance(directory.names[name], Directory)

    def size(self, path: str) -> int:
        return self.open(path).size()

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        directory = self._root
        for name in path.strip("/").split("/"):
            if name not in directory.names:
                self.before("mkdir", path)
                directory.change(_adding(name, Directory()))
            node = directory.names[name]
            assert isinstance(node, Directory)
            directory = node

    def rename(self, source: str, target: str) -> None:
        directory, name = self._place(source)
        other, new_name = self._place(target)
        assert directory is other
        if name not in directory.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self.before("rename", source)
        node = directory.names[name]

        def move(names: Names) -> None:
            names.pop(name, None)
            names[new_name] = node

        directory.change(move)

    def remove(self, path: str) -> None:
        directory, name = self._place(path)
        if name in directory.names:
            self.before("remove", path)
            directory.change(_removing(name))

    def remove_directory(self, path: str) -> None:
        self.remove(path)

    def space(self, path: str) -> tuple[int, int]:
        return 1 << 30, 1 << 30

    def sync_directory(self, path: str) -> None:
        self.before("sync directory", path)
        self._directory(path).sync()

    def _directory(self, path: str) -> Directory:
        node: Inode | Directory = self._root
        for name in posixpath.normpath(f"/{path}").strip("/").split("/"):
            if not name:
                continue
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            if name not in node.names:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            node = node.names[name]
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name


@dataclass
class Failure:
    """The ``at``-th change fails with ``error``, or from then on all of the ``lasting`` kinds.

    A write may first write a ``part`` of its bytes, as a disk that is nearly full does; without an
    error the rest succeeds.
    """

    at: int
    error: int | None
    part: float = 0.0
    lasting: frozenset[str] = frozenset()
    struck: str = ""

    def strike(self, operation: int, kind: str, path: str, length: int) -> int:
        strikes = operation >= self.at and kind in self.lasting
        if not strikes and (self.lasting or operation != self.at):
            return length
        self.struck = self.struck or f"{kind} {path}"
        if kind == "write" and self.part and length > 1:
            written = max(1, int(length * self.part))
            self.at += 1
            self.part = 0.0
            return written
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error), path)
        return length
