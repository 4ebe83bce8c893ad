"""Appending: from a produced batch to bytes at the end of the active segment.

From top to bottom: what a produced batch must be (Kafka's checks and error codes), when and how the
log begins a new segment, the appender itself, and the writer of batches that have their offsets
already. The records inside a batch are not looked at: the CRC says that they are as the producer
sent them, and decompressing them would cost more than all the rest.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.records import (
    BatchHeader,
    Buffer,
    CorruptBatch,
    check_crc,
    read_header,
    set_base_offset,
    set_log_append_time,
)
from qbus.records.control import Marker, marker_batch
from qbus.records.plain import plain_header

from .config import LogConfig
from .files import NO_DESCRIPTOR
from .flusher import LogFlusher
from .health import Corruption
from .producers import RetainedBatch, StoredPart, Verification, take_marker
from .scan import BadBatch
from .segment import MAX_RELATIVE_OFFSET, LogSegment, mark_jump
from .snapshots import encode_snapshot
from .state import LogState

_NO_TIMESTAMP: Final = -1
_MAGIC_AT: Final = 16
_OLD_MAGICS: Final = (0, 1)
_CODEC_BITS: Final = 0x07
_ZSTD: Final = 4
MAX_NAMED: Final = 1000
"""How many refused records of one batch an answer names."""


def check_batch(batch: bytearray | memoryview, config: LogConfig, now_ms: int) -> BatchHeader:
    """The header of ``batch``, which must be exactly one batch that a client may produce.

    Raises ApiError with the code that Kafka gives; POLICY_VIOLATION for any, if the log mirrors.
    """
    header = plain_header(batch)
    if header is None or config.qbus_mirror_source:
        header = _check_closely(batch, config)
    elif header.size > config.max_message_bytes or header.size > config.segment_bytes:
        _check_size(len(batch), config)
    if not config.uses_log_append_time:
        _check_timestamps(header, config, now_ms)
    return header


def _check_closely(batch: bytearray | memoryview, config: LogConfig) -> BatchHeader:
    header = read_only_batch(batch, config)
    _check_size(len(batch), config)
    check_crc(batch, header)
    check_fields(header)
    return header


def read_only_batch(batch: Buffer, config: LogConfig) -> BatchHeader:
    """The header of ``batch``, if it is one batch, and a producer may write to the log.

    Raises ApiError: POLICY_VIOLATION, INVALID_RECORD, CORRUPT_MESSAGE.
    """
    if config.qbus_mirror_source:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the topic is a mirror of the one in {config.qbus_mirror_source}:"
            " only a mirror writes to it",
        )
    if len(batch) > _MAGIC_AT and batch[_MAGIC_AT] in _OLD_MAGICS:
        raise ApiError(ErrorCode.INVALID_RECORD, "only record batches of magic 2 are taken")
    header = read_header(batch)
    if header.size > len(batch):
        raise CorruptBatch(f"batch of {header.size} bytes is cut at {len(batch)}")
    if header.size < len(batch):
        raise ApiError(ErrorCode.INVALID_RECORD, "more than one batch for a partition")
    return header


def _check_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {size} bytes exceeds max.message.bytes ({config.max_message_bytes})",
        )
    if size > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"batch of {size} bytes exceeds segment.bytes ({config.segment_bytes})",
        )


def check_fields(header: BatchHeader) -> None:
    """Check what the header of a producer's batch says.

    Raises ApiError: INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE.
    """
    if header.last_offset_delta < 0 or header.records_count != header.last_offset_delta + 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{header.records_count} records do not fit"
            f" last offset delta {header.last_offset_delta}",
        )
    if header.is_control:
        raise ApiError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.is_transactional and not header.has_producer_id:
        raise ApiError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer's id")
    if header.has_producer_id and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} gives sequence {header.base_sequence}"
            f" and epoch {header.producer_epoch}",
        )
    if header.attributes & _CODEC_BITS > _ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "unknown compression codec")


def _check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.is_log_append_time:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "producers may not claim LogAppendTime")
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    if header.max_timestamp > latest or header.base_timestamp > latest:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.max_timestamp} is too far ahead of the broker's, {now_ms}",
        )
    if _NO_TIMESTAMP < header.base_timestamp < earliest:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.base_timestamp} is too old for the broker's, {now_ms}",
        )


_logger = logging.getLogger(__name__)

_TIME_ENTRY: Final = 12


def must_roll(
    segment: LogSegment,
    config: LogConfig,
    *,
    size: int,
    last_offset: int,
    timestamp: int,
    now_ms: int,
) -> bool:
    """Whether a batch of ``size`` bytes, up to ``last_offset``, must go to a new segment.

    Kafka's conditions: the segment would exceed ``segment.bytes``, spans ``segment.ms`` of its
    records' time, has full indexes, or offsets that would not fit an index entry.
    """
    position = segment.size
    if not position:
        return False
    return (
        position + size > config.segment_bytes
        or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        or _age(segment, timestamp, now_ms) > _limit(segment, config)
        or _indexes_are_full(segment, config)
    )


def is_due(segment: LogSegment, config: LogConfig, now_ms: int) -> bool:
    """Whether a segment that nobody appends to has been open for ``segment.ms``.

    Records may carry timestamps of long ago: the segment's own age counts as well.
    """
    begun = max(segment.first_timestamp, segment.created_ms)
    return segment.size > 0 and now_ms - begun > _limit(segment, config)


def _limit(segment: LogSegment, config: LogConfig) -> int:
    """``segment.ms``, for each segment less a part of the jitter, so that not all roll at once."""
    jitter = min(config.segment_jitter_ms, config.segment_ms)
    return config.segment_ms - int(jitter * segment.jitter)


def _age(segment: LogSegment, timestamp: int, now_ms: int) -> int:
    first = segment.first_timestamp
    return timestamp - first if first >= 0 and timestamp >= 0 else now_ms - segment.created_ms


def _indexes_are_full(segment: LogSegment, config: LogConfig) -> bool:
    limit = config.segment_index_bytes // _TIME_ENTRY
    if segment.size // (config.index_interval_bytes + 1) < limit:
        return False  # there cannot be as many entries
    return len(segment.indexes.offsets.entries) >= limit


def roll(
    state: LogState, flusher: LogFlusher, now_ms: int, offset: int | None = None
) -> LogSegment:
    """Begin a new segment at the end of the log, or at ``offset`` if that is a jump away.

    Under the log's lock. Raises OSError when the file cannot be made: nothing has changed then.
    """
    full = state.active
    if offset is None:
        offset = full.end_offset
    else:
        mark_jump(state.cache.files, full, offset)
    new = LogSegment(
        state.cache, state.directory, offset, size=0, created_ms=now_ms, gaps=full.gaps
    )
    new.create()
    full.end = (offset, full.size)
    try:
        state.snapshots.write(offset, encode_snapshot(state.producers), sync=False)
        full.write_indexes(full=True)
        state.aborted.write(state.segments)
    except OSError as error:  # both can be made again from the log
        _logger.warning("%s: rolled without index or snapshot: %s", full.path, error)
    flusher.segment_is_full(full)
    state.segments = [*state.segments, new]
    return new


def begin_at(state: LogState, flusher: LogFlusher, offset: int) -> LogSegment:
    """Let a log that never had anything start with ``offset``; under its lock.

    Its one segment, which is empty, gets another name. Should a crash lose that, the segment still
    holds what is written to it, behind a gap. Raises OSError.
    """
    empty = state.active
    empty.indexes.remove()
    new = LogSegment(
        state.cache, state.directory, offset, size=0, created_ms=empty.created_ms, gaps=empty.gaps
    )
    state.cache.files.rename(empty.path, new.path)
    state.cache.forget(empty.path)
    new.hold_open()
    flusher.begun_anew()
    state.segments = [new]
    state.log_start_offset = offset
    return new


class RecordsRefusedError(ApiError):
    """A batch is refused for some of its records: their numbers in the batch, and why."""

    def __init__(self, errors: Sequence[tuple[int, str]]) -> None:
        number, why = errors[0]
        super().__init__(ErrorCode.INVALID_RECORD, f"record {number} of the batch: {why}")
        self.errors = list(errors[:MAX_NAMED])


class AppendInfo(NamedTuple):
    """What became of a batch. ``log_append_time``: -1 unless the broker stamps the records.

    A ``duplicate`` was stored before: the offsets are those it has had since. Of a mirror's batches
    some may be: ``size`` in bytes and ``records`` are of the others.
    """

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False
    size: int = 0
    records: int = 0


class Appender:
    """Writes batches to one log."""

    __slots__ = ("_flusher", "_ready", "_state")

    def __init__(self, state: LogState, flusher: LogFlusher) -> None:
        self._state = state
        self._flusher = flusher
        self._ready: LogSegment | None = None  # the active segment, once it was written to

    def append(
        self,
        batch: bytearray | memoryview,
        leader_epoch: int,
        verification: Verification | None = None,
    ) -> AppendInfo:
        """Append one batch; see :meth:`Log.append`."""
        state = self._state
        now_ms = state.clock.time_ms()
        header = check_batch(batch, state.config, now_ms)
        with state.lock:
            if state.refusal is not None or state.health.failure is not None:
                state.check_usable()
            if header.producer_id >= 0:
                known = state.producers.check(header)
                if known is not None:
                    return self._duplicate(known)
                if header.is_transactional:
                    state.producers.check_transaction(
                        header.producer_id,
                        header.producer_epoch,
                        header.base_sequence,
                        verification,
                    )
            return self._append(batch, header, leader_epoch, now_ms)

    def check_transaction(
        self, producer_id: int, epoch: int, sequence: int, verification: Verification | None
    ) -> None:
        """See :meth:`Log.check_transaction`."""
        producers = self._state.producers
        producers.check_epoch(producer_id, epoch)
        producers.check_transaction(producer_id, epoch, sequence, verification)

    def stored_part(self, header: BatchHeader) -> StoredPart | None:
        """See :meth:`Log.stored_part`."""
        state = self._state
        with state.lock:
            state.check_usable()
            return state.producers.stored_part(header) if header.producer_id >= 0 else None

    def _duplicate(self, known: RetainedBatch) -> AppendInfo:
        stamped = self._state.config.uses_log_append_time
        return AppendInfo(
            known.first_offset,
            known.last_offset,
            known.timestamp if stamped else _NO_TIMESTAMP,
            self._state.log_start_offset,
            duplicate=True,
        )

    def _append(
        self, batch: bytearray | memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        state = self._state
        stamped = state.config.uses_log_append_time
        timestamp = now_ms if stamped else header.max_timestamp
        new_epoch = leader_epoch != state.epochs.latest_epoch
        if new_epoch:
            self.check_epoch(leader_epoch)
        first = state.end_offset
        last = first + header.last_offset_delta
        segment = self.segment_for(len(batch), first, last, timestamp, now_ms)
        if state.controls.announced is not None:
            state.controls.followed_by(header)
        if stamped:
            set_log_append_time(batch, now_ms)
        set_base_offset(batch, first, leader_epoch)
        try:
            segment.append(batch, last, timestamp, state.config.index_interval_bytes)
        except OSError as error:
            raise self.write_failed(segment, error) from error
        if new_epoch:
            state.epochs.assign(leader_epoch, first)
        if header.producer_id >= 0:
            retained = RetainedBatch(
                header.last_sequence, last, header.last_offset_delta, timestamp
            )
            state.producers.add(header.producer_id, header.producer_epoch, retained, now_ms)
            if header.is_transactional:
                state.producers.begin(header.producer_id, first)
        append_time = now_ms if stamped else _NO_TIMESTAMP
        return AppendInfo(first, last, append_time, state.log_start_offset)

    def check_epoch(self, leader_epoch: int) -> None:
        """Raise ApiError FENCED_LEADER_EPOCH when the log has records of a newer one."""
        latest = self._state.epochs.latest_epoch
        if leader_epoch < latest:
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self._state.directory} has records of leader epoch {latest}",
            )

    def segment_for(
        self, size: int, first_offset: int, last_offset: int, timestamp: int, now_ms: int
    ) -> LogSegment:
        """The segment for batches of these offsets, a new one where it is due; under the lock.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        state = self._state
        segment = state.segments[-1]
        if segment is not self._ready:
            self._make_ready(segment)
        if must_roll(
            segment,
            state.config,
            size=size,
            last_offset=last_offset,
            timestamp=timestamp,
            now_ms=now_ms,
        ):
            segment = self.roll(now_ms)
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            segment = self.roll(now_ms, first_offset)
        return segment

    def begin_at(self, offset: int) -> None:
        """Let the log, which never had anything, start with ``offset``; under its lock.

        Until it is flushed, a crash may leave it as it was. Raises ApiError KAFKA_STORAGE_ERROR.
        """
        try:
            self._ready = begin_at(self._state, self._flusher, offset)
        except OSError as error:
            raise self._state.health.judge("begin a segment", error) from error

    def _make_ready(self, segment: LogSegment) -> None:
        while self._ready is not segment:
            try:
                segment.prepare_to_append()
                self._ready = segment
            except BadBatch as bad:
                self._pass_damage(segment, bad)
            except OSError as error:
                raise self._state.health.judge(f"open {segment.path}", error) from error

    def _pass_damage(self, segment: LogSegment, bad: BadBatch) -> None:
        """Append behind a bad batch; a log whose end is not known is refused from now on."""
        try:
            if self._state.note_damage(bad, is_locked=True):
                return
        except OSError as error:
            raise self._state.health.judge(f"read {segment.path}", error) from error
        corruption = Corruption(segment.path, bad.position, bad.offset, bad.problem)
        self._state.refuse_corrupt(corruption)
        self._state.check_usable()

    def roll_if_due(self) -> bool:
        """Begin a new segment if one is due; see :meth:`Log.roll_if_due`."""
        state = self._state
        with state.lock:
            state.check_usable()
            now_ms = state.clock.time_ms()
            due = is_due(state.active, state.config, now_ms)
            if due:
                self.roll(now_ms)
            return due

    def roll_now(self) -> None:
        """Begin a new segment; see :meth:`Log.roll`."""
        state = self._state
        with state.lock:
            state.check_usable()
            if state.active.size:
                self.roll(state.clock.time_ms())

    def roll(self, now_ms: int, offset: int | None = None) -> LogSegment:
        """Begin a new segment, see :func:`roll`. Raises ApiError KAFKA_STORAGE_ERROR."""
        try:
            self._ready = roll(self._state, self._flusher, now_ms, offset)
        except OSError as error:
            raise self._state.health.judge("begin a segment", error) from error
        return self._ready

    def write_failed(self, segment: LogSegment, error: OSError) -> ApiError:
        """Undo what was written in part; the error to raise."""
        if error.errno in NO_DESCRIPTOR:  # from opening the file again: nothing was written
            return self._state.health.judge(f"open {segment.path}", error)
        try:
            segment.cut_back()
        except OSError as cut_error:
            return self._state.health.fail(f"cut back {segment.path}", cut_error)
        return self._state.health.judge(f"write {segment.path}", error)


# Appending batches that have their offsets and leader epochs already.


class RunWriter:
    """Writes runs of batches to one log, as few writes as segments allow."""

    __slots__ = ("_appender", "_state")

    def __init__(self, state: LogState, appender: Appender) -> None:
        self._state = state
        self._appender = appender

    def write(self, batches: memoryview, headers: Sequence[BatchHeader]) -> None:
        """Append ``batches``, whose ``headers`` these are; under the log's lock.

        Raises ApiError KAFKA_STORAGE_ERROR: only the first of them are there, if any.
        """
        position = 0
        for run in self._runs(headers):
            end = position + _size(run)
            self._append(batches[position:end], run)
            position = end

    def append_own(self, batches: bytearray, leader_epoch: int) -> AppendInfo:
        """Append several batches; see :meth:`Log.append_own`."""
        state = self._state
        with state.lock:
            state.check_usable()
            self._appender.check_epoch(leader_epoch)
            first = offset = state.end_offset
            headers = []
            position = 0
            while position < len(batches):
                set_base_offset(batches, offset, leader_epoch, position)
                header = read_header(batches, position)
                headers.append(header)
                position += header.size
                offset = header.last_offset + 1
            self.write(memoryview(batches), headers)
            return AppendInfo(first, offset - 1, _NO_TIMESTAMP, state.log_start_offset)

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: Marker,
        leader_epoch: int,
        *,
        is_new_epoch: bool,
    ) -> AppendInfo:
        """Append a marker; see :meth:`Log.end_transaction`."""
        state = self._state
        now_ms = state.clock.time_ms()
        with state.lock:
            state.check_usable()
            coordinator_epoch = marker.coordinator_epoch
            if state.producers.check_end(
                producer_id, producer_epoch, coordinator_epoch, is_new_epoch=is_new_epoch
            ):
                last = state.end_offset - 1
                start = state.log_start_offset
                return AppendInfo(last, last, _NO_TIMESTAMP, start, duplicate=True)
        batch = marker_batch(producer_id, producer_epoch, marker, now_ms)
        return self.append_own(batch, leader_epoch)._replace(size=len(batch))

    def _runs(self, headers: Sequence[BatchHeader]) -> Iterator[Sequence[BatchHeader]]:
        """Batches to write at once: all that fit into the active segment, else one by one."""
        active = self._state.active
        if (
            headers
            and active.size + _size(headers) <= self._state.config.segment_bytes
            and headers[-1].last_offset - active.base_offset <= MAX_RELATIVE_OFFSET
        ):
            yield headers
        else:
            yield from ((header,) for header in headers)

    def _append(self, batches: memoryview, run: Sequence[BatchHeader]) -> None:
        state = self._state
        now_ms = state.clock.time_ms()
        reached = state.end_offset
        timestamp = max(header.max_timestamp for header in run)
        segment = self._appender.segment_for(
            len(batches), run[0].base_offset, run[-1].last_offset, timestamp, now_ms
        )
        try:
            segment.append_run(batches, run, state.config.index_interval_bytes)
        except OSError as error:
            raise self._appender.write_failed(segment, error) from error
        position = 0
        for header in run:
            state.epochs.assign(header.partition_leader_epoch, reached)
            reached = header.last_offset + 1
            if header.producer_id >= 0:
                if header.is_marker:
                    self._end(header, batches[position : position + header.size], now_ms)
                else:
                    state.producers.update(header, now_ms)
            if header.is_hidden or state.controls.announced is not None:
                state.has_hidden = state.has_hidden or header.is_hidden
                state.controls.take(header, batches[position : position + header.size])
            position += header.size

    def _end(self, header: BatchHeader, batch: memoryview, now_ms: int) -> None:
        """A transaction's marker is in the log."""
        state = self._state
        marker = take_marker(state.producers, state.aborted, header, batch, now_ms)
        if marker is not None and state.has_hidden:
            state.controls.fold.ended(header.producer_id, is_commit=marker.is_commit)


def _size(headers: Sequence[BatchHeader]) -> int:
    return sum(header.size for header in headers)
