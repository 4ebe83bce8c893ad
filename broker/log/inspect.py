"""Reading a log's files to show what is in them, and everything that is wrong with them.

Nothing is changed, and nothing is expected to be in order: where a batch is damaged, reading goes
on with the next good one. No broker is needed, nor disturbed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Generic, TypeVar

from qbus.records import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, read_header
from qbus.records.control import read_marker

from .checkpoints import decode_epochs, decode_partition_metadata, read_offsets
from .controls import Fold, MakeFold, decode_controls
from .damage import next_batch
from .epochs import EpochStart
from .file_cache import FileCache
from .files import File, Files, OsFiles, read_file
from .indexes import ControlIndex, OffsetIndex, TimeIndex
from .manifest import Manifest, SegmentFiles, decode_manifest
from .names import (
    CONTROL_INDEX_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TopicPartition,
    numbered,
    parse_numbered,
)
from .producers import SnapshotEntry
from .snapshots import decode_snapshot
from .transactions import AbortedTransaction, read_aborted

Entry = TypeVar("Entry")


class ProblemKind(StrEnum):
    """What can be wrong."""

    BAD_HEADER = "bad header"
    BAD_CRC = "bad CRC"
    BAD_COUNT = "bad count"
    GAP = "gap"
    OVERLAP = "overlap"
    TRUNCATED = "truncated"
    NOT_ASCENDING = "not ascending"
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and a sentence about it."""

    kind: ProblemKind
    message: str


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What is at ``position`` of a ``.log`` file: a batch, or ``size`` bytes that are none."""

    position: int
    size: int
    header: BatchHeader | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetEntryReport:
    """An entry of an ``.index``: the batch at ``position`` ends with ``offset``."""

    offset: int
    position: int
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class TimeEntryReport:
    """An entry of a ``.timeindex``: no record up to ``offset`` is later than ``timestamp``."""

    timestamp: int
    offset: int
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundaryReport:
    """An entry of a ``.controlindex``: at ``position`` a run of hidden batches begins, or ends."""

    offset: int
    position: int
    begins_hidden: bool
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexReport(Generic[Entry]):
    """All entries of an index file, and what is wrong with the file as a whole."""

    entries: list[Entry]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class AbortedReport:
    """An entry of a ``.txnindex``."""

    entry: AbortedTransaction
    problems: tuple[Problem, ...] = ()


def inspect_log(
    path: str, files: Files | None = None, *, gaps: bool = False
) -> Iterator[BatchReport]:
    """Every batch of a ``.log`` file, in order, and what lies between them if anything does.

    The first offset must be the one in the file's name; with ``gaps``, offsets may be left out, and
    so may records: mirrors have their sources' gaps. Raises OSError, and ValueError when the
    name is not a segment's.
    """
    file = (files or OsFiles()).open(path)
    base = _base_offset(path)
    position, end, expected = 0, file.size(), base
    while position < end:
        report = _batch_at(file, position, end, expected, base, gaps=gaps)
        yield report
        position += report.size
        if report.header is not None:
            expected = report.header.last_offset + 1


def _batch_at(
    file: File, position: int, end: int, expected: int, base: int, *, gaps: bool
) -> BatchReport:
    try:
        header = read_header(file.read_at(position, HEADER_SIZE))
    except CorruptBatch as bad:
        kind = ProblemKind.TRUNCATED if end - position < HEADER_SIZE else ProblemKind.BAD_HEADER
        return _damage(file, position, end, base, Problem(kind, str(bad)))
    if position + header.size > end:
        message = f"a batch of {header.size} bytes has only {end - position}"
        return _damage(file, position, end, base, Problem(ProblemKind.TRUNCATED, message))
    problems = [*_order_problems(header, expected, gaps=gaps)]
    try:
        check_crc(file.read_at(position, header.size), header)
    except CorruptBatch as bad:
        problems.append(Problem(ProblemKind.BAD_CRC, str(bad)))
        if not _batch_follows(file, position + header.size, end):
            return _damage(file, position, end, base, problems[-1])
    return BatchReport(position, header.size, header, tuple(problems))


def _order_problems(header: BatchHeader, expected: int, *, gaps: bool) -> Iterator[Problem]:
    base, records = header.base_offset, header.last_offset_delta + 1
    if base < expected or (base > expected and not gaps):
        kind = ProblemKind.GAP if base > expected else ProblemKind.OVERLAP
        yield Problem(kind, f"the batch begins with offset {base}, not {expected}")
    least = 0 if gaps or not header.records_count else records
    if not least <= header.records_count <= records:
        yield Problem(
            ProblemKind.BAD_COUNT,
            f"{header.records_count} records, last offset delta {header.last_offset_delta}",
        )


def _batch_follows(file: File, position: int, end: int) -> bool:
    """Whether a batch with a bad sum has the length it says: another, or the end, comes after."""
    if position >= end:
        return position == end
    try:
        read_header(file.read_at(position, HEADER_SIZE))
    except CorruptBatch:
        return False
    return True


def _damage(file: File, position: int, end: int, base: int, problem: Problem) -> BatchReport:
    good = next_batch(file, position, end, base - 1)
    return BatchReport(position, (end if good is None else good) - position, None, (problem,))


def inspect_offset_index(path: str, files: Files | None = None) -> IndexReport[OffsetEntryReport]:
    """Every entry of an ``.index``, checked against the ``.log`` beside it if there is one.

    Raises OSError, ValueError.
    """
    files = files or OsFiles()
    base = _base_offset(path)
    log_path = _log_beside(path, base)
    log = files.open(log_path) if files.exists(log_path) else None
    entries = OffsetIndex(FileCache(files), path, base).entries
    reports: list[OffsetEntryReport] = []
    last = (-1, -1)
    for entry in entries.all():
        problems = list(_order(entry, last, strict_second=True))
        offset, position = base + entry[0], entry[1]
        if log is not None:
            problems += _offset_mismatch(log, offset, position)
        reports.append(OffsetEntryReport(offset, position, tuple(problems)))
        last = entry
    return IndexReport(reports, _tail(files.size(path), len(reports), entries.width))


def _offset_mismatch(log: File, offset: int, position: int) -> Iterator[Problem]:
    try:
        header = read_header(log.read_at(position, HEADER_SIZE))
    except (CorruptBatch, OSError) as bad:
        yield Problem(ProblemKind.MISMATCH, f"there is no batch at {position}: {bad}")
        return
    if header.last_offset != offset:
        message = f"the batch at {position} ends with offset {header.last_offset}"
        yield Problem(ProblemKind.MISMATCH, message)


def inspect_time_index(path: str, files: Files | None = None) -> IndexReport[TimeEntryReport]:
    """Every entry of a ``.timeindex``, checked against the ``.log`` beside it if there is one.

    Raises OSError, ValueError.
    """
    files = files or OsFiles()
    base = _base_offset(path)
    greatest = _greatest_timestamps(path, base, files)
    entries = TimeIndex(FileCache(files), path, base).entries
    reports: list[TimeEntryReport] = []
    last = (-1, -1)
    for entry in entries.all():
        problems = list(_order(entry, last, strict_second=False))
        timestamp, offset = entry[0], base + entry[1]
        if greatest is not None and greatest.get(offset) != timestamp:
            message = f"the greatest timestamp up to offset {offset} is {greatest.get(offset)}"
            problems.append(Problem(ProblemKind.MISMATCH, message))
        reports.append(TimeEntryReport(timestamp, offset, tuple(problems)))
        last = entry
    return IndexReport(reports, _tail(files.size(path), len(reports), entries.width))


def _greatest_timestamps(path: str, base: int, files: Files) -> dict[int, int] | None:
    """The greatest timestamp up to each batch's last offset."""
    log_path = _log_beside(path, base)
    if not files.exists(log_path):
        return None
    greatest: dict[int, int] = {}
    highest = -1
    for report in inspect_log(log_path, files):
        if report.header is not None:
            highest = max(highest, report.header.max_timestamp)
            greatest[report.header.last_offset] = highest
    return greatest


def inspect_control_index(path: str, files: Files | None = None) -> IndexReport[BoundaryReport]:
    """Every entry of a ``.controlindex``, checked against the ``.log`` beside it if there is one.

    Raises OSError, ValueError.
    """
    files = files or OsFiles()
    base = _base_offset(path)
    log_path = _log_beside(path, base)
    expected = list(_boundaries(log_path, files)) if files.exists(log_path) else None
    entries = ControlIndex(FileCache(files), path, base).entries
    reports: list[BoundaryReport] = []
    last = (-1, -1)
    for number, entry in enumerate(entries.all()):
        offset, position = base + entry[0], entry[1]
        problems = list(_order(entry, last, strict_second=True))
        if expected is not None and (offset, position) not in expected[number : number + 1]:
            message = "no run of hidden batches begins or ends there"
            problems.append(Problem(ProblemKind.MISMATCH, message))
        reports.append(BoundaryReport(offset, position, number % 2 == 0, tuple(problems)))
        last = entry
    tail = _tail(files.size(path), len(reports), entries.width)
    if expected is not None and len(expected) > len(reports):
        message = f"{len(expected) - len(reports)} more runs begin or end in the log"
        tail = (*tail, Problem(ProblemKind.MISMATCH, message))
    return IndexReport(reports, tail)


def _boundaries(log_path: str, files: Files) -> Iterator[tuple[int, int]]:
    """Offset and position where runs of hidden batches begin and end, in turn."""
    is_in_run = False
    for report in inspect_log(log_path, files, gaps=True):
        header = report.header
        if header is not None and header.is_hidden is not is_in_run:
            is_in_run = header.is_hidden
            yield header.base_offset, report.position


def inspect_controls(path: str, make_fold: MakeFold, files: Files | None = None) -> Fold:
    """What a ``.control`` snapshot says. Raises OSError, BadSnapshot."""
    return decode_controls(read_file(files or OsFiles(), path), make_fold)


def inspect_transaction_index(path: str, files: Files | None = None) -> IndexReport[AbortedReport]:
    """Every entry of a ``.txnindex``, checked against the ``.log`` beside it if there is one.

    Raises OSError, ValueError.
    """
    files = files or OsFiles()
    base = _base_offset(path)
    log_path = _log_beside(path, base)
    markers = set(_aborting_markers(log_path, files)) if files.exists(log_path) else None
    entries, problem = read_aborted(read_file(files, path))
    reports: list[AbortedReport] = []
    for entry in entries:
        problems: tuple[Problem, ...] = ()
        if markers is not None and (entry.producer_id, entry.last_offset) not in markers:
            message = f"no marker at offset {entry.last_offset} aborts its producer's transaction"
            problems = (Problem(ProblemKind.MISMATCH, message),)
        reports.append(AbortedReport(entry, problems))
    whole = (Problem(ProblemKind.TRUNCATED, problem),) if problem else ()
    return IndexReport(reports, whole)


def _aborting_markers(log_path: str, files: Files) -> Iterator[tuple[int, int]]:
    """Producer id and offset of each marker that aborts a transaction."""
    file = files.open(log_path)
    for report in inspect_log(log_path, files, gaps=True):
        header = report.header
        if header is not None and header.is_marker:
            try:
                marker = read_marker(file.read_at(report.position, report.size))
            except CorruptBatch:
                continue
            if marker is not None and not marker.is_commit:
                yield header.producer_id, header.base_offset


def inspect_snapshot(path: str, files: Files | None = None) -> list[SnapshotEntry]:
    """Every entry of a ``.snapshot``. Raises OSError, BadSnapshot."""
    return decode_snapshot(read_file(files or OsFiles(), path))


def inspect_manifest(path: str, files: Files | None = None) -> Manifest:
    """The content of a ``log-manifest``. Raises OSError, BadManifest."""
    where = PurePath(path)
    return decode_manifest(read_file(files or OsFiles(), path), where.parent.name)


def check_listed(path: str, listed: SegmentFiles, files: Files | None = None) -> list[Problem]:
    """Which files of a segment are shorter than the ``log-manifest`` beside them says."""
    files = files or OsFiles()
    problems: list[Problem] = []
    for suffix, size in (
        (LOG_SUFFIX, listed.log_size),
        (OFFSET_INDEX_SUFFIX, listed.offsets_size),
        (TIME_INDEX_SUFFIX, listed.times_size),
        (CONTROL_INDEX_SUFFIX, listed.controls_size),
        (TRANSACTION_INDEX_SUFFIX, listed.aborted_size),
    ):
        name = numbered(listed.base_offset, suffix)
        beside = str(PurePath(path).with_name(name))
        found = files.size(beside) if files.exists(beside) else 0
        if found < size:
            message = f"{name} has {found} bytes instead of {size}"
            problems.append(Problem(ProblemKind.MISMATCH, message))
    return problems


def inspect_epochs(path: str, files: Files | None = None) -> list[EpochStart]:
    """The entries of a ``leader-epoch-checkpoint``. Raises OSError, BadCheckpoint."""
    return decode_epochs(read_file(files or OsFiles(), path))


def inspect_offsets(path: str, files: Files | None = None) -> dict[TopicPartition, int]:
    """The offsets in a data directory's checkpoint. Raises OSError, BadCheckpoint."""
    return read_offsets(files or OsFiles(), path)


def inspect_partition_metadata(path: str, files: Files | None = None) -> bytes:
    """The topic id in a ``partition.metadata``: 16 bytes. Raises OSError, BadCheckpoint."""
    return decode_partition_metadata(read_file(files or OsFiles(), path))


def _order(
    entry: tuple[int, int], last: tuple[int, int], *, strict_second: bool
) -> Iterator[Problem]:
    if entry[0] <= last[0] or entry[1] < last[1] + strict_second:
        yield Problem(ProblemKind.NOT_ASCENDING, "the entry is not above the one before it")


def _tail(size: int, count: int, width: int) -> tuple[Problem, ...]:
    rest = size - count * width
    message = f"{rest} bytes at the end are no entry"
    return (Problem(ProblemKind.TRUNCATED, message),) if rest else ()


def _log_beside(path: str, base: int) -> str:
    return str(PurePath(path).with_name(numbered(base, LOG_SUFFIX)))


def _base_offset(path: str) -> int:
    number = parse_numbered(PurePath(path).name)
    if number is None:
        raise ValueError(f"{path} is not named for an offset")
    return number[0]
