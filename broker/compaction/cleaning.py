"""One compaction of one log: two passes, segment by segment. For a thread.

Hidden batches, of delayed records and queues, are no keyed data: they stay as they are. So does the
batch behind one, which it may announce by its checksum, and one beyond the bounds of
:mod:`qbus.records.bounds`. The last batch of a new segment reaches to
the segment's end, though it may be an empty one: so a lost end of a file still shows.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from qbus.errors import OversizedBatch
from qbus.records import BatchHeader, CorruptBatch, read_header
from qbus.records.compact import (
    HORIZON,
    OffsetMap,
    Sifted,
    Sifter,
    emptied,
    horizon_of,
    rebased,
    with_records,
)
from qbus.records.compression import compress
from qbus.records.control import empty_batch, read_marker
from qbus.records.decode import bounded_records_of

from ..log import Log, LogConfig
from ..log.indexes import MaxTimestamp
from ..log.replacement import SegmentReplacement
from ..log.rewriting import LogRewriter, NewestBatches
from ..log.scan import BadBatch
from ..log.segment import LogSegment
from .plan import Dirt, grouped
from .reading import Pace, read_batches
from .transactions import Transactions

_log = logging.getLogger(__name__)


class CleaningAbandonedError(Exception):
    """The log changed meanwhile: records were cut off, repaired or deleted. Later it may work."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """Memory of a compaction: bytes for keys' offsets, the share of it that is used, for IO."""

    offsets: int
    load: float
    io: int


@dataclass(slots=True)
class CleaningResult:
    """What a compaction did. ``end_offset``: the log is compacted before it.

    Bytes and records are of the segments that were written anew, before and after.
    """

    end_offset: int
    keys: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    segments_before: int = 0
    segments_after: int = 0


def clean(
    log: Log,
    dirt: Dirt,
    *,
    buffers: Buffers,
    now_ms: int,
    pace: Pace,
) -> CleaningResult:
    """Compact ``log`` as far as the memory allows in one pass.

    Raises CleaningAbandonedError, ApiError, OSError; BadBatch when the log is damaged, which is
    reported to it; and what ``pace`` does.
    """
    return _Cleaning(log, buffers, now_ms, pace).run(dirt)


class _Cleaning:
    def __init__(self, log: Log, buffers: Buffers, now_ms: int, pace: Pace) -> None:
        self._rewriter: LogRewriter = log.rewriter
        self._config: LogConfig = log.config
        self._buffers = buffers
        self._now_ms = now_ms
        self._pace = pace
        self._rewrites = log.rewriter.rewrites
        self._segments = log.rewriter.segments
        self._follows_hidden = False  # whether a hidden batch ends what was written last

    def run(self, dirt: Dirt) -> CleaningResult:
        offsets = self._learn(dirt)
        end = offsets.latest + 1 if offsets.is_full else dirt.end_offset
        result = CleaningResult(end, keys=len(offsets))
        first = self._segments[0].base_offset if self._segments else end
        groups = grouped(self._segments, end, self._config)
        # The last segment is written anew to its end, though perhaps not all of it was learned.
        written_end = groups[-1][-1].end_offset if groups else end
        transactions = Transactions(self._rewriter.aborted_between(first, written_end))
        newest = self._rewriter.newest_batches()
        for group in groups:
            sifter = Sifter(
                offsets, newest.last_offsets, self._now_ms, self._config.index_interval_bytes
            )
            self._write(group, sifter, newest, transactions)
            result.bytes_read += sum(segment.size for segment in group)
            result.bytes_written += sifter.position
            result.records_read += sifter.records
            result.records_kept += sifter.kept
            result.segments_before += len(group)
            result.segments_after += 1
        return result

    # The first pass

    def _learn(self, dirt: Dirt) -> OffsetMap:
        """The newest offsets of the keys in the dirty part, as many as there is room for."""
        start, end = dirt.first_offset, dirt.end_offset
        offsets = OffsetMap(self._buffers.offsets, max(end - start, 1), self._buffers.load)
        transactions = Transactions(self._rewriter.aborted_between(start, end))
        for segment in self._segments:
            if segment.end_offset <= start:
                continue
            if segment.base_offset >= end or offsets.is_full:
                break
            self._learn_segment(segment, offsets, start, transactions)
        return offsets

    def _learn_segment(
        self, segment: LogSegment, offsets: OffsetMap, start: int, transactions: Transactions
    ) -> None:
        def run(data: bytes, position: int, offset: int) -> tuple[int, int]:
            return offsets.take_run(data, position, offset, start)

        with self._reporting(segment):
            for header, batch in read_batches(segment, self._buffers.io, run, self._pace):
                if offsets.is_full:
                    return
                if header.is_control:
                    transactions.follow(header, batch)
                elif not (header.is_transactional and transactions.is_aborted(header)):
                    _learn_batch(header, batch, offsets, start)
                if not offsets.is_full:
                    offsets.latest = max(offsets.latest, header.last_offset)

    @contextmanager
    def _reporting(self, segment: LogSegment) -> Iterator[None]:
        """Report a damaged batch of ``segment``, unless the log has changed meanwhile.

        A segment that is known to be damaged is not read: where its end is missing, what is left
        looks whole.
        """
        try:
            if segment.damage:
                known = segment.damage[0]
                raise BadBatch(known.start.position, known.start.offset, known.problem)
            yield
        except (BadBatch, CorruptBatch, OSError) as error:
            if self._rewriter.rewrites != self._rewrites or not self._rewriter.has(segment):
                raise CleaningAbandonedError(f"{segment.path} has changed") from error
            if isinstance(error, OSError):
                raise
            bad = error
            if not isinstance(bad, BadBatch):  # its sum is right, and its records are nonsense
                bad = BadBatch(-1, segment.base_offset, str(error))
            self._rewriter.report(segment, bad)
            raise bad from error

    # The second pass

    def _write(
        self,
        group: Sequence[LogSegment],
        sifter: Sifter,
        newest: NewestBatches,
        transactions: Transactions,
    ) -> None:
        replacement = self._rewriter.replace(group, self._rewrites)
        try:
            writer = _GroupWriter(
                replacement,
                sifter,
                self._config,
                self._now_ms,
                newest,
                transactions,
                follows_hidden=self._follows_hidden,
            )
            for segment in group:
                self._sift_segment(segment, writer)
            self._follows_hidden = writer.follows_hidden
            end = group[-1].end_offset
            if sifter.end_offset < end:
                batch = empty_batch(end - 1, end, self._rewriter.epoch_at(end - 1))
                writer.add(batch, read_header(batch))
            self._pace(writer.flush())
            greatest = MaxTimestamp(sifter.max_timestamp, sifter.max_timestamp_offset)
            ended = transactions.aborted_at
            if not replacement.commit(greatest, sifter.first_timestamp, ended):
                raise CleaningAbandonedError(f"{group[0].path} has changed")
        except BaseException:
            replacement.discard()
            raise
        self._rewrites += 1

    def _sift_segment(self, segment: LogSegment, writer: "_GroupWriter") -> None:
        with self._reporting(segment):
            for header, batch in read_batches(segment, self._buffers.io, writer.run, self._pace):
                writer.take(header, batch)
                if len(writer.sifter.out) >= self._buffers.io:
                    self._pace(writer.flush())


def _learn_batch(header: BatchHeader, batch: bytes, offsets: OffsetMap, start: int) -> None:
    """Learn the keys of a batch; not of an oversized one, which is kept. Raises CorruptBatch."""
    with suppress(OversizedBatch):
        payload = bounded_records_of(batch, header)
        if payload is not None:
            offsets.take(payload, header, start)


class _GroupWriter:
    """Writes what is left of the batches of a group of segments."""

    def __init__(
        self,
        replacement: SegmentReplacement,
        sifter: Sifter,
        config: LogConfig,
        now_ms: int,
        newest: NewestBatches,
        transactions: Transactions,
        *,
        follows_hidden: bool,
    ) -> None:
        """``follows_hidden``: the segment before these ends with a hidden batch."""
        self.sifter = sifter
        self._replacement = replacement
        self._now_ms = now_ms
        self._horizon = now_ms + config.delete_retention_ms
        self._newest = newest
        self._transactions = transactions
        self.follows_hidden = follows_hidden

    def run(self, data: bytes, position: int, offset: int) -> tuple[int, int]:
        """Take batches, unless the next one is to be looked at alone."""
        if self.follows_hidden or self._replacement.ends_hidden:
            return position, offset
        if len(self.sifter.out) >= len(data) > 0:
            self.flush()
        return self.sifter.sift_run(data, position, offset)

    def take(self, header: BatchHeader, batch: bytes) -> None:
        """Add what is left of a batch. Raises CorruptBatch."""
        if header.is_hidden:
            self._transactions.follow(header, batch)
            self.add(batch, header)
            self.follows_hidden = True
            return
        if self.follows_hidden:
            self.follows_hidden = False
            self._transactions.follow(header, batch)
            self._keep(header, batch)
        elif header.is_control:
            self._take_marker(header, batch)
        elif header.is_transactional and self._transactions.is_aborted(header):
            self.sifter.records += header.records_count
            self._keep_place(header)
        else:
            self._take_records(header, batch)

    def add(self, batch: bytes | bytearray, header: BatchHeader) -> None:
        """Add a whole batch."""
        sifter = self.sifter
        if header.is_hidden or self._replacement.ends_hidden:
            self._replacement.hidden(header.base_offset, sifter.position, hidden=header.is_hidden)
        sifter.add(batch, header)

    def flush(self) -> int:
        """Write what was added, with its index entries; how many bytes."""
        sifter, replacement = self.sifter, self._replacement
        made, points = sifter.out, sifter.points
        sifter.out, sifter.points = bytearray(), []
        if made:
            replacement.write(made)
        for position, last_offset, timestamp, timestamp_offset in points:
            replacement.index(position, last_offset, MaxTimestamp(timestamp, timestamp_offset))
        return len(made)

    def _take_marker(self, header: BatchHeader, batch: bytes) -> None:
        marker = read_marker(batch)
        if marker is None:
            if header.records_count:  # of a type that is not known
                self.add(batch, header)
            else:
                self._keep_place(header)
            return
        horizon = horizon_of(header)
        begins_epoch = (header.producer_id, header.producer_epoch) in self._newest.epochs
        if self._transactions.has_data(header, committed=marker.is_commit):
            self.add(batch, header)
        elif horizon is None:
            payload = bounded_records_of(batch, header)
            assert payload is not None
            self._add_with_horizon(
                header, Sifted(bytes(payload), header.records_count, header.max_timestamp, 0)
            )
        elif begins_epoch or self._now_ms < horizon:
            self.add(batch, header)
        else:
            self._keep_place(header)

    def _take_records(self, header: BatchHeader, batch: bytes) -> None:
        sifter = self.sifter
        try:
            payload = bounded_records_of(batch, header)
            if payload is None:
                self._keep_place(header)
                return
            sifted = sifter.sift(payload, header)
        except OversizedBatch as error:
            where = self._replacement.path, header.base_offset
            _log.warning("%s: keeps the batch at offset %d as it is: %s", *where, error)
            self._keep(header, batch)
            return
        sifter.records += header.records_count
        sifter.kept += sifted.kept
        if not sifted.kept:
            self._keep_place(header)
        elif sifted.tombstones and horizon_of(header) is None:
            self._add_with_horizon(header, sifted)
        elif sifted.kept == header.records_count:
            self.add(batch, header)
        else:
            self._add_records(header, sifted, sifted.records)

    def _add_with_horizon(self, header: BatchHeader, sifted: Sifted) -> None:
        records = rebased(sifted.records, header, self._horizon)
        changed = header._replace(
            attributes=header.attributes | HORIZON, base_timestamp=self._horizon
        )
        self._add_records(changed, sifted, records)

    def _add_records(self, header: BatchHeader, sifted: Sifted, records: bytes) -> None:
        codec = header.compression
        content = compress(codec, records) if codec else records
        self.add(with_records(header, sifted, content), header)

    def _keep(self, header: BatchHeader, batch: bytes) -> None:
        self.sifter.records += header.records_count
        self.sifter.kept += header.records_count
        self.add(batch, header)

    def _keep_place(self, header: BatchHeader) -> None:
        """Keep an empty batch in the place of one that is the newest of its producer."""
        if header.has_producer_id and header.last_offset in self._newest.last_offsets:
            self.add(emptied(header), header)
