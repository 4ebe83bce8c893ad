"""Appending what the leader has: whole batches, byte for byte, at the offsets they have there."""

from collections.abc import Iterator, Sequence

from qbus.records import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, read_header

from .appender import Appender, AppendInfo
from .state import LogState

_NO_TIMESTAMP = -1


class FollowerAppender:
    """Copies the leader's batches to one log.

    What clients may produce was the leader's to judge, by its settings at the time. Here only that
    matters which the log itself relies on: batches are whole and their sums right, offsets have no
    gaps, leader epochs never go back.
    """

    __slots__ = ("_appender", "_state")

    def __init__(self, state: LogState, appender: Appender) -> None:
        self._state = state
        self._appender = appender

    def append(self, records: memoryview) -> AppendInfo:
        """What :meth:`Log.append_as_follower` says."""
        state = self._state
        with state.lock:
            state.check_usable()
            first = state.end_offset
            headers, problem = walk(records, first, state.epochs.latest_epoch)
            position = 0
            for run in self._runs(headers):
                end = position + _size(run)
                self._append(records[position:end], run)
                position = end
            if problem is not None:
                raise problem
            return AppendInfo(first, state.end_offset - 1, _NO_TIMESTAMP, state.log_start_offset)

    def _runs(self, headers: Sequence[BatchHeader]) -> Iterator[Sequence[BatchHeader]]:
        """Batches to write at once: all that fit into the active segment, else one by one."""
        _, position = self._state.active.end
        if headers and position + _size(headers) <= self._state.config.segment_bytes:
            yield headers
        else:
            yield from ((header,) for header in headers)

    def _append(self, batches: memoryview, run: Sequence[BatchHeader]) -> None:
        state = self._state
        now_ms = state.clock.time_ms()
        records = run[-1].last_offset + 1 - run[0].base_offset
        timestamp = max(header.max_timestamp for header in run)
        segment = self._appender.segment_for(len(batches), records, timestamp, now_ms)
        try:
            segment.append_run(batches, run, state.config.index_interval_bytes)
        except OSError as error:
            raise self._appender.write_failed(segment, error) from error
        for header in run:
            state.epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                state.producers.update(header, now_ms)


def _size(headers: Sequence[BatchHeader]) -> int:
    return sum(header.size for header in headers)


def walk(
    records: memoryview, offset: int, epoch: int
) -> tuple[list[BatchHeader], CorruptBatch | None]:
    """The batches that may follow ``offset`` and ``epoch``, up to what is wrong with the rest."""
    headers: list[BatchHeader] = []
    position = 0
    while not headers or len(records) - position >= HEADER_SIZE:
        try:
            header = read_header(records, position)
            if headers and position + header.size > len(records):
                break  # an answer's last batch may be cut by its size limit
            check_crc(records, header, position)
            _check_place(header, offset, epoch)
        except CorruptBatch as problem:
            return headers, problem
        headers.append(header)
        position += header.size
        offset, epoch = header.last_offset + 1, header.partition_leader_epoch
    return headers, None


def _check_place(header: BatchHeader, offset: int, epoch: int) -> None:
    if header.base_offset != offset:
        raise CorruptBatch(f"batch begins with offset {header.base_offset}, not {offset}")
    if header.last_offset_delta < 0 or header.records_count != header.last_offset_delta + 1:
        raise CorruptBatch(
            f"{header.records_count} records do not fit"
            f" last offset delta {header.last_offset_delta}"
        )
    if header.partition_leader_epoch < epoch:
        raise CorruptBatch(
            f"leader epoch {header.partition_leader_epoch} after {epoch} at offset {offset}"
        )
