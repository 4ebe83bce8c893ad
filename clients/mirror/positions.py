"""Where copying a partition goes on, and what is wrong with it. Pure."""

from typing import NamedTuple

from qbus.records import BatchHeader

from .status import Trouble

_HORIZON = 0x40
"""Attribute of batches whose deletion markers compaction will remove at a time (KIP-534)."""


class Ends(NamedTuple):
    """Where the logs of a partition start and end, as far as consumers see them.

    ``source_epoch`` is the epoch of the source's leader in which that is so, -1: nobody knows.
    """

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    source_epoch: int = -1

    @property
    def overlap(self) -> bool:
        """Whether both have the record before the target's end, so that they can be compared."""
        last = self.target_end - 1
        return self.target_start <= last and self.source_start <= last < self.source_end


class Place(NamedTuple):
    """Where to read on at the source, and which end of the target's log that follows.

    ``follows`` is less than ``position`` where the target gets a gap, or begins later than at 0.
    ``trouble`` and ``reason`` tell what is wrong; ``is_stopped``: so wrong that nothing is copied.
    """

    position: int
    follows: int
    trouble: Trouble | None = None
    reason: str | None = None
    is_stopped: bool = False


def place(ends: Ends) -> Place:
    """Where to go on, from where the logs are."""
    start, end = ends.source_start, ends.source_end
    at = ends.target_end
    if end < at:
        reason = f"the source's log ends at {end}, and the target's at {at}: the source lost data"
        return Place(at, at, Trouble.SOURCE_LOST_DATA, reason, is_stopped=True)
    if at >= start:
        return Place(at, at)
    if at == 0:  # a copy that begins
        return Place(start, 0)
    reason = f"the source no longer has {at} to {start - 1}, which the target lacks"
    return Place(start, at, Trouble.OVERTAKEN, reason)


def parted(source: BatchHeader | None, target: BatchHeader | None) -> str | None:
    """What differs between the batches before the place to go on; None: nothing that shows.

    A log that was cut and written to since holds another batch there: its offsets or its checksum
    differ. A batch that is no longer there tells nothing, and one that compaction has rewritten
    only with what that leaves as it was.
    """
    if source is None or target is None:
        return None
    if source.base_offset > target.last_offset:
        return None  # retention, or compaction, took it
    if _identity(source) == _identity(target):
        return None
    if _is_compacted(source) and _origin(source) == _origin(target):
        return None
    return (
        f"the source's log parted from the target's: it holds {source.base_offset} to"
        f" {source.last_offset} with checksum {source.crc:#010x} where the target has"
        f" {target.base_offset} to {target.last_offset} with {target.crc:#010x}"
    )


def _identity(header: BatchHeader) -> tuple[int, int, int]:
    return header.base_offset, header.last_offset, header.crc


def _is_compacted(header: BatchHeader) -> bool:
    """Whether records were taken out of a batch, or are to be: no producer writes such a one."""
    return header.records_count <= header.last_offset_delta or bool(header.attributes & _HORIZON)


def _origin(header: BatchHeader) -> tuple[int, int, int, int, int]:
    """What compaction keeps of a batch (Kafka's ``MemoryRecords.filterTo``)."""
    return (
        header.base_offset,
        header.last_offset,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
