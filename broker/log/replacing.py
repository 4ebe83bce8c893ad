"""After a crash: completing the replacement of segments that it cut short.

See :mod:`.replacement` for the steps, and for what a crash leaves of them.
"""

import logging
from contextlib import nullcontext

from .file_cache import FileCache
from .files import File, Files
from .names import (
    CLEANED_SUFFIX,
    CONTROL_INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    numbered,
    parse_numbered,
)
from .scan import BadBatch, scan
from .segment import LogSegment

_logger = logging.getLogger(__name__)

_REBUILT = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, CONTROL_INDEX_SUFFIX)


def complete_replacements(cache: FileCache, directory: str, index_interval_bytes: int) -> bool:
    """Complete the replacements that a crash cut short; whether there were any.

    Raises BadBatch if what is to take the place of segments is damaged, and OSError.
    """
    found = False
    for name in sorted(cache.files.list(directory)):
        number = parse_numbered(name.removesuffix(SWAP_SUFFIX))
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and number is not None:
            _complete(cache, directory, number[0], index_interval_bytes)
            found = True
    return found


def _complete(cache: FileCache, directory: str, base_offset: int, interval_bytes: int) -> None:
    files = cache.files
    path = f"{directory}/{numbered(base_offset, LOG_SUFFIX)}"
    _logger.warning("%s: completing the replacement of segments that a crash cut short", path)
    end_offset, size = _end_of(files.open(path + SWAP_SUFFIX), path, base_offset)
    for name in files.list(directory):
        number = parse_numbered(name)
        if number is None or number[1] not in {LOG_SUFFIX, *INDEX_SUFFIXES}:
            continue
        is_within = base_offset < number[0] < end_offset
        if is_within or (number[0] == base_offset and number[1] in _REBUILT):
            files.remove(f"{directory}/{name}")
            cache.forget(f"{directory}/{name}")
    aborted_path = f"{directory}/{numbered(base_offset, TRANSACTION_INDEX_SUFFIX)}"
    if files.exists(aborted_path + CLEANED_SUFFIX):  # else it has its name already
        files.rename(aborted_path + CLEANED_SUFFIX, aborted_path)
    files.sync_directory(directory)
    segment = LogSegment(cache, directory, base_offset, size=size, created_ms=0, gaps=True)
    files.rename(path + SWAP_SUFFIX, path)
    cache.forget(path)
    files.sync_directory(directory)
    segment.end = (end_offset, size)
    segment.rebuild_indexes(interval_bytes, full=True, lock=nullcontext())
    files.sync_directory(directory)


def _end_of(file: File, path: str, base_offset: int) -> tuple[int, int]:
    end_offset, size = base_offset, file.size()
    try:
        for placed in scan(file, 0, size, base_offset, gaps=True):
            end_offset = placed.next_offset
    except BadBatch as bad:
        _logger.error("%s%s is damaged: %s", path, SWAP_SUFFIX, bad.problem)  # noqa: TRY400
        raise
    return end_offset, size


def remove_replacements(files: Files, directory: str) -> None:
    """Remove what was to take the place of segments that are no part of the log any more.

    The caller syncs the names. Raises OSError.
    """
    for name in files.list(directory):
        if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)):
            files.remove(f"{directory}/{name}")
