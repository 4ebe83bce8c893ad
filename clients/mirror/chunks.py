"""From fetched bytes to chunks of whole batches, which are never decoded. Pure."""

from typing import NamedTuple

from qbus.records import BatchHeader, CorruptBatch, check_crc, iter_batches


class Chunk(NamedTuple):
    """Consecutive whole batches of one partition: a view of the fetch response.

    They follow the offset ``follows``: the source has nothing between it and the first batch.
    ``end`` is the offset after the last. ``oldest_ms`` is the time of the first record,
    ``newest_ms`` the latest timestamp. ``source_start`` is where the source's log started when it
    sent them: later it may start behind offsets that it never had, which the target would take for
    removed ones.
    """

    records: memoryview
    follows: int
    end: int
    batches: int
    records_count: int
    oldest_ms: int
    newest_ms: int
    source_start: int


def chunk_of(
    records: memoryview, position: int, follows: int, source_start: int = -1
) -> Chunk | None:
    """Return the whole batches from ``position`` on, with verified checksums; None: there are none.

    The source's log may start within a batch, whose other records it was told to delete: that one
    is whole, too. Raises :class:`~qbus.records.CorruptBatch` if the first is damaged, or begins
    before ``follows``: then the source has other batches than the target. The next fetch finds
    damage behind a sound batch.
    """
    start = end = batches = count = 0
    newest = -1
    reached = follows
    first: BatchHeader | None = None
    try:
        for header, batch in iter_batches(records, partial_tail=True):
            if first is None and header.last_offset < position:
                start = end = end + len(batch)
                continue
            _check(header, batch, reached)
            first = first or header
            reached = header.last_offset + 1
            end += len(batch)
            batches += 1
            count += max(header.records_count, 0)
            newest = max(newest, header.max_timestamp)
    except CorruptBatch:
        if first is None:
            raise
    if first is None:
        return None
    oldest = first.max_timestamp if first.is_log_append_time else first.base_timestamp
    return Chunk(records[start:end], follows, reached, batches, count, oldest, newest, source_start)


def _check(header: BatchHeader, batch: memoryview, reached: int) -> None:
    if header.last_offset_delta < 0:
        raise CorruptBatch(f"impossible last offset delta {header.last_offset_delta}")
    if header.base_offset < reached:
        raise CorruptBatch(
            f"a batch from {header.base_offset} to {header.last_offset}, and {reached} comes next"
        )
    check_crc(batch, header)
