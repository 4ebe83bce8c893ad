"""A stretch of a log: one ``.log`` file of batches and its indexes."""

import errno
import logging
import random
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Final

from qbus.records import HEADER_SIZE, BatchHeader, CorruptBatch, crc32c, read_header

from .damage import DamagedRange, DamagedRanges, range_at, with_range
from .file_cache import FileCache
from .files import Data, File, Files, write_all
from .indexes import NO_TIMESTAMP, MaxTimestamp, SegmentIndexes
from .manifest import SegmentFiles
from .names import (
    LOG_SUFFIX,
    TEMPORARY_SUFFIX,
    numbered,
)
from .scan import BadBatch, Place, PlacedBatch, scan

_logger = logging.getLogger(__name__)

_KNOWN: Final = 64


# Where batches begin that a read, or a flush, came by: the next read mostly goes on there.


class KnownPlaces:
    """Positions in a segment's file, by the offset that a batch begins, or will begin, with.

    And of some batches, by that offset, the offset and the position where the one after them does.
    """

    __slots__ = ("_ends", "_places")

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._ends: dict[int, tuple[int, int]] = {}

    def get(self, offset: int) -> int | None:
        """The position of the batch that begins with ``offset``, if it is known."""
        return self._places.get(offset)

    def add(self, offset: int, position: int) -> None:
        """A batch begins, or will begin, with ``offset`` at ``position``."""
        if len(self._places) >= _KNOWN:
            self._places = {}
        self._places[offset] = position

    def end_of(self, offset: int) -> tuple[int, int] | None:
        """Offset and position where the batch that begins with ``offset`` ends, if known."""
        return self._ends.get(offset)

    def add_end(self, offset: int, end: tuple[int, int]) -> None:
        """The one batch that begins with ``offset`` ends there."""
        if len(self._ends) >= _KNOWN:
            self._ends = {}
        self._ends[offset] = end


# Which bytes of a segment were checked against their CRC by this process.


class VerifiedRanges:
    """Ranges of positions, disjoint and ascending, and all that was appended since the start.

    Any thread may read; a range added by two threads at once may be lost, which costs checking it
    again.
    """

    __slots__ = ("_appended_from", "_ranges")

    def __init__(self, appended_from: int) -> None:
        self._appended_from = appended_from  # from there on batches are checked as they arrive
        self._ranges: tuple[tuple[int, int], ...] = ()

    def cover(self, start: int, end: int) -> bool:
        """Whether all of ``start`` to ``end`` was checked."""
        end = min(end, self._appended_from)
        if start >= end:
            return True
        ranges = self._ranges
        index = bisect_right(ranges, start, key=_start) - 1
        return index >= 0 and end <= ranges[index][1]

    def add(self, start: int, end: int) -> None:
        """``start`` to ``end`` is checked now."""
        if start >= end:
            return
        ranges = self._ranges
        first = bisect_right(ranges, start, key=_start)
        if first and ranges[first - 1][1] >= start:
            first -= 1
        behind = bisect_right(ranges, end, key=_start)
        if first < behind:
            start = min(start, ranges[first][0])
            end = max(end, ranges[behind - 1][1])
        self._ranges = (*ranges[:first], (start, end), *ranges[behind:])

    def remove(self, start: int, end: int) -> None:
        """``start`` to ``end`` went bad since it was checked."""
        if start >= end:
            return
        if end > self._appended_from:
            self.add(self._appended_from, start)
            self._appended_from = end
        parts = (part for s, e in self._ranges for part in ((s, min(e, start)), (max(s, end), e)))
        self._ranges = tuple((s, e) for s, e in parts if s < e)

    def truncate(self, size: int) -> None:
        """The file ends at ``size`` now."""
        self._appended_from = min(self._appended_from, size)
        self._ranges = tuple((s, min(e, size)) for s, e in self._ranges if s < size)


def _start(known: tuple[int, int]) -> int:
    return known[0]


class LogSegment:
    """The batches from ``base_offset`` on, in a file that only grows at its end.

    Every batch begins with the offset after the one before, or later where there may be ``gaps``.
    ``end`` is the offset after the last batch and the file's size, replaced together, so that any
    thread may read while the log, under its lock, appends. ``damage``: see :mod:`.damage`.

    While it is appended to it holds its file open (see :class:`.file_cache.Holder`). The file is
    closed only while ``is_stable``: the system reports a failure to write to whoever had the file
    open, and may forget it otherwise.
    """

    __slots__ = (
        "_cache",
        "_cuts",
        "_file",
        "_first_timestamp",
        "_indexes",
        "_max_timestamp",
        "base_offset",
        "created_ms",
        "damage",
        "directory",
        "doubt",
        "end",
        "gaps",
        "in_use",
        "is_stable",
        "jitter",
        "listed",
        "path",
        "places",
        "verified",
    )

    def __init__(
        self,
        cache: FileCache,
        directory: str,
        base_offset: int,
        *,
        size: int,
        created_ms: int,
        gaps: bool = False,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.gaps = gaps
        self.path = f"{directory}/{numbered(base_offset, LOG_SUFFIX)}"
        self.end = (base_offset, size)
        self.created_ms = created_ms
        self.jitter = random.random()  # noqa: S311 - spreads work, hides nothing
        self.damage: DamagedRanges = ()
        self.verified = VerifiedRanges(size)
        self.places = KnownPlaces()
        self.in_use = False
        self.is_stable = True
        self.listed: SegmentFiles | None = None  # what the manifest says, as long as that holds
        self.doubt = ""  # what of the indexes contradicts the batches
        self._cache = cache
        self._file: File | None = None
        self._indexes: SegmentIndexes | None = None
        self._first_timestamp: int | None = None
        self._max_timestamp: MaxTimestamp | None = None
        self._cuts = 0  # how often batches were taken away at the end

    @property
    def end_offset(self) -> int:
        """The offset after the last batch."""
        return self.end[0]

    @property
    def size(self) -> int:
        """The length of the ``.log`` file in bytes."""
        return self.end[1]

    @property
    def file(self) -> File:
        """The ``.log`` file, opened when it is not. Raises OSError."""
        held = self._file
        self.in_use = True
        if held is None:
            opened = self._cache.get(self.path)
            # It may have been detached meanwhile: then the name may be another segment's.
            return self._file or opened
        return held

    @property
    def indexes(self) -> SegmentIndexes:
        """From offsets and timestamps to positions."""
        if self._indexes is None:
            self._indexes = SegmentIndexes(self._cache, self.directory, self.base_offset)
        return self._indexes

    @property
    def max_timestamp(self) -> MaxTimestamp:
        """The greatest timestamp, -1 in an empty segment. Raises OSError, BadBatch.

        The last entry of the time index says it; if the batch that it speaks of does not say the
        same, all batches are asked.
        """
        if self._max_timestamp is None:
            found = self._find_max_timestamp()
            if self._max_timestamp is None:  # an append may have been quicker, and knows better
                self._max_timestamp = found
        return self._max_timestamp

    def _find_max_timestamp(self) -> MaxTimestamp:
        last = self.indexes.times.last()
        if not self._confirms(last):
            return self._scan_max_timestamp(MaxTimestamp(NO_TIMESTAMP, self.base_offset))
        if self.listed is not None and last.timestamp != NO_TIMESTAMP:
            return last
        return self._scan_max_timestamp(last)  # for entries may be missing at the end of the file

    def _confirms(self, entry: MaxTimestamp) -> bool:
        """Whether there is such a batch as an entry of the time index names."""
        if entry.timestamp == NO_TIMESTAMP:
            return True
        for placed in self.batches_from(entry.offset):
            if placed.header.last_offset >= entry.offset:
                found = MaxTimestamp(placed.header.max_timestamp, placed.header.last_offset)
                if found == entry:
                    return True
                break
        self._doubt(self.indexes.times.entries.path, f"no batch has its entry {tuple(entry)}")
        return False

    def _doubt(self, path: str, problem: str) -> None:
        if not self.doubt:
            self.doubt = problem
            _logger.warning("%s is damaged: %s; it is made anew from the log", path, problem)

    def batches_since(self, timestamp: int) -> Iterator[PlacedBatch]:
        """Batches to the end, all of those that have records of ``timestamp`` or later.

        Raises as :meth:`batches_from` does.
        """
        entry = self.indexes.times.lookup(timestamp)
        start = entry.offset if self._confirms(entry) else self.base_offset
        return self.batches_from(start)

    def know_timestamps(self, first: int, greatest: MaxTimestamp) -> None:
        """Know the timestamp of the first batch, and the greatest, without reading."""
        self._first_timestamp, self._max_timestamp = first, greatest

    def assume_max_timestamp(self, timestamp: int) -> None:
        """Take ``timestamp`` for the greatest, because the batches cannot be read."""
        self._max_timestamp = MaxTimestamp(timestamp, self.base_offset)

    def _scan_max_timestamp(self, greatest: MaxTimestamp) -> MaxTimestamp:
        for placed in self.batches_from(greatest.offset):
            if placed.header.max_timestamp > greatest.timestamp:
                greatest = MaxTimestamp(placed.header.max_timestamp, placed.header.last_offset)
        return greatest

    @property
    def first_timestamp(self) -> int:
        """The timestamp of the first batch, -1 in an empty segment. Raises OSError, BadBatch."""
        if self._first_timestamp is None:
            for placed in self.batches_at(Place(self.base_offset, 0), self.size):
                self._first_timestamp = placed.header.max_timestamp
                break
            else:
                return NO_TIMESTAMP
        return self._first_timestamp

    def batches_from(self, offset: int) -> Iterator[PlacedBatch]:
        """Batches to the end, from an indexed one before ``offset`` or the first on.

        Raises OSError, and BadBatch where one batch and the next disagree.
        """
        size = self.size
        yield from self.batches_at(self.indexed_before(offset), size)

    def indexed_before(self, offset: int) -> Place:
        """An indexed batch before ``offset``, or the first one. Raises OSError."""
        entry = self.indexes.offsets.lookup(offset)
        start = self._confirmed(entry)
        if start is not None:
            return Place(start[1], start[0])
        if entry is not None:
            self._doubt(self.indexes.offsets.entries.path, f"no batch has its entry {entry}")
        return Place(self.base_offset, 0)

    def batches_at(self, start: Place, end: int, *, crc: bool = False) -> Iterator[PlacedBatch]:
        """Batches between a place and a position, with ``crc`` checked; damaged ranges are skipped.

        Raises OSError, and BadBatch where one batch and the next disagree.
        """
        offset, position = start
        for damaged in self.damage:
            if damaged.start < start or damaged.start.position > end:
                continue
            yield from self._scan(position, damaged.start.position, offset, crc=crc)
            offset, position = damaged.end
        yield from self._scan(position, end, offset, crc=crc)

    def _scan(
        self, position: int, end: int, offset: int, *, crc: bool = False
    ) -> Iterator[PlacedBatch]:
        try:
            yield from scan(self.file, position, end, offset, crc=crc, gaps=self.gaps)
        except BadBatch as bad:
            bad.path = self.path
            raise

    @property
    def readable_end(self) -> Place:
        """Where the last batch ends: before :attr:`end` if what followed it is missing."""
        end = Place(*self.end)
        if self.damage and self.damage[-1].end == end and not self.damage[-1].size:
            return self.damage[-1].start
        return end

    def first_bad(self, bad: BadBatch) -> BadBatch:
        """The first bad batch up to ``bad``, whose place a wrong length before it may have told.

        Reads and checks what lies before it. Raises OSError.
        """
        try:
            for placed in self.batches_at(Place(self.base_offset, 0), self.size, crc=True):
                if placed.end > bad.position:
                    break
        except BadBatch as found:
            return found if found.position < bad.position else bad
        return bad

    def damaged_at(self, position: int, offset: int | None) -> DamagedRange | None:
        """The damaged range that begins there."""
        return range_at(self.damage, position, offset) if self.damage else None

    def set_damaged(self, damaged: DamagedRange) -> None:
        """Step over a range from now on; under the log's lock."""
        self.damage = with_range(self.damage, damaged)
        self.verified.remove(damaged.start.position, damaged.end.position)
        self.forget_places()

    def skip_damaged(self, damaged: DamagedRange) -> None:
        """Count in a range that begins behind the last batch that was accounted for.

        A run of hidden batches ends there: whether readers may pass over it is not known.
        """
        self.set_damaged(damaged)
        controls = self.indexes.controls
        if damaged.size and controls.is_open:
            controls.account(*damaged.start, hidden=False)
        self.end = damaged.end

    def _confirmed(self, entry: tuple[int, int] | None) -> tuple[int, int] | None:
        """Position and base offset of the batch of an index entry, if there is such a batch."""
        if entry is None or not 0 <= entry[1] < self.size:
            return None
        last_offset, position = entry
        try:
            header = read_header(self.file.read_at(position, HEADER_SIZE))
        except CorruptBatch:
            return None
        return (position, header.base_offset) if header.last_offset == last_offset else None

    def describe(self, aborted: bytes) -> SegmentFiles:
        """The sizes of the files as they were written, the ``.txnindex`` being ``aborted``.

        Raises OSError.
        """
        indexes = self.indexes
        return SegmentFiles(
            self.base_offset,
            self.size,
            indexes.offsets.entries.stored_size,
            indexes.times.entries.stored_size,
            indexes.controls.entries.stored_size,
            indexes.controls.entries.stored_crc,
            len(aborted),
            crc32c(aborted),
        )

    def prepare_to_append(self) -> None:
        """Learn what appending needs to know. Raises OSError, BadBatch."""
        self.hold_open()
        _ = self.max_timestamp, self.first_timestamp

    def cut_back(self) -> None:
        """Remove what a failed append left behind. Raises OSError."""
        self.file.truncate(self.size)

    def hold_open(self) -> File:
        """Hold the file open for writing, until :meth:`release` or :meth:`let_go`.

        Raises OSError.
        """
        held = self._file
        if held is None:
            held = self._file = self._cache.hold(self, self.path)
        return held

    def _open_again(self) -> File:
        """Hold the file open that was closed since the last append. Raises OSError."""
        held = self.hold_open()
        there = held.size()
        if there < self.size:
            raise OSError(errno.EIO, f"the file has {there} bytes, {self.size} were written")
        return held

    def release(self) -> None:
        """The segment is full and stable: the file need not stay open."""
        self._file = None
        self.is_stable = True
        self._cache.drop(self, self.path)

    def files_are_short(self) -> bool:
        """See :meth:`.file_cache.FileCache.is_tight`."""
        return self._cache.is_tight()

    def let_go(self) -> bool:
        """See :class:`.file_cache.Holder`; from any thread."""
        held = self._file
        if held is None:  # it is being opened: the cache knows of the file before this one does
            return False
        self._file = None
        if self.is_stable:  # only now: an append says so first, and then takes the file
            return True
        self._file = held
        return False

    def detach(self) -> None:
        """Depend on the names of the files no more: another segment takes them.

        Who holds this one goes on reading the old files. Raises OSError.
        """
        self.is_stable = False  # which keeps the file open
        self._file = self._file or self._cache.get(self.path)
        self.indexes.detach()

    def append(
        self, batch: Data, last_offset: int, timestamp: int, index_interval_bytes: int
    ) -> None:
        """Write ``batch``, not a hidden one, at the end.

        Raises OSError, with some of it perhaps written.
        """
        end_offset, position = self.end
        self.is_stable = False
        self.in_use = True
        write_all(self._file or self._open_again(), position, batch)
        controls = self.indexes.controls
        if controls.is_open:
            controls.account(end_offset, position, hidden=False)
        self._account(position, len(batch), last_offset, timestamp, index_interval_bytes)

    def append_run(
        self, batches: Data, headers: Iterable[BatchHeader], index_interval_bytes: int
    ) -> None:
        """Write several batches that follow one another, at once. Raises likewise."""
        self.is_stable = False
        self.in_use = True
        write_all(self._file or self._open_again(), self.end[1], batches)
        for header in headers:
            self.account(PlacedBatch(self.end[1], header), index_interval_bytes)

    def account(self, placed: PlacedBatch, index_interval_bytes: int) -> None:
        """Count in a batch that is in the file already, the first or the one after the last."""
        header = placed.header
        self.indexes.controls.account(header.base_offset, placed.position, hidden=header.is_hidden)
        self._account(
            placed.position,
            header.size,
            header.last_offset,
            header.max_timestamp,
            index_interval_bytes,
        )

    def _account(
        self, position: int, length: int, last_offset: int, timestamp: int, interval: int
    ) -> None:
        greatest = self.max_timestamp
        if timestamp > greatest.timestamp:
            greatest = self._max_timestamp = MaxTimestamp(timestamp, last_offset)
        if not position:
            self._first_timestamp = timestamp
        self.indexes.account(position, length, last_offset, greatest, interval)
        self.end = (last_offset + 1, position + length)

    def trim_indexes(self, offset: int) -> None:
        """Keep only index entries that make sense and whose batches end before ``offset``."""
        self.indexes.trim(offset)
        last = self.indexes.offsets.lookup(offset)
        if last is not None and self._confirmed(last) is None:
            self.indexes.clear()
        self._max_timestamp = self.indexes.times.last()

    def cut_to(self, end_offset: int, size: int) -> None:
        """Cut the file at a batch boundary. Raises OSError."""
        self.is_stable = False
        self._cuts += 1
        self.hold_open().truncate(size)
        self.end = (end_offset, size)
        self.damage = tuple(one for one in self.damage if one.end <= self.end)
        self.verified.truncate(size)
        self.indexes.truncate_to(end_offset)
        self.forget_places()
        self._first_timestamp = None
        self._max_timestamp = self._scan_max_timestamp(self.indexes.times.last())

    def forget_places(self) -> None:
        """Batches were changed: where one was said to lie, another may be."""
        self.places = KnownPlaces()  # whoever reads meanwhile adds to what is of no use any more

    def write_indexes(self, *, full: bool) -> None:
        """Write what the indexes hold in memory; ``full``: also the last word on timestamps."""
        self.indexes.write(self.max_timestamp if full and self.size else None)

    def create(self) -> None:
        """Make the file, empty. Raises OSError."""
        file = self._cache.files.open(self.path, write=True)
        if file.size():
            file.truncate(0)
        self.indexes.remove()
        self._indexes = None

    def rebuild_indexes(
        self, index_interval_bytes: int, *, full: bool, lock: AbstractContextManager[object]
    ) -> None:
        """Make the indexes anew; ``full`` says that nobody will append any more.

        ``lock`` keeps appends away: it is held for what came while the rest was read, not for long.
        Raises BadBatch, changing nothing, when the batches do not follow one another, and OSError.
        """
        start, nothing = (self.base_offset, 0), MaxTimestamp(NO_TIMESTAMP, self.base_offset)
        cuts, end = self._cuts, self.end
        made = self._new_indexes()
        greatest = self._index(made, start, end, nothing, index_interval_bytes)
        made.write()
        made.sync()
        with lock:
            if cuts != self._cuts:  # what was read is not what is there
                made, end, greatest = self._new_indexes(), start, nothing
            greatest = self._index(made, end, self.end, greatest, index_interval_bytes)
            made.write(greatest if full and self.size else None)
            made.replace(self.indexes)
            self._indexes = None
            self._max_timestamp = greatest
            self.listed, self.doubt = None, ""

    def _new_indexes(self) -> SegmentIndexes:
        made = SegmentIndexes(self._cache, self.directory, self.base_offset, TEMPORARY_SUFFIX)
        made.remove()
        return made

    def _index(
        self,
        made: SegmentIndexes,
        start: tuple[int, int],
        end: tuple[int, int],
        greatest: MaxTimestamp,
        interval_bytes: int,
    ) -> MaxTimestamp:
        """Add the batches between two places (offset, position); the greatest timestamp now."""
        reached = Place(*start)
        for placed in self.batches_at(reached, end[1]):
            position, header = placed
            last_offset = header.last_offset
            if position > reached.position and made.controls.is_open:
                made.controls.account(*reached, hidden=False)
            reached = Place(placed.next_offset, placed.end)
            if header.max_timestamp > greatest.timestamp:
                greatest = MaxTimestamp(header.max_timestamp, last_offset)
            made.account(position, header.size, last_offset, greatest, interval_bytes)
            made.controls.account(header.base_offset, position, hidden=header.is_hidden)
        if end[1] > reached.position and made.controls.is_open:
            made.controls.account(*reached, hidden=False)
        return greatest


MAX_RELATIVE_OFFSET: Final = 2**31 - 1

_JUMP: Final = re.compile(r"(\d{20})-(\d{20})\.jump")


# Gaps that are wider than the offsets of one segment reach.
#
# Every segment begins where the one before it ends, so that a lost file, or a lost end of one,
# shows. An index holds offsets relative to its segment's first one, in 31 bits. Where a gap goes
# beyond that, an empty segment stands for it: the one after it begins behind the gap. That the two
# belong together says the name of an empty file, ``<offset>-<offset behind the gap>.jump``: a
# segment that a crash emptied has none.


def mark_jump(files: Files, segment: LogSegment, offset: int) -> None:
    """Let ``segment``, which is empty, stand for a gap up to ``offset``. Raises OSError."""
    files.open(_path(segment, offset), write=True)


def is_jump(files: Files, segment: LogSegment, offset: int) -> bool:
    """Whether ``segment`` stands for a gap up to ``offset``, with which the next one begins."""
    return segment.gaps and not segment.size and files.exists(_path(segment, offset))


def is_left_over(name: str, bases: set[int]) -> bool:
    """Whether a file is a jump's that is no more, as there are only segments with these offsets."""
    match = _JUMP.fullmatch(name)
    return match is not None and not {int(match[1]), int(match[2])} <= bases


def _path(segment: LogSegment, offset: int) -> str:
    return f"{segment.directory}/{segment.base_offset:020d}-{offset:020d}.jump"
