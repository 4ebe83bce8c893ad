"""Appending: from a produced batch to bytes at the end of the active segment."""

from typing import NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, set_base_offset, set_log_append_time

from .corruption import Corruption
from .flusher import Flusher
from .jumps import MAX_RELATIVE_OFFSET
from .producers import RetainedBatch
from .rolling import begin_at, is_due, must_roll, roll
from .scan import BadBatch
from .segment import LogSegment
from .state import LogState
from .validate import check_batch

_NO_TIMESTAMP = -1


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

    def __init__(self, state: LogState, flusher: Flusher) -> None:
        self._state = state
        self._flusher = flusher
        self._ready: LogSegment | None = None  # the active segment, once it was written to

    def append(self, batch: bytearray | memoryview, leader_epoch: int) -> AppendInfo:
        """What :meth:`Log.append` says."""
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
            return self._append(batch, header, leader_epoch, now_ms)

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
        try:
            segment.prepare_to_append()
        except BadBatch as bad:
            corruption = Corruption(segment.path, bad.position, bad.offset, bad.problem)
            self._state.refuse_corrupt(corruption)
            self._state.check_usable()
        except OSError as error:
            raise self._state.health.judge(f"open {segment.path}", error) from error
        self._ready = segment

    def roll_if_due(self) -> bool:
        """What :meth:`Log.roll_if_due` says."""
        state = self._state
        with state.lock:
            state.check_usable()
            now_ms = state.clock.time_ms()
            due = is_due(state.active, state.config, now_ms)
            if due:
                self.roll(now_ms)
            return due

    def roll(self, now_ms: int, offset: int | None = None) -> LogSegment:
        """What :func:`roll` does. Raises ApiError KAFKA_STORAGE_ERROR."""
        try:
            self._ready = roll(self._state, self._flusher, now_ms, offset)
        except OSError as error:
            raise self._state.health.judge("begin a segment", error) from error
        return self._ready

    def write_failed(self, segment: LogSegment, error: OSError) -> ApiError:
        """Undo what was written in part; the error to raise."""
        try:
            segment.cut_back()
        except OSError as cut_error:
            return self._state.health.fail(f"cut back {segment.path}", cut_error)
        return self._state.health.judge(f"write {segment.path}", error)
