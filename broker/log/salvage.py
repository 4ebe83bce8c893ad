"""Setting damaged batches aside, so that the log they lie in can be read without errors.

For a partition whose only replica this is, while no broker uses its directory. The bytes of each
damaged range are saved in a file. In their place the segment gets one empty batch for the same
offsets, so no offset changes; every client moves its position over it. The new segment takes the
place of the old one in the steps of :mod:`.replacement`: a crash leaves the one or the other.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from qbus.records.control import empty_batch

from .checkpoints import LEADER_EPOCHS, decode_epochs
from .config import LogConfig
from .damage import DamagedRange, claimed_header, extent
from .damage_file import DAMAGED_BATCHES
from .epochs import LeaderEpochCache
from .file_cache import FileCache
from .files import File, Files, read_file, write_all
from .manifest import read_manifest, write_manifest
from .names import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, numbered, parse_numbered
from .replacing import complete_replacements
from .scan import BadBatch, Place, PlacedBatch, scan
from .segment import LogSegment, is_jump

_CHUNK: Final = 1 << 20
_LONGEST: Final = 2**31 - 1  # offsets of one batch
_INTERVAL: Final = LogConfig().index_interval_bytes


class SalvageError(Exception):
    """Why a log cannot be salvaged as it is."""


class SegmentDamage(NamedTuple):
    """A segment, and its damaged ranges."""

    segment: LogSegment
    damage: tuple[DamagedRange, ...]


def find_damage(files: Files, directory: str, recovery_point: int) -> list[SegmentDamage]:
    """Read a whole log, and return the segments that have damage. Changes nothing.

    A bad end above ``recovery_point`` is none: a start cuts it off. Raises SalvageError, OSError.
    """
    segments = _segments(files, directory)
    if recovery_point and not segments:
        raise SalvageError("all its segments are missing: nothing is left to be read")
    for segment, following in pairwise([*segments, None]):
        if segment is not None:
            base = None if following is None else following.base_offset
            _read(files, segment, base, recovery_point)
    return [SegmentDamage(one, one.damage) for one in segments if one.damage]


def _segments(files: Files, directory: str) -> list[LogSegment]:
    names = files.list(directory)
    if any(name.endswith(SWAP_SUFFIX) for name in names):
        raise SalvageError("a replacement of segments was cut short: start the broker once")
    cache = FileCache(files)
    return [
        LogSegment(
            cache,
            directory,
            base,
            size=files.size(f"{directory}/{numbered(base, LOG_SUFFIX)}"),
            created_ms=0,
            gaps=True,
        )
        for base in sorted(_bases(names))
    ]


def _bases(names: Sequence[str]) -> set[int]:
    """The base offsets of the segments among the files of a directory."""
    numbers = (parse_numbered(name) for name in names)
    return {one[0] for one in numbers if one and one[1] == LOG_SUFFIX}


def _read(files: Files, segment: LogSegment, following: int | None, recovery_point: int) -> None:
    """Let the segment know its damage, and where it ends."""
    size = segment.size
    place = Place(segment.base_offset, 0)
    while True:
        try:
            for placed in _batches(segment.file, place, size, recovery_point):
                place = Place(placed.next_offset, placed.end)
        except BadBatch as bad:
            damaged = extent(
                segment.file, bad, size, following, at_least=recovery_point, since_ms=0
            )
            if following is None and damaged.end.position == size and bad.offset >= recovery_point:
                if segment.damage:
                    raise SalvageError(
                        f"{segment.path} has a torn end besides: start the broker once, which cuts"
                        " it off"
                    ) from bad
                segment.end = (bad.offset, size)
                return
            segment.set_damaged(damaged)
            place = damaged.end
        else:
            break
    segment.end = (place.offset, size)
    end = recovery_point if following is None else following
    if place.offset > end and following is not None:
        raise SalvageError(f"{segment.path} has records of the next segment's offsets")
    if place.offset < end and not is_jump(files, segment, end):
        problem = f"records up to {end} are missing"
        segment.set_damaged(DamagedRange(place, Place(end, size), problem, 0))


def _batches(file: File, start: Place, end: int, recovery_point: int) -> Iterator[PlacedBatch]:
    """Batches, between which offsets may be missing: compaction and mirrors leave such gaps.

    No sum covers the base offset: a gap before a batch counts only if the next one agrees, or, of
    the last one, if it does not lead beyond the recovery point.
    """
    expected = start.offset
    for placed in scan(file, start.position, end, expected, gaps=True):
        after = claimed_header(file, placed.end, end)
        if after is None:
            is_there = not expected < recovery_point < placed.next_offset
        else:
            is_there = after.base_offset >= placed.next_offset
        if placed.header.base_offset > expected and not is_there:
            problem = f"batch begins with offset {placed.header.base_offset}, not {expected}"
            raise BadBatch(placed.position, expected, problem)
        yield placed
        expected = placed.next_offset


def salvage(files: Files, directory: str, found: Sequence[SegmentDamage], saved: str) -> list[str]:
    """Set damaged ranges aside; the files in the directory ``saved`` that hold their bytes.

    Stable on return. Raises OSError.
    """
    epochs = _epochs(files, directory)
    paths: list[str] = []
    _unlist(files, directory, {segment.base_offset for segment, _ in found})
    for segment, damage in found:
        for one in damage:
            if one.size:
                paths.append(saved_path(files, saved, one.start.offset))
                _save(files, segment.file, one, saved, paths[-1])
        _replace(files, segment, damage, epochs)
    complete_replacements(FileCache(files), directory, _INTERVAL)
    files.remove(f"{directory}/{DAMAGED_BATCHES}")
    files.sync_directory(directory)
    return paths


def saved_path(files: Files, saved: str, offset: int) -> str:
    """The file for the bytes of a damaged range from ``offset`` on; never one that exists."""
    first = path = f"{saved}/{numbered(offset, '.bad')}"
    earlier = 0
    while files.exists(path):
        earlier += 1
        path = f"{first}.{earlier}"
    return path


def _unlist(files: Files, directory: str, bases: set[int]) -> None:
    """Take the segments that are replaced, or missing, out of the manifest. Raises OSError."""
    manifest = read_manifest(files, directory)
    if manifest is not None:
        left = _bases(files.list(directory)) - bases
        manifest.segments = [one for one in manifest.segments if one.base_offset in left]
        write_manifest(files, directory, manifest)
        files.sync_directory(directory)


def _epochs(files: Files, directory: str) -> LeaderEpochCache:
    path = f"{directory}/{LEADER_EPOCHS}"
    try:
        return LeaderEpochCache(decode_epochs(read_file(files, path)))
    except (OSError, ValueError):
        return LeaderEpochCache()


def _save(files: Files, file: File, damaged: DamagedRange, directory: str, path: str) -> None:
    """Copy damaged bytes to a file, as they are."""
    files.make_directory(directory)
    target = files.open(path, write=True)
    target.truncate(0)
    _copy(file, damaged.start.position, damaged.end.position, target, 0)
    target.sync()
    files.sync_directory(directory)


def _replace(
    files: Files, segment: LogSegment, damage: Sequence[DamagedRange], epochs: LeaderEpochCache
) -> None:
    """Write the segment anew, up to the name by which the new file counts."""
    file = files.open(segment.path + CLEANED_SUFFIX, write=True)
    file.truncate(0)
    position = written = 0
    epoch = max(epochs.epoch_at(segment.base_offset), 0)
    for one in damage:
        written = _copy(segment.file, position, one.start.position, file, written)
        epoch = _epoch_before(segment, one, epochs, epoch)
        for first in range(one.start.offset, one.end.offset, _LONGEST):
            batch = empty_batch(first, min(first + _LONGEST, one.end.offset), epoch)
            write_all(file, written, batch)
            written += len(batch)
        position = one.end.position
    _copy(segment.file, position, segment.size, file, written)
    file.sync()
    files.rename(segment.path + CLEANED_SUFFIX, segment.path + SWAP_SUFFIX)
    files.sync_directory(segment.directory)


def _epoch_before(
    segment: LogSegment, damaged: DamagedRange, epochs: LeaderEpochCache, fallback: int
) -> int:
    """The leader epoch of the damaged offsets: the checkpoint's, or that of the batch before."""
    known = epochs.epoch_at(damaged.start.offset)
    if known >= 0:
        return known
    for placed in segment.batches_at(Place(segment.base_offset, 0), damaged.start.position):
        fallback = placed.header.partition_leader_epoch
    return fallback


def _copy(source: File, start: int, end: int, target: File, position: int) -> int:
    """Copy bytes; where the next ones go."""
    while start < end:
        data = source.read_at(start, min(_CHUNK, end - start))
        write_all(target, position, data)
        start += len(data)
        position += len(data)
    return position
