"""When a log begins a new segment, and how."""

import logging

from .config import LogConfig
from .flusher import Flusher
from .jumps import MAX_RELATIVE_OFFSET, mark_jump
from .segment import LogSegment
from .snapshots import encode_snapshot
from .state import LogState

_logger = logging.getLogger(__name__)

_TIME_ENTRY = 12


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


def roll(state: LogState, flusher: Flusher, now_ms: int, offset: int | None = None) -> LogSegment:
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
    except OSError as error:  # both can be made again from the log
        _logger.warning("%s: rolled without index or snapshot: %s", full.path, error)
    flusher.segment_is_full(full)
    state.segments = [*state.segments, new]
    return new


def begin_at(state: LogState, flusher: Flusher, offset: int) -> LogSegment:
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
