"""The two indexes of a segment, kept in step."""

from contextlib import suppress

from .file_cache import FileCache
from .names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, numbered
from .offset_index import OffsetIndex
from .time_index import MaxTimestamp, TimeIndex


class SegmentIndexes:
    """Gets an entry in both for the first batch after each ``index.interval.bytes``.

    Changing it is the log's, under its lock; searching is anyone's.
    """

    __slots__ = ("_cache", "_unindexed", "offsets", "times")

    def __init__(
        self, cache: FileCache, directory: str, base_offset: int, suffix: str = ""
    ) -> None:
        path = f"{directory}/{numbered(base_offset, OFFSET_INDEX_SUFFIX)}{suffix}"
        self.offsets = OffsetIndex(cache, path, base_offset)
        path = f"{directory}/{numbered(base_offset, TIME_INDEX_SUFFIX)}{suffix}"
        self.times = TimeIndex(cache, path, base_offset)
        self._cache = cache
        self._unindexed = 0  # bytes since the last entry

    def have_entries(self) -> bool:
        """Whether there are entries in both, on disk or in memory."""
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
        self.truncate_to(offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that end at or after ``offset``. Raises OSError."""
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)
        self._unindexed = 0

    def clear(self) -> None:
        """Drop all entries. Raises OSError."""
        self.offsets.entries.truncate(0)
        self.times.entries.truncate(0)

    def write(self, last_word: MaxTimestamp | None = None) -> None:
        """Write the entries that are in memory; at the end of the segment, its ``last_word``.

        Raises OSError.
        """
        if last_word is not None:
            self.times.maybe_append(*last_word)
        self.times.entries.write()
        self.offsets.entries.write()
        if last_word is not None:
            # Kafka's tools read a time index only with an offset index beside it, empty or not.
            self.offsets.entries.create()

    def sync(self) -> None:
        """Wait until what was written is stable. Raises OSError."""
        self.times.entries.sync()
        self.offsets.entries.sync()

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

    def _paths(self) -> tuple[str, str]:
        return self.offsets.entries.path, self.times.entries.path
