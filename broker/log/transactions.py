"""Which transactions of a log were aborted: what readers of committed records leave out (KIP-98).

Each segment with the markers of aborted transactions has a file of them.

File format (Kafka's ``.txnindex``), big-endian; one entry for each aborted transaction, in the
order of the markers:

====== ==== ===================================================================
offset size field
====== ==== ===================================================================
0      2    version, 0
2      8    producer id
10     8    offset of the transaction's first record
18     8    offset of its marker
26     8    last stable offset once the marker counted: before it, all is decided
====== ==== ===================================================================

All entries of a log are kept in memory, 32 bytes each. Crash policy: entries below the recovery
point are stable; those above are cut and made again from the log. So are those from a damaged entry
on, and all from a segment on whose other indexes are missing.
"""

import logging
import struct
from array import array
from bisect import bisect_left
from collections.abc import Container, Iterable, Sequence
from typing import Final, NamedTuple

from qbus.records import crc32c

from .file_cache import FileCache
from .files import read_file, write_all
from .manifest import SegmentFiles
from .names import TRANSACTION_INDEX_SUFFIX, numbered
from .segment import LogSegment

_logger = logging.getLogger(__name__)

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: its first record's offset and its marker's.

    Before ``stable_offset``, once the marker was there, every transaction had ended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


def encode_aborted(entries: Sequence[AbortedTransaction]) -> bytes:
    """The bytes of ``entries`` in a ``.txnindex``."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def read_aborted(data: bytes) -> tuple[list[AbortedTransaction], str]:
    """The entries of a ``.txnindex``, and what is wrong with the rest of it, if anything is."""
    entries: list[AbortedTransaction] = []
    whole = len(data) - len(data) % _ENTRY.size
    last = -1
    for version, *fields in _ENTRY.iter_unpack(data[:whole]):
        entry = AbortedTransaction(*fields)
        if version != _VERSION:
            return entries, f"unknown version {version}"
        if entry.last_offset <= last or not 0 <= entry.first_offset < entry.last_offset:
            return entries, f"the transaction of {entry.first_offset} to {entry.last_offset}"
        entries.append(entry)
        last = entry.last_offset
    return entries, "" if whole == len(data) else f"{len(data) - whole} bytes are no entry"


_Columns = tuple["array[int]", "array[int]", "array[int]", "array[int]"]


class AbortedTransactions:
    """The aborted transactions of one log, in the order of their markers.

    Changed under the log's lock. Any thread may ask meanwhile: what is taken away leaves the
    columns that others read as they are.
    """

    __slots__ = ("_cache", "_columns", "_directory", "_unsynced", "_written")

    def __init__(self, cache: FileCache, directory: str) -> None:
        self._cache = cache
        self._directory = directory
        self._columns = _empty()  # the fields of AbortedTransaction
        self._written = 0  # how many are in files
        self._unsynced: set[str] = set()  # files

    def __len__(self) -> int:
        return len(self._columns[2])

    def load(
        self, segments: Sequence[LogSegment], listed_files: Iterable[SegmentFiles] = ()
    ) -> int | None:
        """Read the files of ``segments``, those of a log that is opened.

        Returns the base offset of the first one whose file is damaged, or not as it was listed in
        the manifest. Raises OSError.
        """
        all_listed = {one.base_offset: one for one in listed_files}
        for segment in segments:
            path = self._path(segment.base_offset)
            listed = all_listed.get(segment.base_offset)
            entries: list[AbortedTransaction] = []
            if listed is not None and not listed.aborted_size and segment is not segments[-1]:
                continue
            try:
                data = read_file(self._cache.files, path)
            except FileNotFoundError:
                data = b""
            if listed is not None and len(data) < listed.aborted_size:
                problem = f"{len(data)} bytes instead of {listed.aborted_size}"
            elif listed is not None and crc32c(data[: listed.aborted_size]) != listed.aborted_crc:
                problem = "the CRC does not match"
            else:
                entries, problem = read_aborted(data)
            known = self._columns[2]
            if not problem and entries and known and entries[0].last_offset <= known[-1]:
                problem = "the entries are not above those of the segment before"
            if problem:
                _logger.warning("%s is damaged: %s; it is made anew from the log", path, problem)
                return segment.base_offset
            for entry in entries:
                self.add(entry)
            self._written = len(self)
        return None

    def add(self, entry: AbortedTransaction) -> None:
        """A transaction was aborted: its marker is the newest of the log."""
        producer_ids, firsts, lasts, stables = self._columns
        producer_ids.append(entry.producer_id)
        firsts.append(entry.first_offset)
        stables.append(entry.stable_offset)
        lasts.append(entry.last_offset)  # at last: readers count these

    def between(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those that may have records from ``offset`` to before ``end_offset``."""
        producer_ids, firsts, lasts, stables = self._columns
        count = len(lasts)
        found: list[AbortedTransaction] = []
        for at in range(bisect_left(lasts, offset, 0, count), count):
            if firsts[at] < end_offset:
                found.append(
                    AbortedTransaction(producer_ids[at], firsts[at], lasts[at], stables[at])
                )
            if stables[at] >= end_offset:
                break
        return found

    def truncate_to(self, offset: int, segments: Sequence[LogSegment]) -> None:
        """Drop those whose markers are at ``offset`` or later, in memory and files of ``segments``.

        Raises OSError.
        """
        kept = bisect_left(self._columns[2], offset)
        self._columns = _slice(self._columns, 0, kept)
        self._written = min(self._written, kept)
        for segment in segments:
            path = self._path(segment.base_offset)
            if segment.end_offset <= offset or not self._cache.files.exists(path):
                continue
            count = kept - min(bisect_left(self._columns[2], segment.base_offset), kept)
            file = self._cache.files.open(path, write=True)
            if file.size() > count * _ENTRY.size:
                file.truncate(count * _ENTRY.size)
                self._unsynced.add(path)

    def forget_before(self, offset: int) -> None:
        """Segments with all offsets before ``offset`` are removed, and their files with them."""
        gone = bisect_left(self._columns[2], offset)
        if gone:
            self._columns = _slice(self._columns, gone, len(self))
            self._written = max(self._written - gone, 0)

    def clear(self, base_offset: int) -> None:
        """The log has nothing but an empty segment of this offset. Raises OSError."""
        self._columns = _empty()
        self._written = 0
        self._unsynced = set()
        self._cache.files.remove(self._path(base_offset))

    def write(self, segments: Sequence[LogSegment]) -> None:
        """Write what is in memory alone to the files of ``segments``, all of the log.

        Raises OSError; what was not written is written the next time.
        """
        count = len(self)
        if self._written == count:
            return
        lasts = self._columns[2]
        for segment in segments:
            first = bisect_left(lasts, segment.base_offset)
            end = min(bisect_left(lasts, segment.end_offset), count)
            if end <= self._written:
                continue
            path = self._path(segment.base_offset)
            file = self._cache.files.open(path, write=True)
            begin = max(self._written, first)
            made = encode_aborted(self._entries(begin, end))
            write_all(file, (begin - first) * _ENTRY.size, made)
            self._unsynced.add(path)
            self._written = end

    def sync(self) -> None:
        """Wait until what was written is stable. Raises OSError."""
        unsynced, self._unsynced = self._unsynced, set()
        try:
            for path in unsynced:
                if self._cache.files.exists(path):
                    self._cache.files.open(path, write=True).sync()
        except OSError:
            self._unsynced |= unsynced
            raise

    def encode(self, base_offset: int, end_offset: int) -> bytes:
        """What the ``.txnindex`` of a segment with these offsets holds."""
        return encode_aborted(self._entries(*self._range(base_offset, end_offset)))

    def select(self, base_offset: int, end_offset: int, lasts: Container[int]) -> bytes | None:
        """The ``.txnindex`` of a segment with these offsets that keeps the markers at ``lasts``.

        None: there are no entries, whichever it keeps.
        """
        begin, end = self._range(base_offset, end_offset)
        entries = [entry for entry in self._entries(begin, end) if entry.last_offset in lasts]
        return encode_aborted(entries) if end > begin else None

    def keep(self, base_offset: int, end_offset: int, lasts: Container[int]) -> None:
        """Forget those with markers in these offsets but at ``lasts``; their file is written."""
        begin, end = self._range(base_offset, end_offset)
        kept = [entry for entry in self._entries(begin, end) if entry.last_offset in lasts]
        before, behind = _slice(self._columns, 0, begin), _slice(self._columns, end, len(self))
        for column, field in zip(before, zip(*kept, strict=True), strict=False):
            column.extend(field)
        for column, rest in zip(before, behind, strict=True):
            column.extend(rest)
        self._columns = before
        self._written -= end - begin - len(kept)

    def _range(self, base_offset: int, end_offset: int) -> tuple[int, int]:
        """Which entries have their markers in these offsets."""
        lasts = self._columns[2]
        return bisect_left(lasts, base_offset), bisect_left(lasts, end_offset)

    def _entries(self, begin: int, end: int) -> list[AbortedTransaction]:
        return [
            AbortedTransaction(*fields)
            for fields in zip(*_slice(self._columns, begin, end), strict=True)
        ]

    def _path(self, base_offset: int) -> str:
        return f"{self._directory}/{numbered(base_offset, TRANSACTION_INDEX_SUFFIX)}"


def _empty() -> _Columns:
    return array("q"), array("q"), array("q"), array("q")


def _slice(columns: _Columns, begin: int, end: int) -> _Columns:
    producer_ids, firsts, lasts, stables = columns
    return producer_ids[begin:end], firsts[begin:end], lasts[begin:end], stables[begin:end]
