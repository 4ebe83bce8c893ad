"""From which offset on a segment holds records of a time or later.

File format (Kafka's ``.timeindex``): entries of 12 bytes, big-endian, ascending in both fields.

====== ==== ===================================================================
offset size field
====== ==== ===================================================================
0      8    greatest timestamp in the segment so far, milliseconds
8      4    last offset of the batch that has it, less the segment's base offset
====== ==== ===================================================================

It says: no record up to the offset is later than the timestamp. An entry is made together with
one of the offset index, when the timestamp has grown, and at the end of the segment. Crash policy:
that of the offset index.
"""

import struct
from typing import NamedTuple

from .entry_file import EntryFile
from .file_cache import FileCache

_ENTRY = struct.Struct(">qi")

NO_TIMESTAMP = -1


class MaxTimestamp(NamedTuple):
    """The greatest timestamp of a segment and the last offset of the first batch that has it."""

    timestamp: int
    offset: int


class TimeIndex:
    """The sparse map from timestamps to offsets of one segment."""

    __slots__ = ("_last", "base_offset", "entries")

    def __init__(self, cache: FileCache, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self.entries = EntryFile(cache, path, _ENTRY)
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

    def lookup(self, timestamp: int) -> int:
        """An offset before which no record has ``timestamp`` or a later one."""
        index = self.entries.floor(timestamp - 1)
        return self.base_offset + self.entries.get(index)[1] if index >= 0 else self.base_offset

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that end at or after ``offset``."""
        low = self.entries.floor(offset - 1 - self.base_offset, field=1)
        self.entries.truncate(low + 1)
        self._last = None
