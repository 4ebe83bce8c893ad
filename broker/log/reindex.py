"""Making a segment's indexes anew from its batches."""

from contextlib import nullcontext

from .names import TEMPORARY_SUFFIX
from .scan import BadBatch, scan
from .segment import LogSegment
from .state import LogState


def reindex(state: LogState, segment: LogSegment) -> bool:
    """Replace the indexes of ``segment``; False, changing nothing, if batches are bad.

    For a thread: appending waits meanwhile only when it is the active segment's. Raises OSError.
    """
    active = segment is state.active
    with state.lock if active else nullcontext():
        copy = LogSegment(
            state.cache,
            segment.directory,
            segment.base_offset,
            size=segment.size,
            created_ms=segment.created_ms,
            index_suffix=TEMPORARY_SUFFIX,
        )
        copy.trim_indexes(segment.base_offset)
        interval = state.config.index_interval_bytes
        try:
            for placed in scan(segment.file, 0, segment.size, segment.base_offset, crc=False):
                copy.account(placed, interval)
        except BadBatch:
            return False
        copy.write_indexes(full=not active)
        copy.sync_indexes()
        segment.adopt_indexes(copy)
    return True
