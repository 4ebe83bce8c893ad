"""Reading for consumers: hidden batches do not reach them.

In the place of a run of hidden batches a consumer gets one batch without records that covers the
same offsets; compaction leaves such batches in Kafka's logs, so every client moves its position
over them. A run that nothing visible follows yet is not sent at all, and the log ends before it as
far as consumers are told: so their lag comes to 0.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from qbus.records.control import empty_batch

from .reader import LogReader, LogSlice
from .segment import LogSegment
from .state import LogState

_LONGEST: Final = 2**31  # offsets of one batch


def visible_end(state: LogState, limit: int) -> int:
    """The offset after the last visible record before ``limit``, or the log's start."""
    if state.has_hidden:
        for segment in reversed(state.segments):
            if segment.base_offset >= limit:
                continue
            index = segment.indexes.controls
            number = index.at(limit - 1)
            if number < 0 or number & 1:
                break
            begin = index.boundary(number)
            assert begin is not None
            limit = begin.offset
            if begin.offset > segment.base_offset:
                break
    return max(limit, state.log_start_offset)


def hidden_end(state: LogState, offset: int, *, wait: bool) -> int:
    """Do what :meth:`Log.hidden_end` states."""
    if state.has_hidden:
        while offset < state.end_offset:
            run = _run_at(state.segment_of(offset), offset, wait=wait)
            if run is None or run.end_offset <= offset:  # in the gap behind a segment
                break
            offset = run.end_offset
    return offset


def hidden_between(state: LogState, offset: int, end_offset: int) -> int:
    """Do what :meth:`Log.hidden_between` states."""
    count = 0
    if not state.has_hidden:
        return count
    for segment in state.segments:
        if segment.end_offset <= offset or segment.base_offset >= end_offset:
            continue
        run = _run_at(segment, max(offset, segment.base_offset), wait=True)
        runs = _runs_after(segment, max(offset, segment.base_offset), wait=True)
        for begin, _, end, _ in [run, *runs] if run is not None else runs:
            if begin >= end_offset:
                break
            count += min(end, end_offset) - max(begin, offset)
    return count


class _Run(NamedTuple):
    """Adjacent hidden batches; ``end_position`` is that of the file if they are the last ones."""

    offset: int
    position: int
    end_offset: int
    end_position: int


def _run_at(segment: LogSegment, offset: int, *, wait: bool) -> _Run | None:
    """The run that contains ``offset``."""
    index = segment.indexes.controls
    number = index.at(offset, wait=wait) if len(index) else -1
    return None if number < 0 or number & 1 else _run(segment, number, wait=wait)


def _runs_after(segment: LogSegment, offset: int, *, wait: bool) -> Iterator[_Run]:
    """The runs that begin behind ``offset``, which may be in the gap behind one."""
    index = segment.indexes.controls
    first = index.at(offset, wait=wait) + 1
    for number in range(first + (first & 1), len(index), 2):
        yield _run(segment, number, wait=wait)


def _run(segment: LogSegment, number: int, *, wait: bool) -> _Run:
    index, end = segment.indexes.controls, segment.readable_end
    begin = index.boundary(number, wait=wait)
    assert begin is not None
    following = index.boundary(number + 1, wait=wait)
    return _Run(*begin, *(end if following is None else following))


class _Piece(NamedTuple):
    """A stretch of the file to be sent, then an empty batch if a run follows."""

    position: int
    end_position: int
    empty: bytes


class VisibleRecords:
    """Visible batches of a slice, and empty ones in the place of the others.

    Verified, warmed and closed as a :class:`LogSlice` is; then :meth:`read` gives what is sent.
    """

    __slots__ = ("_lead", "_pieces", "_slice", "next_offset")

    def __init__(
        self, lead: bytes, records: LogSlice | None, pieces: list[_Piece], next_offset: int
    ) -> None:
        self._lead = lead
        self._slice = records
        self._pieces = pieces
        self.next_offset = next_offset

    def __len__(self) -> int:
        """The size of what is sent, unless some of it turns out to be corrupt."""
        return len(self._lead) + sum(
            piece.end_position - piece.position + len(piece.empty) for piece in self._pieces
        )

    @property
    def needs_verification(self) -> bool:
        """Whether some of the bytes were not checked since the process started. Does no IO."""
        return self._slice is not None and self._slice.needs_verification

    def is_cached(self) -> bool:
        """Whether the first and the last page are in the page cache."""
        return self._slice is None or self._slice.is_cached()

    def warm(self) -> None:
        """Bring the bytes into the page cache, checking them; for a thread.

        Raises CorruptBatch as :meth:`LogSlice.verify` does.
        """
        if self._slice is not None:
            self._slice.warm()

    def read(self) -> bytes:
        """What is sent. May wait for the disk unless :meth:`is_cached`. Raises OSError."""
        if self._slice is None:
            return self._lead
        start = self._slice.position
        data = memoryview(self._slice.read())
        parts: list[bytes | memoryview] = [self._lead]
        for position, end_position, empty in self._pieces:
            parts.append(data[position - start : end_position - start])
            if end_position - start > len(data):
                break  # it was cut before a corrupt batch
            parts.append(empty)
        return b"".join(parts)

    def close(self) -> None:
        """Let go of the file. More than once does no harm."""
        if self._slice is not None:
            self._slice.close()


def read_visible(
    state: LogState,
    reader: LogReader,
    offset: int,
    max_bytes: int,
    max_offset: int,
    *,
    min_one_batch: bool,
    wait: bool,
) -> LogSlice | VisibleRecords | None:
    """Do what :meth:`Log.read_visible` states."""
    if not state.has_hidden:
        return reader.read(offset, max_bytes, max_offset, min_one_batch=min_one_batch, wait=wait)
    end = visible_end(state, min(max_offset, state.end_offset))
    lead = b""
    while state.log_start_offset <= offset < end:
        run = _run_at(state.segment_of(offset), offset, wait=wait)
        if run is None:
            break
        lead += _empty(state, run)
        offset = run.end_offset
    records = reader.read(
        offset, max(max_bytes - len(lead), 0), end, min_one_batch=min_one_batch, wait=wait
    )
    if records is None:
        return VisibleRecords(lead, None, [], offset) if lead else None
    try:
        pieces = _cut_out(state, records, wait=wait)
    except BlockingIOError:
        records.close()
        raise
    if not lead and len(pieces) == 1 and not pieces[0].empty:
        return records
    return VisibleRecords(lead, records, pieces, records.next_offset)


def _cut_out(state: LogState, records: LogSlice, *, wait: bool) -> list[_Piece]:
    pieces: list[_Piece] = []
    position, end_position = records.position, records.position + records.length
    for run in _runs_after(records.segment, records.first_offset, wait=wait):
        if run.position >= end_position:
            break
        pieces.append(_Piece(position, run.position, _empty(state, run)))
        position = run.end_position
        if position >= end_position:
            return pieces
    pieces.append(_Piece(position, end_position, b""))
    return pieces


def _empty(state: LogState, run: _Run) -> bytes:
    if run.end_offset - run.offset > _LONGEST:  # with a gap behind it, over which clients move
        return b""
    return empty_batch(run.offset, run.end_offset, state.epochs.epoch_at(run.offset))
