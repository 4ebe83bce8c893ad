"""What compaction reads of a log, and how it puts new segments in the place of old ones."""

from collections.abc import Sequence

from .flusher import LogFlusher
from .health import Corruption
from .replacement import SegmentReplacement
from .scan import BadBatch
from .segment import LogSegment
from .state import LogState
from .transactions import AbortedTransaction


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

    def newest_batches(self) -> frozenset[int]:
        """The last offsets of those batches that are the newest of a producer.

        A producer whose epoch began with a transaction's end has none.
        """
        with self._state.lock:
            return frozenset(
                producer.batches[-1].last_offset
                for producer in self._state.producers
                if producer.batches
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
        self._state.report(Corruption(segment.path, bad.position, bad.offset, bad.problem))
