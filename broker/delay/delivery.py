"""What is due becomes visible: one append of the accounting and of the records themselves.

No batch is larger than ``max.message.bytes``, unless a single record is: with its added header, or
where it came compressed. Followers and consumers get such a batch, as they get the first batch of
any response whole.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from qbus import dead_letters
from qbus.delay import DELAY, DELAYED_OFFSET, DELIVER_AT, NO_TTL, TTL
from qbus.records import HEADER_SIZE, Compression, read_header, set_log_append_time
from qbus.records.control import (
    Announcement,
    ControlType,
    Entries,
    control_batch,
    encode_announcement,
    encode_entries,
)

from ..log import LogConfig
from .fold import DelayFold
from .held import HeldRecord, HeldRecords, read_entry
from .schedule import Held

MOST_RECORDS: Final = 5_000
MOST_BYTES: Final = 512 * 1024
MOST_LOOKED_AT: Final = 10_000
"""How many of the first due records of a partition are looked at where some of them wait."""

_OVERHEAD: Final = 64  # bytes that a record takes besides its own, with the header that is added


class Due(NamedTuple):
    """What is due now: records to deliver, those that are due too late, and unreadable ones.

    ``lost`` are those in whose place an operator has put an empty batch: they were damaged.
    """

    records: list[HeldRecord]
    expired: list[Held]
    unreadable: list[Held]
    lost: list[Held]

    def __bool__(self) -> bool:
        return bool(self.records or self.expired or self.lost)


def read_due(held: HeldRecords, entries: Sequence[Held], now_ms: int, *, wait: bool) -> Due:
    """The records of the first ``entries``, which are due, as many as a batch takes.

    Raises BlockingIOError, ApiError as :meth:`HeldRecords.read` does.
    """
    due = Due([], [], [], [])
    most_bytes = min(MOST_BYTES, held.log.config.max_message_bytes - HEADER_SIZE)
    size = 0
    for entry in entries:
        record = read_entry(held, entry, wait=wait)
        if record is None:
            is_lost = held.is_lost(entry.offset, wait=wait)
            (due.lost if is_lost else due.unreadable).append(entry)
            continue
        size += size_of(record)
        if record.ttl != NO_TTL and now_ms > entry.due + record.ttl:
            due.expired.append(entry)
        elif due.records and size > most_bytes:
            break
        else:
            due.records.append(record)
        if size >= most_bytes:
            break
    return due


def size_of(record: HeldRecord) -> int:
    """About how many bytes a record takes in a batch, at most."""
    size = _OVERHEAD
    if record.key is not None:
        size += len(record.key)
    if record.value is not None:
        size += len(record.value)
    for name, value in record.headers:
        size += len(name) + 8
        if value is not None:
            size += len(value)
    return size


def read_part(held: HeldRecords, entries: Sequence[Held]) -> tuple[list[HeldRecord], int]:
    """The records of the first ``entries`` in at most ``MOST_BYTES``, or one; of how many entries.

    Those that cannot be read are left out. For a thread: it reads the log. Raises ApiError,
    OSError.
    """
    records: list[HeldRecord] = []
    size = 0
    for number, entry in enumerate(entries):
        record = read_entry(held, entry, wait=True)
        if record is None:
            continue
        size += size_of(record)
        if records and size > MOST_BYTES:
            return records, number
        records.append(record)
    return records, len(entries)


def still_held(due: Due, fold: DelayFold) -> Due:
    """``due`` without what was cancelled or rescheduled while it was read."""
    contains = fold.schedule.contains
    return Due(
        [record for record in due.records if contains(record.due, record.offset)],
        [entry for entry in due.expired if contains(entry.due, entry.offset)],
        due.unreadable,
        [entry for entry in due.lost if contains(entry.due, entry.offset)],
    )


def to_deliver(due: Due, config: LogConfig, now_ms: int) -> bytearray:
    """The batches to append: the accounting, then the records, if any are to be delivered."""
    records: list[tuple[ControlType, bytes]] = []
    if due.expired or due.lost:
        entries = _entries([*due.expired, *due.lost])
        records.append((ControlType.EXPIRED, encode_entries(entries)))
    batch = bytearray()
    if due.records:
        batch = _visible(due.records)
        if config.uses_log_append_time:
            set_log_append_time(batch, now_ms)
        header = read_header(batch)
        announcement = Announcement(header.crc, header.records_count, _entries(due.records))
        records.append((ControlType.DELIVERED, encode_announcement(announcement)))
    return control_batch(records, now_ms) + batch


def to_dead_letters(
    records: Sequence[HeldRecord],
    topic: str,
    partition: int,
    compression: Compression = Compression.NONE,
) -> bytearray:
    """The batch for the dead letter topic of records of the partition ``partition`` of ``topic``.

    The records lose their headers of delays: with them they would be held back again.
    """
    from qbus.records.encode import encode_records  # noqa: PLC0415 - loads the codec

    source = (
        (dead_letters.TOPIC, topic.encode()),
        (dead_letters.PARTITION, b"%d" % partition),
    )
    return encode_records(
        [record.value for record in records],
        [record.key for record in records],
        [
            (
                *(header for header in record.headers if header[0] not in _TIMES),
                *source,
                (dead_letters.OFFSET, b"%d" % record.original_offset),
                (dead_letters.MESSAGE, b"due at %d, qbus-ttl %d ms" % (record.due, record.ttl)),
            )
            for record in records
        ],
        [record.timestamp for record in records],
        base_timestamp=records[0].timestamp,
        compression=compression,
    )


_TIMES: Final = frozenset((DELIVER_AT, DELAY, TTL))


def _entries(held: Sequence[HeldRecord] | Sequence[Held]) -> Entries:
    return Entries(tuple(one.due for one in held), tuple(one.offset for one in held))


def _visible(records: list[HeldRecord]) -> bytearray:
    from qbus.records.encode import encode_records  # noqa: PLC0415 - loads the codec

    return encode_records(
        [record.value for record in records],
        [record.key for record in records],
        [(*record.headers, (DELAYED_OFFSET, b"%d" % record.original_offset)) for record in records],
        [record.due for record in records],
        base_timestamp=records[0].due,
        compression=Compression.NONE,
    )
