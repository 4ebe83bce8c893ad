"""Making a segment's indexes anew from its batches."""

from .names import TEMPORARY_SUFFIX
from .scan import scan
from .segment import LogSegment


def reindex(segment: LogSegment, index_interval_bytes: int, *, full: bool) -> None:
    """Replace the indexes of ``segment``, which nobody may append to meanwhile.

    ``full`` says that nothing more will be. Raises BadBatch, changing nothing, when its batches do
    not follow one another, and OSError.
    """
    copy = segment.copy_for_index(TEMPORARY_SUFFIX)
    for placed in scan(segment.file, 0, segment.size, segment.base_offset, crc=False):
        copy.account(placed, index_interval_bytes)
    copy.write_indexes(full=full)
    copy.sync_indexes()
    segment.adopt_indexes(copy)
