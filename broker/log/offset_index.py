"""Where in a segment an offset is.

File format (Kafka's ``.index``): entries of 8 bytes, big-endian, ascending in both fields.

====== ==== ===================================================================
offset size field
====== ==== ===================================================================
0      4    last offset of a batch, less the segment's base offset
4      4    position of that batch in the ``.log`` file
====== ==== ===================================================================

An entry is made for the first batch after each ``index.interval.bytes``. Crash policy: entries
below the recovery point are stable; those above are cut and made again from the log. A file that
is missing or makes no sense is rebuilt.
"""

import struct

from .entry_file import EntryFile
from .file_cache import FileCache

_ENTRY = struct.Struct(">ii")


class OffsetIndex:
    """The sparse map from offsets to positions of one segment."""

    __slots__ = ("base_offset", "entries")

    def __init__(self, cache: FileCache, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self.entries = EntryFile(cache, path, _ENTRY)

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
