"""A file of fixed-size entries, sorted by their first field: what both indexes are made of.

Entries are collected in memory and written many at a time, because an index can be rebuilt from
its log; searching reads the few entries that a bisection touches. So an index costs no memory
while nobody uses it, and its size on disk is the size of its entries: nothing is preallocated.
"""

import struct
from bisect import bisect_right

from .file_cache import FileCache
from .files import File, write_all

_WRITE_AT = 1024  # bytes collected before they are written
_BLOCK = 512  # entries that a search reads at once


class EntryFile:
    """Entries of two integers each.

    One thread at a time may change it (the log's lock sees to that); any may read meanwhile:
    what is stored and what is collected change in one step.
    """

    __slots__ = ("_cache", "_entry", "_fences", "_state", "_width", "path")

    def __init__(self, cache: FileCache, path: str, entry: struct.Struct) -> None:
        self.path = path
        self._cache = cache
        self._entry = entry
        self._width = entry.size
        self._state: tuple[int, bytes] | None = None  # entries in the file, bytes to be written
        self._fences: dict[int, tuple[int, int]] = {}

    @property
    def width(self) -> int:
        """The bytes of an entry."""
        return self._width

    def _load(self) -> tuple[int, bytes]:
        state = self._state
        if state is None:
            files = self._cache.files
            size = files.size(self.path) if files.exists(self.path) else 0
            state = self._state = size // self._width, b""
        return state

    def __len__(self) -> int:
        stored, pending = self._load()
        return stored + len(pending) // self._width

    def get(self, index: int, *, wait: bool = True) -> tuple[int, int]:
        """The entry at ``index``. Raises BlockingIOError when it would wait for a disk."""
        stored, pending = self._load()
        if index >= stored:
            first, second = self._entry.unpack_from(pending, (index - stored) * self._width)
        else:
            file = self._cache.get(self.path)
            data = file.read_at(index * self._width, self._width, wait=wait)
            first, second = self._entry.unpack(data)
        return first, second

    def last(self) -> tuple[int, int] | None:
        """The last entry, or None when there is none."""
        count = len(self)
        return self.get(count - 1) if count else None

    def floor(self, target: int, *, field: int = 0, wait: bool = True) -> int:
        """The index of the last entry whose field is at most ``target``, or -1.

        Raises BlockingIOError when it would wait for a disk.
        """
        stored, pending = self._load()
        found = self._floor_in(pending, target, field)
        if found >= 0:
            return stored + found
        fence = bisect_right(
            range(0, stored, _BLOCK), target, key=lambda index: self._fence(index, wait=wait)[field]
        )
        if not fence:
            return -1
        first = (fence - 1) * _BLOCK
        length = min(_BLOCK, stored - first) * self._width
        block = self._cache.get(self.path).read_at(first * self._width, length, wait=wait)
        return first + self._floor_in(block, target, field)

    def _floor_in(self, entries: bytes, target: int, field: int) -> int:
        width, unpack = self._width, self._entry.unpack_from
        return (
            bisect_right(
                range(0, len(entries) - width + 1, width),
                target,
                key=lambda at: unpack(entries, at)[field],
            )
            - 1
        )

    def _fence(self, index: int, *, wait: bool) -> tuple[int, int]:
        """The first entry of a block; these are kept, because every search asks for the same."""
        entry = self._fences.get(index)
        if entry is None:
            entry = self._fences[index] = self.get(index, wait=wait)
        return entry

    def append(self, first: int, second: int) -> None:
        """Add an entry. Raises OSError from writing collected ones; the entry is kept even so."""
        stored, pending = self._load()
        self._state = stored, pending + self._entry.pack(first, second)
        if len(pending) >= _WRITE_AT:
            self.write()

    def write(self) -> None:
        """Write the collected entries to the file."""
        stored, pending = self._load()
        if pending:
            write_all(self._open(), stored * self._width, pending)
            self._state = stored + len(pending) // self._width, b""

    def create(self) -> None:
        """Make the file if it is not there. Raises OSError."""
        if not self._load()[0] and not self._cache.files.exists(self.path):
            self._open()

    def sync(self) -> None:
        """Wait until all that was written is on stable storage."""
        if self._load()[0]:
            self._open().sync()

    def truncate(self, count: int) -> None:
        """Keep the first ``count`` entries."""
        stored, pending = self._load()
        if count < stored:
            self._open().truncate(count * self._width)
        self._fences = {}
        self._state = min(count, stored), pending[: max(count - stored, 0) * self._width]

    def ascending(self, *, strict_second: bool) -> int:
        """How many entries from the first on ascend, the second field strictly or not."""
        previous = (-1, -1)
        for i, entry in enumerate(self.all()):
            if entry[0] <= previous[0] or entry[1] < previous[1] + strict_second:
                return i
            previous = entry
        return len(self)

    def all(self) -> list[tuple[int, int]]:
        """Every entry."""
        stored, pending = self._load()
        size = stored * self._width
        data = self._cache.get(self.path).read_at(0, size) if size else b""
        return list(self._entry.iter_unpack(data + pending))

    def _open(self) -> File:
        return self._cache.files.open(self.path, write=True)
