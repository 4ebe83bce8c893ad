"""Appending what another cluster's log has: whole batches, at the offsets they have there.

Only the leader epoch, which is this cluster's, and which no checksum covers, becomes another.
Timestamps, producers' ids, epochs and sequences stay, and are not judged: the source did that, and
here offsets decide. A batch below the end of the log is there already: a mirror that starts again
sends some twice. One beyond it leaves a gap, as the source has one. But the sender has to say from
where on there is nothing before its first batch: else a request that overtakes another one, or
comes when that one was refused, would leave out what it held.

Hidden batches are appended as all others. If the source removed some batches before they were
copied, the copy cannot know what they said of delayed records before them; but no record is held
back at the source that lies before its log's start: what still was held back was carried behind it.
So a BOUND is put into such a gap, ahead of itself, and nothing before it counts any more. Until
what was carried is copied as well, the copy holds back less than its source: a mirror that ends
before that loses it, and the fold knows of how many records that may be true.

Markers of transactions are copied as all others. Those that such a gap took will never come: each
transaction that is open before it is aborted by a marker of the copy's own, in the gap as well. Its
records lie before the source's log start, where nobody reads them at the source either.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, check_crc, read_header, set_base_offset
from qbus.records.control import (
    ControlType,
    Marker,
    control_batch,
    encode_int64,
    marker_batch,
)

from .appender import Appender, AppendInfo, RunWriter
from .config import LogConfig
from .state import LogState

UNKNOWN: Final = -1
_NO_TIMESTAMP: Final = -1
_LAST_OFFSET: Final = 2**63 - 2


class Provenance(NamedTuple):
    """Where batches come from, as their mirror says.

    ``source`` is the IDC, ``topic_id`` the topic's there, or empty. Between ``follows`` and the
    first batch there is nothing at the source. Its log starts at ``log_start_offset``, or UNKNOWN.
    """

    source: str
    topic_id: str
    follows: int
    log_start_offset: int = UNKNOWN


class MirrorAppender:
    """Copies another cluster's batches to one log."""

    __slots__ = ("_appender", "_state", "_writer")

    def __init__(self, state: LogState, appender: Appender, writer: RunWriter) -> None:
        self._state = state
        self._appender = appender
        self._writer = writer

    def append(self, batches: memoryview, provenance: Provenance, leader_epoch: int) -> AppendInfo:
        """Do what :meth:`Log.append_mirrored` states."""
        state = self._state
        headers = _read(batches)
        first, last = headers[0].base_offset, headers[-1].last_offset
        with state.lock:
            state.check_usable()
            _check_provenance(provenance, state.config, first)
            end = state.end_offset
            if provenance.follows > end:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"what the source has from offset {end} to {provenance.follows} is missing",
                )
            new = _behind(headers, end)
            if new:
                self._appender.check_epoch(leader_epoch)
                is_begun = self._begin(provenance, new[0].base_offset)
                if end < min(new[0].base_offset, provenance.log_start_offset):
                    self._give_up_before(new[0].base_offset, leader_epoch)
                self._write(batches, headers, new, leader_epoch)
                if is_begun:
                    self._start_within(new[0], provenance.log_start_offset)
            return AppendInfo(
                first,
                last,
                _NO_TIMESTAMP,
                state.log_start_offset,
                duplicate=not new,
                size=sum(header.size for header in new),
                records=sum(header.records_count for header in new),
            )

    def _begin(self, provenance: Provenance, first_offset: int) -> bool:
        """Let a log that never had anything start where the source's does; whether it is one."""
        if self._state.end_offset or self._state.active.size:
            return False
        source_start = provenance.log_start_offset
        start = min(source_start, first_offset) if source_start >= 0 else first_offset
        if start:
            self._appender.begin_at(start)
        return True

    def _start_within(self, batch: BatchHeader, source_start: int) -> None:
        """Let a log that begins with ``batch`` start where the source's does, if that is within it.

        Records before that were deleted at the source; batches come whole.
        """
        state = self._state
        if batch.base_offset < source_start <= batch.last_offset:
            state.log_start_offset = source_start
            state.epochs.truncate_from_start(source_start)

    def _give_up_before(self, offset: int, leader_epoch: int) -> None:
        """Hold nothing back that lies before a gap, which ends at ``offset``; leave nothing open.

        As far as there is room in the gap: an offset for each open transaction, and one more.
        """
        state = self._state
        now_ms = state.clock.time_ms()
        batches = [
            marker_batch(
                producer.producer_id,
                producer.epoch,
                Marker(False, max(producer.coordinator_epoch, 0)),
                now_ms,
            )
            for producer in state.producers
            if producer.transaction_start >= 0
        ]
        if state.controls.fold.needed_from is not None:
            batches.append(control_batch([(ControlType.BOUND, encode_int64(offset))], now_ms))
        batches = batches[-(offset - state.end_offset) :]
        for place, batch in enumerate(batches, offset - len(batches)):
            set_base_offset(batch, place, leader_epoch)
            self._writer.write(memoryview(batch), [read_header(batch)])

    def _write(
        self,
        batches: memoryview,
        headers: Sequence[BatchHeader],
        new: Sequence[BatchHeader],
        leader_epoch: int,
    ) -> None:
        start = position = sum(header.size for header in headers[: len(headers) - len(new)])
        for header in new:
            set_base_offset(batches, header.base_offset, leader_epoch, position)
            position += header.size
        ours = [header._replace(partition_leader_epoch=leader_epoch) for header in new]
        self._writer.write(batches[start:], ours)


def _check_provenance(provenance: Provenance, config: LogConfig, first_offset: int) -> None:
    source = config.qbus_mirror_source
    if provenance.source != source:
        is_what = f"a mirror of the one in {source}" if source else "no mirror"
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"the topic is {is_what}, not of {provenance.source}"
        )
    topic_id = config.qbus_mirror_topic_id
    if provenance.topic_id and topic_id and provenance.topic_id != topic_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the topic is a mirror of the one with the id {topic_id},"
            f" which is another one in {source} by now: {provenance.topic_id}",
        )
    if not 0 <= provenance.follows <= first_offset:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the batch of offset {first_offset} cannot follow {provenance.follows}",
        )


def _behind(headers: Sequence[BatchHeader], end: int) -> Sequence[BatchHeader]:
    """Those of ``headers`` that ``end`` comes before. Raises ApiError where one goes across."""
    for at, header in enumerate(headers):
        if header.base_offset >= end:
            return headers[at:]
        if header.last_offset >= end:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"the batch of offsets {header.base_offset} to {header.last_offset} goes across"
                f" the log's end, {end}: the log holds something else than the source",
            )
    return ()


def _read(batches: memoryview) -> list[BatchHeader]:
    """The headers of ``batches``, which must be whole and in order. Raises ApiError."""
    headers: list[BatchHeader] = []
    position = offset = 0
    while position < len(batches) or not headers:
        header = read_header(batches, position)
        check_crc(batches, header, position)
        _check_offsets(header, offset)
        headers.append(header)
        position += header.size
        offset = header.last_offset + 1
    return headers


def _check_offsets(header: BatchHeader, offset: int) -> None:
    base, delta, count = header.base_offset, header.last_offset_delta, header.records_count
    if not offset <= base <= _LAST_OFFSET - max(delta, 0):
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"a batch of offset {base} cannot be at {offset} or later"
        )
    if not (delta >= 0 and 0 <= count <= delta + 1):
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"{count} records do not fit last offset delta {delta}"
        )
