"""From timestamps to offsets: what ListOffsets asks."""

from typing import NamedTuple

from qbus.records import check_crc, iter_records

from .scan import PlacedBatch
from .segment import LogSegment
from .state import LogState


class TimestampOffset(NamedTuple):
    """A record's timestamp in milliseconds, its offset, and the epoch of its leader."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(state: LogState, timestamp: int) -> TimestampOffset | None:
    """The first record, by offset, whose timestamp is ``timestamp`` or later.

    Raises CorruptBatch, BadBatch, OSError.
    """
    for segment in state.segments:
        if segment.max_timestamp.timestamp >= timestamp:
            for placed in segment.batches_from(segment.indexes.times.lookup(timestamp)):
                if placed.header.max_timestamp >= timestamp:
                    found = _first_in(segment, placed, timestamp, state.log_start_offset)
                    if found is not None:
                        return found
    return None


def latest(state: LogState) -> TimestampOffset | None:
    """The first record that has the greatest timestamp of the log. Raises likewise."""
    segments = state.segments
    greatest = max(segments, key=lambda segment: segment.max_timestamp.timestamp)
    timestamp, last_offset = greatest.max_timestamp
    if timestamp < 0:
        return None
    for placed in greatest.batches_from(last_offset):
        if placed.header.last_offset >= last_offset:
            return _first_in(greatest, placed, timestamp, state.log_start_offset)
    return None


def _first_in(
    segment: LogSegment, placed: PlacedBatch, timestamp: int, start_offset: int
) -> TimestampOffset | None:
    batch = segment.file.read_at(placed.position, placed.header.size)
    check_crc(batch, placed.header)
    for record in iter_records(batch):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            epoch = placed.header.partition_leader_epoch
            return TimestampOffset(record.timestamp, record.offset, epoch)
    return None
