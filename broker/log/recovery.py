"""Opening a log's segments: what is below the recovery point is trusted, what is above is read.

After a clean shutdown nothing is read but the last segment's headers behind its index. After a
crash every batch above the recovery point is checked, and the indexes of that part made anew:

- the log ends where its data ends, or before a batch that was torn (see below);
- a bad batch below the recovery point, or one that is not torn and lies below the checkpointed high
  watermark or before good ones, is corruption: nothing is cut, the segment knows the damaged range,
  and everything around it is recovered. Whether the log is used so is decided above: another
  replica may have what it lost.
"""

import logging
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise

from qbus.records import BatchHeader, crc32c

from .damage import DamagedRange, claimed_header, extent, is_batch_at, next_batch
from .epochs import UNDEFINED_EPOCH, LeaderEpochCache
from .file_cache import FileCache
from .files import File
from .health import Corruption
from .names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIXES,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    numbered,
    parse_numbered,
)
from .scan import BadBatch, Place, PlacedBatch
from .segment import MAX_RELATIVE_OFFSET, LogSegment, is_jump, is_left_over

_SECTOR = 512
_ZEROS = 16
_CHUNK = 1 << 20
_HEADER_SIZE = 61
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CRC_FROM = 21
_LEAST_ZEROS = 9  # a batch's first eight bytes may well be zeros: its base offset


# Telling a write that a power cut tore from data that went bad.
#
# Above the recovery point, records may or may not be on the disk, page by page, in any order: a
# batch may be missing while one after it is there. Nobody was told that they are safe, so the log
# ends before the first missing one. But the checkpointed recovery point lags behind what was in
# fact made stable; a batch that went bad there, with good ones after it, was perhaps acknowledged,
# and cutting it off would lose it without a word.
#
# The two look different. A sector that was not written, or was written before the records at its
# end were there, ends in zeros; a file that lost its last pages just ends. A batch that went bad
# has its bytes, some of them wrong.


def is_torn(file: File, start: int, end: int) -> bool:
    """Whether the batch that should be at ``start`` was not wholly written.

    The next good one is at ``end``, which is the file's end when that one is in the next file.
    Raises OSError.
    """
    if start == end or _has_unwritten_sector(file, start, end):
        return True
    if end < file.size():
        return False
    return _has_unwritten_end(file, start, end) or not _reaches(file, start, end)


def _reaches(file: File, start: int, end: int) -> bool:
    """Whether bad batches have all their bytes: by their lengths, or, if there is one, its sum."""
    position = start
    while position < end:
        claimed = claimed_header(file, position, end)
        if claimed is None:
            break
        position += claimed.size
    if position == end:
        return True
    batch = file.read_at(start, end - start)
    return (
        len(batch) >= _HEADER_SIZE
        and crc32c(batch[_CRC_FROM:]) == _CRC.unpack_from(batch, _CRC_AT)[0]
    )


def _has_unwritten_end(file: File, start: int, end: int) -> bool:
    """Whether the last sector, which a file of length ``end`` fills in part, was not written.

    A record without headers ends in one zero, so one alone says nothing.
    """
    low = max(end - end % _SECTOR, start)
    part = file.read_at(low, end - low)
    zeros = len(part) - len(part.rstrip(b"\0"))
    return zeros >= _LEAST_ZEROS or 1 < zeros == len(part)


def _has_unwritten_sector(file: File, start: int, end: int) -> bool:
    first = start - start % _SECTOR
    while first < end:
        data = file.read_at(first, min(_CHUNK, end - first))
        for boundary in range(_SECTOR, len(data) + 1, _SECTOR):
            low = max(boundary - _ZEROS, start - first)
            if boundary - low >= _LEAST_ZEROS and not any(data[low:boundary]):
                return True
        first += _CHUNK
    return False


_logger = logging.getLogger(__name__)

_LEFTOVERS = (DELETED_SUFFIX, TEMPORARY_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX)
_ANY_OFFSET = 2**63 - 1


def find_segments(cache: FileCache, directory: str, now_ms: int, *, gaps: bool) -> list[LogSegment]:
    """The segments in a directory, ends of all but the last known; removes leftovers of others.

    ``gaps``: their offsets may have some. Raises OSError.
    """
    files = cache.files
    names = {name: parse_numbered(name) for name in files.list(directory)}
    bases = {number[0] for number in names.values() if number and number[1] == LOG_SUFFIX}
    for name, number in names.items():
        orphan = number and number[1] not in SNAPSHOT_SUFFIXES and number[0] not in bases
        is_needed = name.endswith(LOG_SUFFIX + SWAP_SUFFIX)  # as long as it is damaged
        if orphan or (name.endswith(_LEFTOVERS) and not is_needed) or is_left_over(name, bases):
            files.remove(f"{directory}/{name}")
    segments = []
    for base in sorted(bases):
        size = files.size(f"{directory}/{numbered(base, LOG_SUFFIX)}")
        segments.append(LogSegment(cache, directory, base, size=size, created_ms=now_ms, gaps=gaps))
    for segment, following in pairwise(segments):
        segment.end = (following.base_offset, segment.size)
    return segments


def name_anew(cache: FileCache, segment: LogSegment) -> LogSegment:
    """Give a log's first segment the name that it got when the log began, if a crash lost that.

    It shows where an index would not reach the first batch. The caller syncs. Raises OSError.
    """
    first = next(_headers(segment), None) if segment.gaps else None
    if first is None or first.last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET:
        return segment
    offset = first.base_offset
    named = LogSegment(
        cache,
        segment.directory,
        offset,
        size=segment.size,
        created_ms=segment.created_ms,
        gaps=True,
    )
    segment.indexes.remove()
    cache.files.rename(segment.path, named.path)
    cache.forget(segment.path)
    named.end = (max(segment.end_offset, offset), segment.size)
    return named


def _headers(segment: LogSegment) -> Iterator[BatchHeader]:
    """Of a segment's batches, as long as they can be read."""
    with suppress(BadBatch):
        for placed in segment.batches_from(segment.base_offset):
            yield placed.header


def find_end(segment: LogSegment) -> None:
    """Learn the end offset of the last segment after a clean shutdown. Raises BadBatch, OSError."""
    end_offset = segment.base_offset
    for placed in segment.batches_from(_ANY_OFFSET):
        end_offset = placed.next_offset
    if segment.damage:
        end_offset = max(end_offset, segment.damage[-1].end.offset)
    segment.end = (end_offset, segment.size)


def remove_segments(cache: FileCache, segments: list[LogSegment]) -> None:
    """Remove the files of ``segments``, the last ones; the caller syncs. Raises OSError.

    They are above the recovery point: if a crash lets some come back, the gap before them tells
    that they are no part of the log.
    """
    for segment in reversed(segments):
        for suffix in SEGMENT_SUFFIXES:
            path = f"{segment.directory}/{numbered(segment.base_offset, suffix)}"
            cache.files.remove(path)
            cache.forget(path)


class Recovery:
    """Reads the segments above the recovery point after a crash."""

    def __init__(
        self,
        cache: FileCache,
        recovery_point: int,
        epochs: LeaderEpochCache,
        index_interval_bytes: int,
        now_ms: int,
        doubts: Callable[[LogSegment], str | None],
        committed: int,
    ) -> None:
        """``committed`` is the checkpointed high watermark: records below it were acknowledged.

        ``doubts`` says what is wrong with a segment's indexes; an empty string: that is unknown.

        None: what they say below the recovery point is right. It may raise OSError.
        """
        self._cache = cache
        self._doubts = doubts
        self._recovery_point = recovery_point
        self._committed = committed
        self._epochs = epochs
        self._index_interval_bytes = index_interval_bytes
        self._now_ms = now_ms

    def recover(self, segments: list[LogSegment]) -> tuple[list[LogSegment], Corruption | None]:
        """Check ``segments``; those that are left after cutting what was torn.

        Damage that must not be cut is noted in the segments. The corruption is one that the log
        cannot be used around. The caller syncs the segments. Raises OSError.
        """
        for i, segment in enumerate(segments):
            following = segments[i + 1 :]
            if following and following[0].base_offset <= self._recovery_point:
                continue
            before = segments[i - 1] if i and not segments[i - 1].size else segment  # a jump
            bad = self._read(segment, before.base_offset, following)
            if bad is None and following and segment.end_offset > following[0].base_offset:
                problem = f"the next segment begins with offset {following[0].base_offset}"
                place = segment.size, segment.end_offset
                return segments, Corruption(segment.path, *place, problem)
            if bad is None:
                bad = self._gap(segment, following)
            if bad is not None:
                self._cut(segment, bad, following)
                return segments[: i + 1], None
        return segments, None

    def _read(
        self, segment: LogSegment, reached: int, following: list[LogSegment]
    ) -> BadBatch | None:
        """Check the batches behind the last trusted index entry, or all if that one lies.

        The log before the segment ends at ``reached``. Returns the batch that is torn, if any.
        """
        problem = self._doubts(segment)
        if problem is not None:
            if problem:
                _logger.warning("%s; it is made anew from the log", problem)
            segment.indexes.clear()
        segment.trim_indexes(self._recovery_point)
        start = Place(*segment.end)
        size = start.position
        place = segment.indexed_before(_ANY_OFFSET)
        segment.indexes.controls.truncate_to(place.offset)
        reached = place.offset if place.position else reached
        first = place.position
        segment.end = (place.offset, size)
        while True:
            try:
                for placed in segment.batches_at(place, size, crc=True):
                    self._check_epoch(segment, size, placed, reached)
                    reached = placed.next_offset
                    segment.account(placed, self._index_interval_bytes)
            except BadBatch as bad:
                damaged = self._judge(bad, segment, size, following)
                segment.verified.add(first, bad.position)
                if damaged is None:
                    segment.end = start
                    return bad
                segment.skip_damaged(damaged)
                place = damaged.end
                reached, first = place
            else:
                segment.verified.add(first, size)
                return None

    def _check_epoch(
        self, segment: LogSegment, size: int, placed: PlacedBatch, reached: int
    ) -> None:
        """Above the recovery point a batch may begin an epoch, below it epochs are known.

        The log before the batch ends at ``reached``. A sum does not cover the epoch: one that the
        next batch takes back was never there.
        """
        header, epoch = placed.header, placed.header.partition_leader_epoch
        if header.base_offset >= self._recovery_point and epoch > self._epochs.latest_epoch:
            after = claimed_header(segment.file, placed.end, size)
            if after is not None and after.partition_leader_epoch < epoch:
                problem = f"leader epoch is {epoch}, behind it {after.partition_leader_epoch}"
                raise BadBatch(placed.position, header.base_offset, problem, intact=True)
            self._epochs.assign(epoch, reached)
        check_epoch(self._epochs, placed)

    def _gap(self, segment: LogSegment, following: list[LogSegment]) -> BadBatch | None:
        """What is torn where a segment that is good in itself should meet the next one.

        Below the recovery point it is damage, which the segment notes.
        """
        if not following or segment.end_offset == following[0].base_offset:
            return None
        offset = following[0].base_offset
        if is_jump(self._cache.files, segment, offset):
            segment.end = (offset, 0)
            return None
        problem = f"the next segment begins with offset {offset}"
        bad = BadBatch(segment.size, segment.end_offset, problem)
        if not self._is_corrupt(bad, segment, segment.size, following):
            return bad
        here = Place(bad.offset, bad.position)
        behind = Place(offset, segment.size)
        segment.skip_damaged(DamagedRange(here, behind, problem, self._now_ms))
        return None

    def _judge(
        self, bad: BadBatch, segment: LogSegment, size: int, following: list[LogSegment]
    ) -> DamagedRange | None:
        """How far the damage reaches that begins with ``bad``; None: it is torn, and to be cut."""
        if not self._is_corrupt(bad, segment, size, following):
            return None
        return extent(
            segment.file,
            bad,
            size,
            following[0].base_offset if following else None,
            at_least=max(self._recovery_point, self._committed),
            since_ms=self._now_ms,
        )

    def _is_corrupt(
        self, bad: BadBatch, segment: LogSegment, size: int, following: list[LogSegment]
    ) -> bool:
        if bad.offset < self._recovery_point or bad.intact:
            return True
        good = next_batch(segment.file, bad.position, size, bad.offset)
        if good is not None:
            return not is_torn(segment.file, bad.position, good)
        if any(_has_good(one, bad.offset) for one in following):
            return not is_torn(segment.file, bad.position, size)
        return bad.offset < self._committed and not is_torn(segment.file, bad.position, size)

    def _cut(self, segment: LogSegment, bad: BadBatch, following: list[LogSegment]) -> None:
        _logger.warning(
            "%s: cut at %d, offset %d, after a crash: %s",
            segment.path,
            bad.position,
            bad.offset,
            bad.problem,
        )
        remove_segments(self._cache, following)
        segment.cut_to(bad.offset, bad.position)


def _has_good(segment: LogSegment, offset: int) -> bool:
    """Whether a segment behind the one with a bad batch at ``offset`` has a good one."""
    size = segment.size
    if not size:
        return False
    least = max(offset, segment.base_offset - 1)  # a gap before it may be wider than any within one
    if is_batch_at(segment.file, 0, size, least):
        return True
    return next_batch(segment.file, 0, size, least) is not None


def check_epoch(epochs: LeaderEpochCache, placed: PlacedBatch) -> None:
    """Raise BadBatch unless the batch's leader epoch is the one that its offset belongs to."""
    header = placed.header
    expected = epochs.epoch_at(header.base_offset)
    if expected not in {header.partition_leader_epoch, UNDEFINED_EPOCH}:
        raise BadBatch(
            placed.position,
            header.base_offset,
            f"leader epoch is {header.partition_leader_epoch}, not {expected}",
            intact=True,
        )
