"""Reading a log: which segment, which batches, up to where."""

import errno
from collections.abc import Callable
from contextlib import nullcontext

from qbus.errors import ApiError, ErrorCode
from qbus.records import CorruptBatch

from .corruption import Corruption
from .locate import batch_end, boundary_before, place_of
from .scan import BadBatch
from .segment import LogSegment
from .slices import LogSlice, Verifier
from .state import LogState
from .timestamps import TimestampOffset


class LogReader:
    """Finds batches by offset in one log."""

    __slots__ = ("_reindexed", "_state", "_verifier")

    def __init__(self, state: LogState, verifier: Verifier) -> None:
        self._state = state
        self._verifier = verifier
        self._reindexed: set[int] = set()  # segments, by base offset, whose batches are known bad

    def read(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int | None,
        *,
        min_one_batch: bool,
        wait: bool,
    ) -> LogSlice | None:
        """What :meth:`Log.read` says."""
        state = self._state
        if state.refusal is not None or state.health.failure is not None:
            state.check_readable()
        end_offset = state.segments[-1].end[0]
        if not state.log_start_offset <= offset <= end_offset:
            raise _out_of_range(state, offset)
        limit = end_offset if max_offset is None or max_offset > end_offset else max_offset
        if offset >= limit:
            return None
        segment = state.segment_of(offset)
        try:
            return self._slice(segment, offset, max_bytes, limit, min_one_batch, wait)
        except CorruptBatch as bad:
            self._repair(segment, offset, bad, wait=wait)
            return self._slice(segment, offset, max_bytes, limit, min_one_batch, wait)
        except BlockingIOError:
            raise
        except OSError as error:
            raise self._failed(segment, offset, error) from error

    def find(self, search: Callable[[LogState], TimestampOffset | None]) -> TimestampOffset | None:
        """What ``search`` finds. Raises ApiError CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR."""
        self._state.check_readable()
        try:
            return search(self._state)
        except BadBatch as bad:
            self._state.report(
                Corruption(self._state.directory, bad.position, bad.offset, bad.problem)
            )
            raise CorruptBatch(bad.problem) from bad
        except OSError as error:
            self._state.check_usable()  # it may be gone since it was looked at
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _slice(
        self,
        segment: LogSegment,
        offset: int,
        max_bytes: int,
        limit: int,
        min_one_batch: bool,
        wait: bool,
    ) -> LogSlice | None:
        if segment.gaps and not segment.size:  # it stands for a gap, up to the next one
            offset = segment.end_offset
            if offset >= limit:
                return None
            return self._slice(
                self._state.segment_of(offset), offset, max_bytes, limit, min_one_batch, wait
            )
        start = place_of(segment, offset, wait=wait)
        end = boundary_before(segment, start, start.position + max_bytes, limit, wait=wait)
        if end.position <= start.position:
            if not min_one_batch:
                return None
            end = batch_end(segment, start, wait=wait)
            if end.offset > limit:
                return None
        segment.places.add(*start)
        segment.places.add(*end)
        return LogSlice(segment, self._verifier, start, end)

    def _repair(self, segment: LogSegment, offset: int, bad: CorruptBatch, *, wait: bool) -> None:
        """Make the index anew if it may be what is wrong; raise if the batches are."""
        if segment.base_offset not in self._reindexed:
            if not wait:
                raise BlockingIOError(errno.EAGAIN, "the index must be made anew")
            self._reindexed.add(segment.base_offset)
            if self._reindex(segment):
                return
        self._state.report(Corruption(segment.path, -1, offset, str(bad)))
        raise bad

    def _reindex(self, segment: LogSegment) -> bool:
        state = self._state
        active = segment is state.active
        try:
            segment.reindex(
                state.config.index_interval_bytes,
                full=not active,
                lock=state.lock if active else nullcontext(),
            )
        except BadBatch:
            return False
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return True

    def _failed(self, segment: LogSegment, offset: int, error: OSError) -> ApiError:
        if offset < self._state.log_start_offset:
            return _out_of_range(self._state, offset)  # its file went away just now
        excuse = self._state.excuse(segment, error)
        if excuse is not None:
            return excuse
        self._state.report(Corruption(segment.path, -1, offset, str(error)))
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read {segment.path}: {error}")


def _out_of_range(state: LogState, offset: int) -> ApiError:
    return ApiError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {offset} is not in {state.log_start_offset} to {state.end_offset}",
    )
