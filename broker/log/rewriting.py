"""What compaction reads of a log, and how it puts new segments in the place of old ones."""

from collections.abc import Sequence
from typing import NamedTuple

from .flusher import LogFlusher
from .replacement import SegmentReplacement
from .scan import BadBatch
from .segment import LogSegment
from .state import LogState
from .transactions import AbortedTransaction


class NewestBatches(NamedTuple):
    """What tells of the producers of a log: of each the last thing that it, or its end, wrote.

    ``last_offsets`` are those of batches. ``epochs`` are ids and epochs of the producers that have
    no batch in their epoch, which a marker began (KIP-890): only that marker tells of it.
    """

    last_offsets: frozenset[int]
    epochs: frozenset[tuple[int, int]]


class LogRewriter:
    """One log, as compaction sees it. Its methods are for threads."""

    def __init__(self, state: LogState, flusher: LogFlusher) -> None:
        self._state = state
        self._flusher = flusher

    @property
    def segments(self) -> list[LogSegment]:
        """The segments that nothing is appended to any more."""
        return self._state.segments[:-1]

    @property
    def rewrites(self) -> int:
        """How often records were cut off, repaired or replaced since the log was opened."""
        return self._state.rewrites

    def newest_batches(self) -> NewestBatches:
        """The batches and markers that are the newest of a producer."""
        with self._state.lock:
            producers = list(self._state.producers)
        return NewestBatches(
            frozenset(one.batches[-1].last_offset for one in producers if one.batches),
            frozenset((one.producer_id, one.epoch) for one in producers if not one.batches),
        )

    def aborted_between(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that may have records in these offsets."""
        with self._state.lock:
            return self._state.aborted.between(offset, end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that ``offset`` belongs to, -1 when it is not known."""
        return self._state.epochs.epoch_at(offset)

    def replace(self, segments: Sequence[LogSegment], rewrites: int) -> SegmentReplacement:
        """Begin new content for adjacent ``segments``, as of so many ``rewrites``.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        return SegmentReplacement(self._state, self._flusher, segments, rewrites)

    def has(self, segment: LogSegment) -> bool:
        """Whether ``segment`` is a part of the log, which is open."""
        return self._state.refusal is None and segment in self._state.segments

    def report(self, segment: LogSegment, bad: BadBatch) -> None:
        """Make known that a batch is damaged."""
        bad.path = segment.path
        self._state.note_damage(bad)
