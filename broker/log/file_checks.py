"""Comparing what lies beside a log's batches with its manifest, when the log is opened.

Sizes are compared for every segment, which costs a look at each file's metadata; contents only when
they are first used.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise

from .config import LogConfig
from .damage import DamagedRange, next_place
from .files import PASSING
from .health import Corruption
from .manifest import MANIFEST, Manifest, SegmentFiles
from .names import (
    CONTROL_INDEX_SUFFIX,
    CONTROL_SNAPSHOT_SUFFIX,
    LOG_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    numbered,
)
from .scan import BadBatch, Place, PlacedBatch
from .segment import LogSegment

_logger = logging.getLogger(__name__)


def list_files(segments: Sequence[LogSegment], manifest: Manifest) -> None:
    """Let each segment know what the manifest says of its files."""
    listed = {one.base_offset: one for one in manifest.segments}
    for segment in segments:
        segment.listed = listed.get(segment.base_offset)


def note_missing(
    segments: Sequence[LogSegment],
    manifest: Manifest,
    directory: str,
    now_ms: int,
    *,
    log_start_offset: int,
    stable_end: int,
) -> list[Corruption]:
    """Look for segments of the manifest, with records between these offsets, that are not there.

    Where one is before it, that is damaged from its end on, unless it has these offsets: versions
    before the manifest compact logs without it. Returns those before the first segment.
    """
    there = {segment.base_offset: segment for segment in segments}
    first = []
    before: LogSegment | None = None
    for one, following in pairwise(manifest.segments):
        before = there.get(one.base_offset, before)
        is_needed = log_start_offset < following.base_offset <= stable_end
        if one.base_offset in there or not is_needed or not one.log_size:
            continue
        path = f"{directory}/{numbered(one.base_offset, LOG_SUFFIX)}"
        problem = f"{path} is missing, with the records before offset {following.base_offset}"
        if before is None:
            first.append(Corruption(path, 0, one.base_offset, problem))
        elif one.base_offset < before.end_offset and not _reaches_end(before):
            _lacks_end(before, one.base_offset, problem, now_ms)
    return first


def find_shortened(segments: Sequence[LogSegment], now_ms: int) -> None:
    """Look for full segments whose files are shorter than the manifest says.

    Raises OSError, and BadBatch where one was cut within a batch.
    """
    for segment, following in pairwise(segments):
        if segment.listed is None or segment.size >= segment.listed.log_size or segment.damage:
            continue
        end_offset = _reached(segment)
        if end_offset >= following.base_offset:
            continue  # an earlier version has compacted it
        problem = f"the file has {segment.size} bytes instead of {segment.listed.log_size}"
        _lacks_end(segment, end_offset, problem, now_ms)


def _reached(segment: LogSegment) -> int:
    """The offset after a full segment's last batch. Raises OSError, BadBatch."""
    end_offset = segment.base_offset
    for placed in segment.batches_from(segment.end_offset):
        end_offset = placed.next_offset
    return end_offset


def _reaches_end(segment: LogSegment) -> bool:
    """Whether a segment has the offsets of those behind it that are gone: it was compacted."""
    try:
        return _reached(segment) >= segment.end_offset
    except BadBatch:
        return False


def _lacks_end(segment: LogSegment, offset: int, problem: str, now_ms: int) -> None:
    """The records from ``offset`` up to the next segment are not in the file."""
    start, end = Place(offset, segment.size), Place(*segment.end)
    segment.set_damaged(DamagedRange(start, end, problem, now_ms))


def index_problem(segment: LogSegment, listed: SegmentFiles, *, exact: bool) -> str | None:
    """Which index of a segment has not the listed size, if one has not.

    Unless ``exact``, it may be larger: entries were added later. Raises OSError.
    """
    indexes = segment.indexes
    for entries, size in (
        (indexes.offsets.entries, listed.offsets_size),
        (indexes.times.entries, listed.times_size),
        (indexes.controls.entries, listed.controls_size),
    ):
        if not size and entries is indexes.controls.entries and exact:
            continue  # most segments have none; one that should not be there is not read
        found = entries.file_size()
        if found < size or (exact and found > size):
            return f"{entries.path}: {found} bytes instead of {size}"
    return None


def prefix_problem(segment: LogSegment) -> str | None:
    """What is wrong with indexes that were written to after the manifest. Raises OSError."""
    listed = segment.listed
    if listed is None:
        return None
    problem = index_problem(segment, listed, exact=False)
    entries = segment.indexes.controls.entries
    if problem is None and entries.crc_of(listed.controls_size) != listed.controls_crc:
        problem = f"{entries.path}: the CRC of {listed.controls_size} bytes does not match"
    return problem


class IndexCheck:
    """Checks the indexes of one log's segments, and makes anew what does not check."""

    def __init__(self, directory: str, config: LogConfig, names: Sequence[str]) -> None:
        """``names``: the files in ``directory``."""
        self._directory = directory
        self._config = config
        self._had_hidden = any(
            name.endswith((CONTROL_INDEX_SUFFIX, CONTROL_SNAPSHOT_SUFFIX)) for name in names
        )
        self.had_aborted = any(name.endswith(TRANSACTION_INDEX_SUFFIX) for name in names)
        self._is_told = False

    def check(self, segment: LogSegment, *, is_active: bool, exact: bool) -> bool:
        """Check the indexes of ``segment``; whether they had to be made anew.

        Unless ``exact``, they may have grown since they were listed.

        Raises OSError, and BadBatch where batches are damaged.
        """
        listed = segment.listed
        if listed is not None and not segment.doubt:
            problem = (
                index_problem(segment, listed, exact=True) if exact else prefix_problem(segment)
            )
            if problem is None and not exact:
                segment.listed = None
                return False
            if problem is None:
                size, crc = listed.controls_size, listed.controls_crc
                segment.indexes.controls.expect(size, crc, _Boundaries(segment).again)
                return False
            _logger.warning("%s; it is made anew from the log", problem)
        elif listed is None and not segment.doubt:
            if not self._is_incomplete(segment):
                return False
            self._tell(segment)
        try:
            segment.rebuild_indexes(
                self._config.index_interval_bytes, full=not is_active, lock=nullcontext()
            )
        except OSError as error:
            if error.errno not in PASSING:
                raise
        return True

    def _is_incomplete(self, segment: LogSegment) -> bool:
        """Whether a segment without a manifest lacks entries, or has some that nothing confirms.

        A segment of a batch or two has no entries, and needs none.
        """
        small = self._config.index_interval_bytes + 2 * self._config.max_message_bytes
        if self._had_hidden and segment.size:
            return True
        return segment.size > small and not segment.indexes.have_entries()

    def _tell(self, segment: LogSegment) -> None:
        """Once for a log: one that an earlier version wrote has many such segments."""
        if not self._is_told:
            self._is_told = True
            _logger.info(
                "%s: %s does not confirm the indexes of some segments, from offset %d on: they are"
                " made anew from the log",
                *(self._directory, MANIFEST, segment.base_offset),
            )


class _Boundaries:
    """Where the runs of hidden batches of a segment begin and end, read from its batches."""

    def __init__(self, segment: LogSegment) -> None:
        self._segment = segment

    def again(self, problem: str) -> list[tuple[int, int]]:
        """The entries of a ``.controlindex`` that is damaged. Raises OSError."""
        segment = self._segment
        path = segment.indexes.controls.entries.path
        _logger.warning("%s is damaged: %s; it is made anew from the log", path, problem)
        segment.listed = None
        return self.read()

    def read(self) -> list[tuple[int, int]]:
        """The entries, as far as batches can be read; a run ends before damage. Raises OSError."""
        base = self._segment.base_offset
        entries: list[tuple[int, int]] = []
        end = Place(base, 0)
        for placed in self._batches():
            header = placed.header
            if placed.position != end.position and len(entries) % 2 == 1:
                entries.append((end.offset - base, end.position))
            if header.is_hidden is not (len(entries) % 2 == 1):
                entries.append((header.base_offset - base, placed.position))
            end = Place(placed.next_offset, placed.end)
        return entries

    def _batches(self) -> Iterator[PlacedBatch]:
        """All that can be read."""
        segment = self._segment
        place = Place(segment.base_offset, 0)
        while place.position < segment.size:
            try:
                for placed in segment.batches_at(place, segment.size):
                    place = Place(placed.next_offset, placed.end)
                    yield placed
            except BadBatch as bad:
                start = Place(bad.offset, bad.position)
                good = next_place(segment.file, start, segment.size)
                if good is None:
                    return
                place = good
            else:
                return
