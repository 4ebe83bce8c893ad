"""Records of a partition's log, for those who look at jobs without taking them. For threads."""

import logging
from collections.abc import Mapping
from typing import Final

from qbus.delay import DELAYED_OFFSET, DELIVER_AT
from qbus.errors import ApiError, CorruptBatch, ErrorCode, OversizedBatch
from qbus.jobs import JobOptions
from qbus.records import ConsumerRecord, iter_batches
from qbus.records.bounds import most_bytes
from qbus.records.consume import decode_some

from ..log import Log

_log = logging.getLogger(__name__)

READ_BYTES: Final = 1 << 20
_SLICE: Final = 64 << 10  # bytes that are decoded at once
_EXPANSION: Final = 16  # times that what is decoded may be as large as what is read
_OVERHEAD: Final = 200  # bytes that a record takes besides its value
_MOST_SEARCHED: Final = 64 << 20  # bytes that are searched for one record


def read_some(
    log: Log, topic: str, partition: int, offset: int, end: int, size: int = READ_BYTES
) -> tuple[list[ConsumerRecord], int]:
    """Records from ``offset`` on and before ``end``, of about ``size`` bytes, and where they end.

    Without hidden batches and control records, so there may be none before that. Where the log
    starts later, from there on. A batch beyond the bounds of a broker is passed over, which is
    logged. Raises ApiError.
    """
    offset = max(offset, log.log_start_offset)
    if offset >= end:
        return [], offset
    found = log.read(offset, size, end, wait=True)
    if found is None:
        return [], end
    with found:
        if found.needs_verification:
            found.verify()
        try:
            data = found.read()
            records, is_whole = _decode(data, topic, partition, offset, _EXPANSION * size)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except CorruptBatch as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        return records, found.next_offset if is_whole else records[-1].offset + 1


def _decode(
    data: bytes, topic: str, partition: int, offset: int, most: int
) -> tuple[list[ConsumerRecord], bool]:
    """Records from ``offset`` on of about ``most`` bytes, and whether they are all there are."""
    records: list[ConsumerRecord] = []
    for header, batch in iter_batches(data):
        if header.is_control or header.is_hidden:
            continue
        bound = most_bytes(len(batch))
        try:
            for some in decode_some(batch, header, topic, partition, offset, _SLICE, bound):
                records += some
                most -= sum(_OVERHEAD + len(record.value or b"") for record in some)
                if most <= 0 and records:
                    return records, False
        except OversizedBatch as error:
            first = header.base_offset
            _log.warning("%s-%d: passed over the batch at %d: %s", topic, partition, first, error)
    return records, True


def read_one(log: Log, topic: str, partition: int, offset: int, end: int) -> ConsumerRecord | None:
    """The record at ``offset``, if there is one. Raises ApiError."""
    if not log.log_start_offset <= offset < end:
        return None
    records, _ = read_some(log, topic, partition, offset, end, 1)
    return records[0] if records and records[0].offset == offset else None


def find_delivered(
    log: Log, topic: str, partition: int, wanted: Mapping[int, int], end: int
) -> dict[int, ConsumerRecord]:
    """Records that were delayed, by the offsets that their producers were told.

    ``wanted`` maps these to when they were due, in milliseconds since the Unix epoch. One that was
    rescheduled to an earlier time is not found. Raises ApiError.
    """
    # A delivered record lies behind the delayed one.
    left = {str(offset).encode(): offset for offset in wanted if offset < end}
    found: dict[int, ConsumerRecord] = {}
    if not left:
        return found
    first = log.offset_for_timestamp(min(wanted[offset] for offset in left.values()))
    offset, searched = 0 if first is None else first.offset, 0
    while left and first is not None and offset < end and searched < _MOST_SEARCHED:
        records, offset = read_some(log, topic, partition, offset, end)
        searched += READ_BYTES
        for record in records:
            original = original_of(record.headers)
            told = None if original is None else left.pop(original, None)
            if told is not None:
                found[told] = record
    return found


def original_of(headers: tuple[tuple[str, bytes | None], ...]) -> bytes | None:
    """The offset that a delivered record was told first, as text; None: it was not delayed."""
    for name, value in headers:
        if name == DELAYED_OFFSET:
            return value
    return None


def due_ms(timestamp: int, headers: tuple[tuple[str, bytes | None], ...]) -> int:
    """When a record was to be due first; ``timestamp`` is its own, which may be later."""
    for name, value in headers:
        if name == DELIVER_AT and value is not None and value.isdigit():
            return int(value)
    return timestamp


def created_ms(
    timestamp: int, headers: tuple[tuple[str, bytes | None], ...], options: JobOptions
) -> int:
    """When a job was added, in milliseconds since the Unix epoch."""
    return due_ms(timestamp, headers) - 1000 * options.delay if options.delay else timestamp
