"""Checking what is on disk: before it is served, and from time to time."""

import logging

from qbus.records import CorruptBatch

from .damage import next_place
from .health import Corruption
from .recovery import check_epoch
from .scan import BadBatch, Place, scan
from .segment import LogSegment
from .state import LogState

_logger = logging.getLogger(__name__)


class LogVerifier:
    """Checks one log's batches: sums, order, leader epochs."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def verify(
        self, segment: LogSegment, start: Place, end: int, *, file_end: int | None = None
    ) -> Place:
        """The boundary up to which the batches from ``start`` to position ``end`` are good.

        ``end`` is a boundary, or lies anywhere before ``file_end``: then the batch that reaches it
        is the last one. What is bad is reported. Raises CorruptBatch when the first batch is,
        ApiError when the log is unusable, cannot be read just now, or ``segment`` is gone.
        """
        self._state.check_usable()
        good = start
        try:
            for placed in scan(
                segment.file,
                start.position,
                file_end or end,
                start.offset,
                gaps=segment.gaps,
                wanted_end=end,
            ):
                check_epoch(self._state.epochs, placed)
                good = Place(placed.next_offset, placed.end)
                if good.position >= end:
                    break
        except BadBatch as bad:
            bad.path = segment.path
            self._note(bad)
        except OSError as error:
            excuse = self._state.excuse(segment, error)
            if excuse is not None:
                raise excuse from error
            self._state.report(Corruption(segment.path, good.position, good.offset, str(error)))
        segment.verified.add(start.position, good.position)
        if good == start:
            raise CorruptBatch(f"{segment.path}: the batch of offset {start.offset} is corrupt")
        return good

    def _note(self, bad: BadBatch) -> None:
        try:
            self._state.note_damage(bad)
        except OSError:  # it is reported, and looked for again by the next reader
            _logger.exception("%s: how far the damage reaches is not known", bad.path)


class Scrubber:
    """Checks all of one log again and again, a step at a time, oldest segment first.

    ``checked_bytes`` is how much it has gone through.
    """

    __slots__ = ("_place", "_segment", "_state", "_verifier", "checked_bytes")

    def __init__(self, state: LogState, verifier: LogVerifier) -> None:
        self._state = state
        self._verifier = verifier
        self._segment: LogSegment | None = None
        self._place = Place(0, 0)
        self.checked_bytes = 0

    def step(self, max_bytes: int) -> bool:
        """Check about ``max_bytes`` more; whether that was the end of the log.

        Where the disk cannot be read, the rest of the segment is passed over. Raises ApiError when
        the log is unusable.
        """
        self._state.check_usable()
        segment = self._state.segment_of(self._place.offset)
        if segment is not self._segment:  # the next one, or what took the place of this one
            self._segment = segment
            self._place = Place(segment.base_offset, 0)
        end = Place(*segment.end)
        if self._place.position < end.position:
            begun = self._place.position
            self._place = self._check(segment, max_bytes, end)
            self.checked_bytes += self._place.position - begun
        if self._place.position < end.position:
            return False
        done = segment is self._state.active
        self._segment = None
        self._place = Place(0 if done else end.offset, 0)
        return done

    def _check(self, segment: LogSegment, max_bytes: int, end: Place) -> Place:
        start = self._place
        stop = min(start.position + max_bytes, end.position)
        try:
            return self._verifier.verify(segment, start, stop, file_end=end.position)
        except CorruptBatch:
            pass
        try:
            return next_place(segment.file, start, end.position) or end
        except OSError as error:
            excuse = self._state.excuse(segment, error)
            if excuse is not None:
                raise excuse from error
            self._state.report(Corruption(segment.path, start.position, start.offset, str(error)))
            return end
