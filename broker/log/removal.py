"""Taking records away: from the front by retention and DeleteRecords, from the end by truncation.

At the front segments go one at a time, the oldest first, each removal stable before the next, so
that a crash leaves no gap; a new active segment is stable before the last old one goes. At the end
the recovery point goes first, which the caller writes down; what a crash leaves above it is cut.
"""

import contextlib
import logging
from dataclasses import replace
from typing import Final

from qbus.errors import ApiError, ErrorCode
from qbus.records import CorruptBatch

from .appender import roll
from .config import LogConfig
from .controls import Controls, load_controls
from .files import PASSING
from .flusher import LogFlusher
from .manifest import MANIFEST
from .names import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, numbered
from .opening import load_producers
from .producers import ProducerState
from .reader import end_before
from .recovery import remove_segments
from .replacing import remove_replacements
from .scan import BadBatch
from .segment import LogSegment
from .state import LogState

_logger = logging.getLogger(__name__)

_CLOCK_SKEW_MS: Final = 3_600_000
"""Clocks of producers may be ahead: an hour is the default of message.timestamp.after.max.ms."""


def count_expired(
    segments: list[LogSegment],
    config: LogConfig,
    *,
    now_ms: int,
    start_offset: int,
    max_offset: int,
    done_before: int = 0,
) -> int:
    """How many segments from the front retention removes; none with records at ``max_offset`` on.

    By time: while the greatest timestamp is older than ``retention.ms``. By size: while what is
    left is still at least ``retention.bytes``. Whatever lies before ``start_offset`` or
    ``done_before``, except in the active segment, and what stands for a gap alone. An empty active
    segment stays.
    """
    start_offset = max(start_offset, done_before)
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        active = segment is segments[-1]
        if segment.end_offset > max_offset or (active and not segment.size):
            break
        excess -= segment.size
        too_much = config.retention_bytes >= 0 and excess >= 0
        is_void = not active and (segment.end_offset <= start_offset or not segment.size)
        if not (too_much or is_void or _is_old(segment, config, now_ms)):
            break
        count += 1
    return count


def _is_old(segment: LogSegment, config: LogConfig, now_ms: int) -> bool:
    if config.retention_ms < 0:
        return False
    timestamp = segment.max_timestamp.timestamp
    return now_ms - (timestamp if timestamp >= 0 else segment.created_ms) > config.retention_ms


class RecordRemover:
    """Removes records from one log. Its methods wait for the disk: they are for threads."""

    def __init__(self, state: LogState, flusher: LogFlusher) -> None:
        self._state = state
        self._flusher = flusher
        # What queues had done, where the log ended then, and how often it had been cut by then
        self._done: tuple[int, int, int] | None = None

    def apply_retention(self, max_offset: int) -> int:
        """Remove what retention says; the number of segments removed. Raises ApiError."""
        state = self._state
        with state.sync_lock:
            try:
                self._learn_timestamps()
                with state.lock:
                    state.check_usable()
                    now_ms = state.clock.time_ms()
                    done_before = self._done_before(max_offset)
                    count = count_expired(
                        state.segments,
                        state.config,
                        now_ms=now_ms,
                        start_offset=state.log_start_offset,
                        max_offset=self._before_needed(max_offset, done_before),
                        done_before=done_before or 0,
                    )
                    self._note_future(count, now_ms)
                    if count == len(state.segments) and not self._can_roll(now_ms):
                        count -= 1  # a full disk: removing the others makes space
                if count:
                    self._remove_front(count)
            except OSError as error:
                raise state.health.judge(f"retention of {state.directory}", error) from error
            return count

    def _note_future(self, count: int, now_ms: int) -> None:
        """Note whether the first segment that stays is kept by a timestamp in the future."""
        state = self._state
        if state.config.retention_ms < 0 or count == len(state.segments):
            state.retention_blocked_ms = 0
            return
        segment = state.segments[count]
        try:
            newest = segment.max_timestamp
        except BadBatch:
            return  # the next retention knows
        blocked = newest.timestamp if newest.timestamp > now_ms + _CLOCK_SKEW_MS else 0
        if blocked and not state.retention_blocked_ms:
            _logger.warning(
                "retention.ms removes nothing from %s at offset %d and above: the timestamp %d of"
                " offset %d is %d hours in the future; kafka-delete-records, or a lower"
                " retention.bytes for a while, removes such records, and"
                " message.timestamp.after.max.ms refuses them",
                state.directory,
                segment.base_offset,
                blocked,
                newest.offset,
                (blocked - now_ms) // 3_600_000,
            )
        state.retention_blocked_ms = blocked

    def expired_before(self, max_offset: int, *, by_size: bool) -> int:
        """Where the log would start if nothing were needed; see :meth:`Log.expired_before`."""
        state = self._state
        with state.sync_lock:
            try:
                self._learn_timestamps()
            except OSError as error:
                raise state.health.judge(f"retention of {state.directory}", error) from error
            with state.lock:
                state.check_usable()
                config = state.config if by_size else replace(state.config, retention_bytes=-1)
                count = count_expired(
                    state.segments,
                    config,
                    now_ms=state.clock.time_ms(),
                    start_offset=state.log_start_offset,
                    max_offset=max_offset,
                    done_before=self._done_before(max_offset) or 0,
                )
                return state.segments[min(count, len(state.segments) - 1)].base_offset

    def _before_needed(self, max_offset: int, done_before: int | None) -> int:
        """What may go at most: not what delayed records lie in, nor what queues have not done.

        Nor where the groups of queues are mentioned last: the leader soon mentions them again.
        """
        fold = self._state.controls.fold
        needed, told = fold.needed_from, fold.told_from
        if needed is not None:
            max_offset = min(max_offset, needed)
        if told is not None and not self._state.config.qbus_mirror_source:
            max_offset = min(max_offset, told)
        return max_offset if done_before is None else min(max_offset, done_before)

    def _done_before(self, max_offset: int) -> int | None:
        """Before which offset records go as they are done, however new they are; None: none do.

        Only what says so below ``max_offset``, the high watermark, counts: the rest may be cut off.
        Where the log ends behind that, as it does while queues are busy, it is what was known when
        the log ended before it.
        """
        state = self._state
        done = state.controls.fold.done_before
        if not state.config.removes_acknowledged or done is None:
            return None
        if state.end_offset <= max_offset:
            return done
        known, result = self._done, 0
        if known is not None and known[2] != state.rewrites:
            known = None
        if known is not None and known[1] <= max_offset:
            result, known = known[0], None
        self._done = known or (done, state.end_offset, state.rewrites)
        return min(result, done)

    def _can_roll(self, now_ms: int) -> bool:
        try:
            roll(self._state, self._flusher, now_ms)
        except OSError as error:
            if error.errno in PASSING:
                return False
            raise
        return True

    def _learn_timestamps(self) -> None:
        """Read what is not known yet, before appending has to wait for it."""
        for segment in self._state.segments:
            try:
                _ = segment.max_timestamp
            except BadBatch as bad:
                if not self._state.note_damage(bad):
                    segment.assume_max_timestamp(segment.created_ms)

    def _remove_front(self, count: int) -> None:
        state = self._state
        self._save_fold(state.segments[count].base_offset)
        self._flusher.flush()
        self._flusher.save_manifest(without=state.segments[:count])
        with state.lock:
            gone, state.segments = state.segments[:count], state.segments[count:]
            first = state.segments[0].base_offset
            state.log_start_offset = max(state.log_start_offset, first)
            state.epochs.truncate_from_start(state.log_start_offset)
            state.aborted.forget_before(first)
            self._flusher.forget(gone)
        for at, segment in enumerate(gone):
            try:
                self._discard(segment)
            except OSError:
                self._put_back(gone[at:])
                raise

    def _save_fold(self, first_offset: int) -> None:
        """Write down what share groups have done, unless that was done since ``first_offset``.

        Hidden batches that say so may go; what is written down then is all that knows the groups.
        """
        state = self._state
        if state.control_snapshots.newest() >= first_offset:
            return
        with state.lock:
            controls = state.controls
            if controls.fold.done_before is None or controls.announced is not None:
                return
            offset, content = state.end_offset, b"".join(controls.encode())
        self._flusher.flush()  # a snapshot behind the log's end would be removed
        state.control_snapshots.write(offset, content, sync=True)

    def _put_back(self, segments: list[LogSegment]) -> None:
        """Let the next retention try again; what they hold stays out of reach."""
        state = self._state
        there = [segment for segment in segments if state.cache.files.exists(segment.path)]
        with state.lock:
            state.segments = [*there, *state.segments]

    def _discard(self, segment: LogSegment) -> None:
        files = self._state.cache.files
        for suffix in SEGMENT_SUFFIXES:
            path = f"{segment.directory}/{numbered(segment.base_offset, suffix)}"
            with contextlib.suppress(FileNotFoundError):
                files.rename(path, path + DELETED_SUFFIX)
                self._state.cache.forget(path)
                self._state.trash.add(
                    path + DELETED_SUFFIX, self._state.config.file_delete_delay_ms
                )
            if suffix == LOG_SUFFIX:
                files.sync_directory(segment.directory)

    def delete_records_before(self, offset: int) -> int:
        """Let the log start with ``offset``; what it starts with now. Does no IO.

        Whole segments before it go with the next retention. Raises OFFSET_OUT_OF_RANGE.
        """
        state = self._state
        with state.lock:
            state.check_usable()
            if not 0 <= offset <= state.end_offset:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"the log ends with {state.end_offset}"
                )
            if offset > state.log_start_offset:
                state.log_start_offset = offset
                state.epochs.truncate_from_start(offset)
                self._flusher.list_again()
            return state.log_start_offset

    def expire_producers(self) -> None:
        """Forget producers not heard of for ``producer.id.expiration.ms``."""
        state = self._state
        with state.lock:
            expiration_ms = state.config.producer_id_expiration_ms
            state.producers.expire(state.clock.time_ms(), expiration_ms)

    def truncation_point(self, offset: int) -> int:
        """Where the log would end if it were truncated to ``offset``: before a whole batch.

        Raises ApiError.
        """
        state = self._state
        if not state.segments[0].base_offset <= offset < state.end_offset:
            return min(offset, state.end_offset)
        try:
            return end_before(state.segment_of(offset), offset).offset
        except CorruptBatch as bad:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, bad.message) from bad
        except OSError as error:
            raise state.health.fail(f"truncate {state.directory}", error) from error

    def truncate_to(self, offset: int) -> int:
        """Remove the batches that have ``offset`` or later ones; where the log ends now.

        Stable on return; nothing can be appended meanwhile. Raises ApiError.
        """
        state = self._state
        with state.sync_lock, state.lock:
            state.check_usable()
            if offset >= state.end_offset:
                # A leader may have begun an epoch and have written nothing in it.
                state.epochs.truncate_from_end(state.end_offset)
                return state.end_offset
            try:
                state.rewrites += 1
                self._truncate(offset)
            except CorruptBatch as bad:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, bad.message) from bad
            except OSError as error:
                raise state.health.fail(f"truncate {state.directory}", error) from error
            return state.end_offset

    def _truncate(self, offset: int) -> None:
        state = self._state
        if offset < state.segments[0].base_offset:
            self._start_over(offset)
        else:
            segment = state.segment_of(offset)
            kept = [known for known in state.segments if known.base_offset <= segment.base_offset]
            remove_segments(state.cache, state.segments[len(kept) :])
            if offset < segment.end_offset:
                segment.cut_to(*end_before(segment, offset))
            segment.hold_open()
            segment.file.sync()
            segment.indexes.sync()
            state.segments = kept
        end_offset = state.end_offset
        state.log_start_offset = min(state.log_start_offset, end_offset)
        state.epochs.truncate_from_end(end_offset)
        self._flusher.save_epochs()
        state.producers = load_producers(
            state.snapshots,
            state.segments,
            state.config,
            state.clock.time_ms(),
            state.aborted,
        )
        state.controls = load_controls(state.control_snapshots, state.segments, state.make_fold)
        state.cache.files.sync_directory(state.directory)
        self._flusher.restart_at(end_offset)

    def drop_snapshots(self) -> None:
        """Forget on disk what can be read from the log again. Raises ApiError."""
        state = self._state
        with state.sync_lock:
            state.health.check()
            try:
                state.snapshots.remove(lambda _: True)
                state.control_snapshots.remove(lambda _: True)
                state.cache.files.remove(f"{state.directory}/{MANIFEST}")
                self._flusher.list_again()
                state.cache.files.sync_directory(state.directory)
            except OSError as error:
                raise state.health.fail(f"truncate {state.directory}", error) from error

    def restart_at(self, offset: int) -> None:
        """Remove all batches, whatever they are, and go on with ``offset``.

        Stable on return; nothing can be appended meanwhile. What made the log refuse everything,
        if that was corrupt data, is over. Raises ApiError.
        """
        state = self._state
        with state.sync_lock, state.lock:
            state.health.check()
            if state.corruption is None:
                state.check_usable()
            try:
                state.rewrites += 1
                self._start_over(offset)
                state.epochs.clear()
                self._flusher.save_epochs()
                state.cache.files.sync_directory(state.directory)
            except OSError as error:
                raise state.health.fail(f"truncate {state.directory}", error) from error
            state.producers = ProducerState(state.config.max_producers, offset)
            state.aborted.clear(offset)
            state.controls = Controls(state.make_fold())
            state.log_start_offset = offset
            self._flusher.restart_at(offset)
            state.restored()

    def _start_over(self, offset: int) -> None:
        state = self._state
        now_ms = state.clock.time_ms()
        gaps = state.active.gaps
        new = LogSegment(state.cache, state.directory, offset, size=0, created_ms=now_ms, gaps=gaps)
        new.create()
        new.file.sync()
        remove_replacements(state.cache.files, state.directory)
        state.cache.files.sync_directory(state.directory)
        gone = [segment for segment in state.segments if segment.base_offset != offset]
        remove_segments(state.cache, gone)
        state.segments = [new]
