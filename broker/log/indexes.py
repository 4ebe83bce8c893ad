"""The indexes of a segment: files of fixed entries for offsets, times, and hidden batches.

The formats of the first two are Kafka's. Entries are kept in memory and written when there are
enough; whatever is wrong with a file, the index is rebuilt from the segment.
"""

import errno
import struct
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from qbus.records import crc32c

from .file_cache import FileCache
from .files import File, write_all
from .names import (
    CONTROL_INDEX_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    numbered,
)

_WRITE_AT: Final = 1024  # bytes collected before they are written
_BLOCK: Final = 512  # entries that a search reads at once
_NEAR: Final = 4  # entries at the end that it looks at first


# A file of fixed-size entries, sorted by their first field: what both indexes are made of.
#
# Entries are collected in memory and written many at a time, because an index can be rebuilt from
# its log; searching reads the few entries that a bisection touches. So an index costs no memory
# while nobody uses it, and its size on disk is the size of its entries: nothing is preallocated.


class EntryFile:
    """Entries of two integers each.

    One thread at a time may change it (the log's lock sees to that); any may read meanwhile:
    what is stored and what is collected change in one step.
    """

    __slots__ = ("_cache", "_crc", "_entry", "_fences", "_state", "_width", "path")

    def __init__(self, cache: FileCache, path: str, entry: struct.Struct) -> None:
        self.path = path
        self._cache = cache
        self._entry = entry
        self._width = entry.size
        self._state: tuple[int, bytes] | None = None  # entries in the file, bytes to be written
        self._crc = -1  # of the entries in the file, -1: not known
        self._fences: dict[int, tuple[int, int]] = {}

    @property
    def width(self) -> int:
        """The bytes of an entry."""
        return self._width

    def _load(self) -> tuple[int, bytes]:
        state = self._state
        if state is None:
            size = self.file_size()
            if self._state is None:  # it may have been detached meanwhile
                self._crc = -1 if size else 0
                self._state = size // self._width, b""
            state = self._state
        return state

    def __len__(self) -> int:
        stored, pending = self._load()
        return stored + len(pending) // self._width

    def file_size(self) -> int:
        """The length of the file in bytes, 0 when there is none."""
        try:
            return self._cache.files.size(self.path)
        except FileNotFoundError:
            return 0

    def assume(self, count: int) -> None:
        """Take the file to have ``count`` entries, as was made sure of."""
        self._crc = -1 if count else 0
        self._state = count, b""

    @property
    def stored_size(self) -> int:
        """The length of what is in the file, in bytes."""
        return self._load()[0] * self._width

    @property
    def stored_crc(self) -> int:
        """The CRC-32C of what is in the file. Raises OSError."""
        size = self.stored_size
        if self._crc < 0:
            self._crc = self.crc_of(size)
        return self._crc

    def crc_of(self, size: int) -> int:
        """The CRC-32C of the file's first ``size`` bytes. Raises OSError."""
        return crc32c(self._cache.get(self.path).read_at(0, size)) if size else 0

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
        at = len(entries) // width * width
        for _ in range(_NEAR):  # most searches are for what was appended last
            at -= width
            if at < 0:
                return -1
            if unpack(entries, at)[field] <= target:
                return at // width
        return (
            bisect_right(
                range(0, at, width),
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
            if self._crc >= 0:
                self._crc = crc32c(pending, self._crc)
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
            self._crc = -1 if count else 0
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

    def detach(self) -> None:
        """Keep all entries in memory, and never touch the file any more. Raises OSError."""
        stored, pending = self._load()
        if stored:
            data = self._cache.get(self.path).read_at(0, stored * self._width)
            self._crc = 0
            self._state = 0, data + pending

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """Have other entries, which :meth:`write` writes. Raises OSError."""
        content = b"".join([self._entry.pack(*entry) for entry in entries])
        self._fences = {}
        self._crc = 0
        self._state = 0, content
        self._open().truncate(0)

    def _open(self) -> File:
        return self._cache.files.open(self.path, write=True)


_OFFSET_ENTRY: Final = struct.Struct(">ii")


# Where in a segment an offset is.
#
# File format (Kafka's ``.index``): entries of 8 bytes, big-endian, ascending in both fields.
#
# ====== ==== ===================================================================
# offset size field
# ====== ==== ===================================================================
# 0      4    last offset of a batch, less the segment's base offset
# 4      4    position of that batch in the ``.log`` file
# ====== ==== ===================================================================
#
# An entry is made for the first batch after each ``index.interval.bytes``. Crash policy: entries
# below the recovery point are stable; those above are cut and made again from the log. A file that
# is missing or makes no sense is rebuilt.


class OffsetIndex:
    """The sparse map from offsets to positions of one segment."""

    __slots__ = ("base_offset", "entries")

    def __init__(self, cache: FileCache, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self.entries = EntryFile(cache, path, _OFFSET_ENTRY)

    def append(self, last_offset: int, position: int) -> None:
        """Note that the batch at ``position`` ends with ``last_offset``."""
        self.entries.append(last_offset - self.base_offset, position)

    def lookup(self, offset: int, *, wait: bool = True) -> tuple[int, int] | None:
        """Last offset and position of the last indexed batch that ends at or before ``offset``.

        None when there is none: search from the start of the segment.
        """
        return self._entry(self.entries.floor(offset - self.base_offset, wait=wait), wait=wait)

    def lookup_position(self, position: int, *, wait: bool = True) -> tuple[int, int] | None:
        """Likewise for the last indexed batch that begins at or before ``position``."""
        return self._entry(self.entries.floor(position, field=1, wait=wait), wait=wait)

    def _entry(self, index: int, *, wait: bool) -> tuple[int, int] | None:
        if index < 0:
            return None
        relative, position = self.entries.get(index, wait=wait)
        return self.base_offset + relative, position

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that end at or after ``offset``."""
        self.entries.truncate(self.entries.floor(offset - 1 - self.base_offset) + 1)


_TIME_ENTRY: Final = struct.Struct(">qi")

NO_TIMESTAMP: Final = -1


# From which offset on a segment holds records of a time or later.
#
# File format (Kafka's ``.timeindex``): entries of 12 bytes, big-endian, ascending in both fields.
#
# ====== ==== ===================================================================
# offset size field
# ====== ==== ===================================================================
# 0      8    greatest timestamp in the segment so far, milliseconds
# 8      4    last offset of the batch that has it, less the segment's base offset
# ====== ==== ===================================================================
#
# It says: no record up to the offset is later than the timestamp. An entry is made together with
# one of the offset index, when the timestamp has grown, and at the end of the segment. Crash
# policy: that of the offset index.


class MaxTimestamp(NamedTuple):
    """The greatest timestamp of a segment and the last offset of the first batch that has it."""

    timestamp: int
    offset: int


class TimeIndex:
    """The sparse map from timestamps to offsets of one segment."""

    __slots__ = ("_last", "base_offset", "entries")

    def __init__(self, cache: FileCache, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self.entries = EntryFile(cache, path, _TIME_ENTRY)
        self._last: int | None = None

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Note the greatest timestamp so far, unless the last entry says as much."""
        if self._last is None:
            self._last = self.last().timestamp
        if timestamp > self._last:
            self._last = timestamp
            self.entries.append(timestamp, offset - self.base_offset)

    def last(self) -> MaxTimestamp:
        """The last entry; timestamp -1 when there is none."""
        entry = self.entries.last()
        if entry is None:
            return MaxTimestamp(NO_TIMESTAMP, self.base_offset)
        return MaxTimestamp(entry[0], self.base_offset + entry[1])

    def lookup(self, timestamp: int) -> MaxTimestamp:
        """The last entry before ``timestamp``: no record up to its offset is as late.

        Timestamp -1 when there is none: search from the start of the segment.
        """
        index = self.entries.floor(timestamp - 1)
        if index < 0:
            return MaxTimestamp(NO_TIMESTAMP, self.base_offset)
        found, relative = self.entries.get(index)
        return MaxTimestamp(found, self.base_offset + relative)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that end at or after ``offset``."""
        low = self.entries.floor(offset - 1 - self.base_offset, field=1)
        self.entries.truncate(low + 1)
        self._last = None


# Which batches of a segment are hidden: control batches of Qbus's own.
#
# File format (``.controlindex``, ours): entries of 8 bytes, big-endian, ascending in both fields.
# The first, third, fifth ... say where a run of adjacent hidden batches begins, the others, where
# it ends. The last run may have no end: then it goes on to the end of the segment.
#
# ====== ==== ===================================================================
# offset size field
# ====== ==== ===================================================================
# 0      4    base offset of a batch, less the segment's base offset
# 4      4    position of that batch in the ``.log`` file
# ====== ==== ===================================================================
#
# A segment without hidden batches has no such file. Crash policy: that of the offset index. What is
# found on disk is compared with the CRC in the log's manifest before any of it is believed, at the
# first use: at the start of a broker nobody may want to read the segment.


class Boundary(NamedTuple):
    """Where a run begins or ends: the base offset of a batch, and its position in the file."""

    offset: int
    position: int


_NO_LOCK: Final = threading.Lock()  # of the many indexes that have nothing to be checked


def _nothing(_: str) -> list[tuple[int, int]]:
    return []


class ControlIndex:
    """The runs of hidden batches of one segment."""

    __slots__ = ("_checking", "_count", "_expected", "_remake", "base_offset", "entries")

    def __init__(self, cache: FileCache, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self.entries = EntryFile(cache, path, _OFFSET_ENTRY)
        self._count = -1  # of the entries, once it is known
        self._expected: tuple[int, int] | None = None
        self._remake: Callable[[str], list[tuple[int, int]]] = _nothing
        self._checking = _NO_LOCK

    def expect(self, size: int, crc: int, remake: Callable[[str], list[tuple[int, int]]]) -> None:
        """Check, before the first use, that the file has this size and CRC-32C.

        If it has not, ``remake`` gives the right entries; its argument says what is wrong.
        """
        self.entries.assume(size // self.entries.width)
        self._expected = (size, crc) if size else None
        if size:
            self._remake = remake
            self._checking = threading.Lock()

    def check(self, *, wait: bool = True) -> None:
        """Make the index anew unless it is as expected; without ``wait``, BlockingIOError.

        Raises OSError.
        """
        if self._expected is None:
            return
        if not wait:
            raise BlockingIOError(errno.EAGAIN, f"{self.entries.path} must be checked")
        with self._checking:
            self._check_now()

    def _check_now(self) -> None:
        expected = self._expected
        if expected is None:  # another thread was quicker
            return
        try:
            found = self.entries.file_size(), self.entries.crc_of(expected[0])
        except FileNotFoundError:
            found = 0, 0
        if found != expected:
            problem = f"{found[0]} bytes instead of {expected[0]}"
            if found[0] == expected[0]:
                problem = "the CRC does not match"
            self.replace(self._remake(problem))
        self._expected, self._remake = None, _nothing

    def replace(self, entries: list[tuple[int, int]]) -> None:
        """Have other entries. Raises OSError."""
        self.entries.replace(entries)
        self._count = len(entries)
        with suppress(OSError):  # they are kept in memory; writing is tried again
            self.entries.write()

    def __len__(self) -> int:
        """How many boundaries there are."""
        if self._count < 0:
            self._count = len(self.entries)
        return self._count

    @property
    def is_open(self) -> bool:
        """Whether the segment ends with hidden batches."""
        return len(self) & 1 == 1

    def account(self, offset: int, position: int, *, hidden: bool) -> None:
        """Take in that the batch of ``offset``, the segment's next one, is at ``position``."""
        if hidden is not self.is_open:
            self._count += 1
            with suppress(OSError):  # the entries are kept in memory; writing is tried again
                self.entries.append(offset - self.base_offset, position)

    def boundary(self, index: int, *, wait: bool = True) -> Boundary | None:
        """Boundary number ``index``, None behind the last one.

        Raises BlockingIOError when it would wait for a disk.
        """
        if self._expected is not None:
            self.check(wait=wait)
        if index >= len(self):
            return None
        relative, position = self.entries.get(index, wait=wait)
        return Boundary(self.base_offset + relative, position)

    def at(self, offset: int, *, wait: bool = True) -> int:
        """The number of the last boundary at or before ``offset``, or -1; even: it is in a run.

        Raises BlockingIOError likewise.
        """
        if self._expected is not None:
            self.check(wait=wait)
        return self.entries.floor(offset - self.base_offset, wait=wait)

    def truncate_to(self, offset: int) -> None:
        """Drop the boundaries at or after ``offset``."""
        if len(self):
            self.check()
            self.keep(self.entries.floor(offset - 1 - self.base_offset) + 1)

    def keep(self, count: int) -> None:
        """Keep the first ``count`` boundaries."""
        if count < len(self):
            self.entries.truncate(count)
            self._count = count


# The indexes of a segment, kept in step.


class SegmentIndexes:
    """For the first batch after each ``index.interval.bytes``, offsets and times get an entry.

    Changing it is the log's, under its lock; searching is anyone's.
    """

    __slots__ = ("_cache", "_unindexed", "controls", "offsets", "times")

    def __init__(
        self, cache: FileCache, directory: str, base_offset: int, suffix: str = ""
    ) -> None:
        path = f"{directory}/{numbered(base_offset, OFFSET_INDEX_SUFFIX)}{suffix}"
        self.offsets = OffsetIndex(cache, path, base_offset)
        path = f"{directory}/{numbered(base_offset, TIME_INDEX_SUFFIX)}{suffix}"
        self.times = TimeIndex(cache, path, base_offset)
        path = f"{directory}/{numbered(base_offset, CONTROL_INDEX_SUFFIX)}{suffix}"
        self.controls = ControlIndex(cache, path, base_offset)
        self._cache = cache
        self._unindexed = 0  # bytes since the last entry

    def have_entries(self) -> bool:
        """Whether offsets and times have entries, on disk or in memory."""
        return bool(len(self.offsets.entries) and len(self.times.entries))

    def account(
        self,
        position: int,
        length: int,
        last_offset: int,
        greatest: MaxTimestamp,
        interval_bytes: int,
    ) -> None:
        """Count in a batch; ``greatest`` is the greatest timestamp up to and with it."""
        if self._unindexed > interval_bytes:
            self._unindexed = 0
            with suppress(OSError):  # the entries are kept in memory; writing is tried again
                self.times.maybe_append(*greatest)
                self.offsets.append(last_offset, position)
        self._unindexed += length

    def trim(self, offset: int) -> None:
        """Keep the entries that ascend and whose batches end before ``offset``. Raises OSError."""
        for index, strict in ((self.offsets, True), (self.times, False)):
            index.entries.truncate(index.entries.ascending(strict_second=strict))
        self.controls.keep(self.controls.entries.ascending(strict_second=True))
        self.truncate_to(offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that end at or after ``offset``. Raises OSError."""
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)
        self.controls.truncate_to(offset)
        self._unindexed = 0

    def clear(self) -> None:
        """Drop all entries. Raises OSError."""
        self.offsets.entries.truncate(0)
        self.times.entries.truncate(0)
        self.controls.keep(0)

    def write(self, last_word: MaxTimestamp | None = None) -> None:
        """Write the entries that are in memory; at the end of the segment, its ``last_word``.

        Raises OSError.
        """
        if last_word is not None:
            self.times.maybe_append(*last_word)
        self.times.entries.write()
        self.offsets.entries.write()
        self.controls.entries.write()
        if last_word is not None:
            # Kafka's tools read a time index only with an offset index beside it, empty or not.
            self.offsets.entries.create()

    def sync(self) -> None:
        """Wait until what was written is stable. Raises OSError."""
        self.times.entries.sync()
        self.offsets.entries.sync()
        self.controls.entries.sync()

    def detach(self) -> None:
        """Keep all entries in memory: the files get others. Raises OSError."""
        self.times.entries.detach()
        self.offsets.entries.detach()
        self.controls.entries.detach()

    def remove(self) -> None:
        """Remove the files, if there are any; this object is of no use then. Raises OSError."""
        for path in self._paths():
            self._cache.files.remove(path)
            self._cache.forget(path)

    def replace(self, other: "SegmentIndexes") -> None:
        """Give these files the names of those of ``other``, which is of no use then.

        Raises OSError.
        """
        for source, target in zip(self._paths(), other._paths(), strict=True):
            if self._cache.files.exists(source):
                self._cache.files.rename(source, target)
            self._cache.forget(source)
            self._cache.forget(target)

    def _paths(self) -> tuple[str, str, str]:
        return self.offsets.entries.path, self.times.entries.path, self.controls.entries.path
