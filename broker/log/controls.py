"""What a log's hidden batches add up to, kept while it is appended to and found again afterwards.

The sum is a *fold*: a pure function of the hidden batches, in their order. Whoever uses hidden
batches (delayed records and queues do) brings his own; the log feeds it, writes it down now and
then, and after a restart or a truncation loads what was written and feeds it the rest.

File format (``.control``, ours), big-endian; the name is the offset before which all is accounted
for:

========= ============================================================
version   int16, 1
CRC       uint32, CRC-32C of all that follows
content   the fold's own
========= ============================================================

Crash policy: that of the producers' snapshots. One that does not check is removed, and the one
before it is used; without any, the fold begins with the log's first hidden batch.
"""

import logging
import struct
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from qbus.records import HEADER_SIZE, BatchHeader, Buffer, CorruptBatch, crc32c, read_header
from qbus.records.control import (
    Announcement,
    ControlRecord,
    ControlType,
    decode_announcement,
    iter_control,
    read_marker,
)

from .files import Files
from .names import CONTROL_SNAPSHOT_SUFFIX
from .scan import BadBatch, Place
from .segment import LogSegment
from .snapshots import BadSnapshot, SnapshotFiles

_logger = logging.getLogger(__name__)

_VERSION: Final = 1
_HEADER: Final = struct.Struct(">hI")
_MUCH: Final = 8 << 20  # bytes of hidden batches that are worth a snapshot

F = TypeVar("F")


class Fold(Protocol):
    """What hidden batches add up to."""

    @property
    def needed_from(self) -> int | None:
        """Retention must not take what lies at this offset or behind it; None: it may take all."""

    @property
    def done_before(self) -> int | None:
        """Everybody who takes records is done with all before this offset; None: nobody takes any.

        It concerns topics with ``qbus.queue.retention=acknowledged``.
        """

    @property
    def told_from(self) -> int | None:
        """Retention must leave what lies at this offset or behind it; None: it may take all.

        Else a replica that begins with what is left would not know of everybody who takes records.
        """

    def part(self, kind: type[F]) -> F | None:
        """The fold itself, or that part of it, which is of this class; None: it has none."""

    def delayed(self, header: BatchHeader, batch: Buffer) -> None:
        """A batch of delayed records is in the log. Raises CorruptBatch."""

    def control(self, record: ControlRecord) -> None:
        """A control record is in the log, not a DELIVERED one. Raises CorruptBatch."""

    def delivered(self, announcement: Announcement) -> None:
        """The batch that was announced is in the log."""

    @property
    def awaits_markers(self) -> bool:
        """Whether hidden batches are of transactions that :meth:`ended` has not ended yet."""

    def ended(self, producer_id: int, *, is_commit: bool) -> None:
        """A producer's transaction was ended, with all that its hidden batches say."""

    def succeed(self, former: "Fold") -> None:
        """Take over what still holds of ``former``, after which retention took hidden batches.

        ``former`` is of the same class; this one has seen nothing yet.
        """

    def encode(self) -> Sequence[Buffer]:
        """All that is to be known, for :meth:`restore`."""

    def restore(self, content: Buffer) -> None:
        """Take over what :meth:`encode` gave. Raises ValueError, leaving the fold as it was."""


class NoFold:
    """Nobody's fold: of hidden batches it only knows that they are there."""

    needed_from: int | None = None
    done_before: int | None = None
    awaits_markers: bool = False
    told_from: int | None = None

    def part(self, kind: type[F]) -> F | None:
        """Itself, at most."""
        return self if isinstance(self, kind) else None

    def delayed(self, header: BatchHeader, batch: Buffer) -> None:
        """Know nothing."""

    def control(self, record: ControlRecord) -> None:
        """Know nothing."""

    def delivered(self, announcement: Announcement) -> None:
        """Know nothing."""

    def ended(self, producer_id: int, *, is_commit: bool) -> None:
        """Know nothing."""

    def succeed(self, former: Fold) -> None:
        """Take over nothing."""

    def encode(self) -> Sequence[Buffer]:
        """Nothing."""
        return ()

    def restore(self, content: Buffer) -> None:
        """Take over nothing."""


MakeFold = Callable[[], Fold]


class Controls:
    """One log's fold, and what it waits for. Changed under the log's lock.

    ``announced``: what is delivered if the next batch is the one that was announced.
    """

    __slots__ = ("_saved_bytes", "announced", "fold", "unsaved_bytes")

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.announced: Announcement | None = None
        self.unsaved_bytes = 0  # of hidden batches since the last snapshot
        self._saved_bytes = 0  # of that snapshot

    def take(self, header: BatchHeader, batch: Buffer) -> None:
        """The log's next batch is ``batch``: a hidden one, or one after an announcement."""
        if self.announced is not None:
            self.followed_by(header)
        if header.is_hidden:
            self.unsaved_bytes += header.size
            try:
                self._take_hidden(header, batch)
            except CorruptBatch as bad:  # its CRC is right: so it is on every replica
                where = header.base_offset
                _logger.error("hidden batch at offset %d is ignored: %s", where, bad)  # noqa: TRY400

    def _take_hidden(self, header: BatchHeader, batch: Buffer) -> None:
        if header.is_delayed:
            self.fold.delayed(header, batch)
            return
        for record in iter_control(batch, header):
            if record.type is ControlType.DELIVERED:
                self.announced = decode_announcement(record.value)
            else:
                self.fold.control(record)

    def followed_by(self, header: BatchHeader) -> None:
        """The batch after an announcement has this header: it is the announced one, or not."""
        announced, self.announced = self.announced, None
        if (
            announced is not None
            and not header.is_hidden
            and (header.crc, header.records_count) == announced[:2]
        ):
            self.fold.delivered(announced)

    def is_due(self, *, full: bool) -> bool:
        """Whether a snapshot is worth its cost, or the last one for long (``full``)."""
        least = 1 if full else max(_MUCH, self._saved_bytes)
        return self.announced is None and self.unsaved_bytes >= least

    def encode(self) -> list[Buffer]:
        """The parts of a snapshot file. What is announced is not in it: see :meth:`is_due`."""
        self.unsaved_bytes = 0
        content = self.fold.encode()
        self._saved_bytes = sum(map(len, content))
        crc = 0
        for part in content:
            crc = crc32c(part, crc)
        return [_HEADER.pack(_VERSION, crc), *content]


def control_snapshots(files: Files, directory: str) -> SnapshotFiles:
    """The ``.control`` files of the log in ``directory``."""
    return SnapshotFiles(files, directory, CONTROL_SNAPSHOT_SUFFIX)


def load_controls(
    snapshots: SnapshotFiles, segments: Sequence[LogSegment], make_fold: MakeFold
) -> Controls:
    """The fold of a log: the newest good snapshot, then the hidden batches after it.

    Raises OSError, BadBatch.
    """

    def decode(data: bytes) -> Fold:
        return decode_controls(data, make_fold)

    found = snapshots.newest_good(segments[-1].end_offset, decode)
    start, fold = segments[0].base_offset, make_fold()
    if found is not None and found[0] >= start:
        start, fold = found
    elif found is not None:  # what came between the two is gone
        fold.succeed(found[1])
    controls = Controls(fold)
    for segment in segments:
        if segment.end_offset > start or controls.announced is not None:
            _replay(controls, segment, start)
    return controls


def decode_controls(data: bytes, make_fold: MakeFold) -> Fold:
    """The fold that a snapshot file says. Raises BadSnapshot."""
    if len(data) < _HEADER.size:
        raise BadSnapshot(f"{len(data)} bytes are too few")
    version, crc = _HEADER.unpack_from(data)
    content = memoryview(data)[_HEADER.size :]
    if version != _VERSION:
        raise BadSnapshot(f"unknown version {version}")
    if crc32c(content) != crc:
        raise BadSnapshot("the CRC does not match")
    fold = make_fold()
    try:
        fold.restore(content)
    except ValueError as bad:
        raise BadSnapshot(str(bad)) from bad
    return fold


def _replay(controls: Controls, segment: LogSegment, start: int) -> None:
    if controls.announced is not None and segment.size:
        _follow(controls, segment, Place(segment.base_offset, 0))
    index = segment.indexes.controls
    first = max(index.at(start), 0) & ~1
    reached = Place(segment.base_offset, 0)
    for number in range(first, len(index), 2):
        begin, end = index.boundary(number), index.boundary(number + 1)
        assert begin is not None
        _replay_markers(controls, segment, reached, begin.position, start)
        position = segment.size if end is None else end.position
        for placed in segment.batches_at(Place(*begin), position, crc=True):
            if placed.header.base_offset >= start:
                size = placed.header.size
                controls.take(placed.header, segment.file.read_at(placed.position, size))
        if controls.announced is not None and end is not None:
            _follow(controls, segment, Place(*end))
        reached = Place(*(end or segment.end))
    _replay_markers(controls, segment, reached, segment.size, start)


def _replay_markers(
    controls: Controls, segment: LogSegment, begin: Place, end: int, start: int
) -> None:
    """End the transactions that end between hidden batches, if any of them waits for that."""
    if not controls.fold.awaits_markers:
        return
    for placed in segment.batches_at(begin, end):
        header = placed.header
        if header.is_marker and header.base_offset >= start:
            marker = read_marker(segment.file.read_at(placed.position, header.size))
            if marker is not None:
                controls.fold.ended(header.producer_id, is_commit=marker.is_commit)


def _follow(controls: Controls, segment: LogSegment, place: Place) -> None:
    """Tell what came after an announcement; a damaged batch delivered nothing that can be read."""
    if segment.damaged_at(place.position, place.offset) is not None:
        controls.announced = None
        _logger.error(
            "%s: the batch of offset %d, which delivered records, is damaged: they are delivered"
            " again",
            segment.path,
            place.offset,
        )
        return
    try:
        header = read_header(segment.file.read_at(place.position, HEADER_SIZE))
    except CorruptBatch as bad:
        raise BadBatch(place.position, place.offset, str(bad), path=segment.path) from bad
    controls.followed_by(header)
