"""Comparing the logs of a partition at both clusters: where to go on, and what is wrong. Pure."""

from typing import NamedTuple

from qbus.records import BatchHeader

from .status import Trouble

_HORIZON = 0x40
"""Attribute of batches whose tombstones compaction will remove at a set time (KIP-534)."""


class LogBounds(NamedTuple):
    """Where the logs of a partition start and end, hidden batches included.

    ``source_epoch`` is the leader epoch of the source's answer, -1 if unknown.
    """

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    source_epoch: int = -1

    @property
    def overlap(self) -> bool:
        """Whether both logs hold the record before the target's end, so that it can be compared."""
        last = self.target_end - 1
        return self.target_start <= last and self.source_start <= last < self.source_end


class StartOffset(NamedTuple):
    """The offset to fetch from at the source, and the end of the target's log that it follows.

    ``follows`` is less than ``position`` if the target gets a gap, or begins later than at 0.
    ``trouble`` and ``reason`` say what is wrong. ``is_stopped``: the partition must not be copied.
    """

    position: int
    follows: int
    trouble: Trouble | None = None
    reason: str | None = None
    is_stopped: bool = False


def start_offset(ends: LogBounds) -> StartOffset:
    """Return where to go on, by where the logs start and end."""
    start, end = ends.source_start, ends.source_end
    at = ends.target_end
    if end < at:
        reason = f"the source's log ends at {end}, and the target's at {at}: the source lost data"
        return StartOffset(at, at, Trouble.SOURCE_LOST_DATA, reason, is_stopped=True)
    if at >= start:
        return StartOffset(at, at)
    if at == 0:  # a new mirror
        return StartOffset(start, 0)
    reason = f"the source no longer has {at} to {start - 1}, which the target lacks"
    return StartOffset(start, at, Trouble.OVERTAKEN, reason)


def diverged(source: BatchHeader | None, target: BatchHeader | None) -> str | None:
    """Return how the batches before the start offset differ; None: no difference can be seen.

    A log that was truncated and written to since holds another batch there, with other offsets or
    another checksum. A batch that was removed tells nothing. Of a batch that compaction rewrote,
    only the fields that compaction keeps are compared.
    """
    if source is None or target is None:
        return None
    if source.base_offset > target.last_offset:
        return None  # retention or compaction removed it
    if _identity(source) == _identity(target):
        return None
    if _is_compacted(source) and _origin(source) == _origin(target):
        return None
    return (
        f"the source's log diverged from the target's: it holds {source.base_offset} to"
        f" {source.last_offset} with checksum {source.crc:#010x} where the target has"
        f" {target.base_offset} to {target.last_offset} with {target.crc:#010x}"
    )


def _identity(header: BatchHeader) -> tuple[int, int, int]:
    return header.base_offset, header.last_offset, header.crc


def _is_compacted(header: BatchHeader) -> bool:
    """Whether compaction removed records of a batch, or will: no producer writes such a batch."""
    return header.records_count <= header.last_offset_delta or bool(header.attributes & _HORIZON)


def _origin(header: BatchHeader) -> tuple[int, int, int, int, int]:
    """The fields that compaction keeps (Kafka's ``MemoryRecords.filterTo``)."""
    return (
        header.base_offset,
        header.last_offset,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
