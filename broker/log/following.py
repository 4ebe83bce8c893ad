"""Appending what the leader has: whole batches, byte for byte, at the offsets they have there."""

from contextlib import suppress
from typing import Final

from qbus.records import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, read_header

from .appender import Appender, AppendInfo, RunWriter
from .scan import check_place
from .state import LogState

_NO_TIMESTAMP: Final = -1


class FollowerAppender:
    """Copies the leader's batches to one log.

    What clients may produce was the leader's to judge, by its settings at the time. Here only that
    matters which the log itself relies on: batches are whole and their sums right, offsets have no
    gaps but in logs that may have some, leader epochs never go back.
    """

    __slots__ = ("_appender", "_state", "_writer")

    def __init__(self, state: LogState, appender: Appender, writer: RunWriter) -> None:
        self._state = state
        self._appender = appender
        self._writer = writer

    def append(self, records: memoryview) -> AppendInfo:
        """Do what :meth:`Log.append_as_follower` states."""
        state = self._state
        with state.lock:
            state.check_usable()
            self._begin(records)
            first = state.end_offset
            gaps = state.active.gaps
            headers, problem = walk(records, first, state.epochs.latest_epoch, gaps=gaps)
            self._writer.write(records, headers)
            if problem is not None:
                raise problem
            return AppendInfo(first, state.end_offset - 1, _NO_TIMESTAMP, state.log_start_offset)

    def _begin(self, records: memoryview) -> None:
        """Let a log that has nothing yet begin with the batch within which the leader's starts.

        Records before its start were deleted there, up to anywhere; batches come whole.
        """
        state = self._state
        start = state.end_offset
        if state.active.size or len(state.segments) > 1:
            return
        with suppress(CorruptBatch):  # which is found again
            header = read_header(records)
            check_crc(records, header)
            if header.base_offset < start <= header.last_offset:
                self._appender.begin_at(header.base_offset)
                state.log_start_offset = start


def walk(
    records: memoryview, offset: int, epoch: int, *, gaps: bool
) -> tuple[list[BatchHeader], CorruptBatch | None]:
    """The batches that may follow ``offset`` and ``epoch``, up to what is wrong with the rest.

    With ``gaps``, offsets may be left out.
    """
    headers: list[BatchHeader] = []
    position = 0
    while not headers or len(records) - position >= HEADER_SIZE:
        try:
            header = read_header(records, position)
            if headers and position + header.size > len(records):
                break  # an answer's last batch may be cut by its size limit
            check_crc(records, header, position)
            check_place(header, offset, gaps=gaps)
            _check_epoch(header, epoch)
        except CorruptBatch as problem:
            return headers, problem
        headers.append(header)
        position += header.size
        offset, epoch = header.last_offset + 1, header.partition_leader_epoch
    return headers, None


def _check_epoch(header: BatchHeader, epoch: int) -> None:
    if header.partition_leader_epoch < epoch:
        raise CorruptBatch(
            f"leader epoch {header.partition_leader_epoch} after {epoch}"
            f" at offset {header.base_offset}"
        )
