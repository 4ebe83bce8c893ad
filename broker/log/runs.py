"""Appending batches that have their offsets and leader epochs already."""

from collections.abc import Iterator, Sequence

from qbus.records import BatchHeader

from .appender import Appender
from .jumps import MAX_RELATIVE_OFFSET
from .state import LogState


class RunWriter:
    """Writes runs of batches to one log, as few writes as segments allow."""

    __slots__ = ("_appender", "_state")

    def __init__(self, state: LogState, appender: Appender) -> None:
        self._state = state
        self._appender = appender

    def write(self, batches: memoryview, headers: Sequence[BatchHeader]) -> None:
        """Append ``batches``, whose ``headers`` these are; under the log's lock.

        Raises ApiError KAFKA_STORAGE_ERROR: only the first of them are there, if any.
        """
        position = 0
        for run in self._runs(headers):
            end = position + _size(run)
            self._append(batches[position:end], run)
            position = end

    def _runs(self, headers: Sequence[BatchHeader]) -> Iterator[Sequence[BatchHeader]]:
        """Batches to write at once: all that fit into the active segment, else one by one."""
        active = self._state.active
        if (
            headers
            and active.size + _size(headers) <= self._state.config.segment_bytes
            and headers[-1].last_offset - active.base_offset <= MAX_RELATIVE_OFFSET
        ):
            yield headers
        else:
            yield from ((header,) for header in headers)

    def _append(self, batches: memoryview, run: Sequence[BatchHeader]) -> None:
        state = self._state
        now_ms = state.clock.time_ms()
        reached = state.end_offset
        timestamp = max(header.max_timestamp for header in run)
        segment = self._appender.segment_for(
            len(batches), run[0].base_offset, run[-1].last_offset, timestamp, now_ms
        )
        try:
            segment.append_run(batches, run, state.config.index_interval_bytes)
        except OSError as error:
            raise self._appender.write_failed(segment, error) from error
        for header in run:
            state.epochs.assign(header.partition_leader_epoch, reached)
            reached = header.last_offset + 1
            if header.producer_id >= 0:
                state.producers.update(header, now_ms)


def _size(headers: Sequence[BatchHeader]) -> int:
    return sum(header.size for header in headers)
