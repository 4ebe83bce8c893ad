"""Control batches of Qbus's own: what a partition's log remembers about its records.

They are hidden: consumers are sent an empty batch in their place. There are two kinds.

A *delayed* batch (attribute bit 7) holds a producer's records, as they came, until they are due.
Its maximum timestamp is the time at which the broker took it in, from which delays count.

Any other holds control records. Each has the key of Kafka's control records (KIP-98):

====== ==== ===========
offset size field
====== ==== ===========
0      2    version, 0
2      2    type
====== ==== ===========

and one of these values, all integers big-endian. An entry is a delayed record's due time, in
milliseconds since the Unix epoch, and the offset where it lies.

===== =========== =================================================================================
type  name        value
===== =========== =================================================================================
1000  CARRIED     a delayed record that was carried to a new place: its due time (8 bytes), where it
                  lay before (8), the offset it was given first (8), the time it was taken in (8),
                  its own timestamp (8), then the record in the form of a batch of one
1001  DELIVERED   the records of the next batch are delivered: its CRC (4), count (4), then the due
                  times of the entries (8 each), then their offsets (8 each). The batch itself comes
                  next in the log; where another one does, this counts for nothing
1002  CANCELLED   entries: all due times (8 each), then all offsets (8 each)
1003  RESCHEDULED the new due time (8), then entries as above
1004  EXPIRED     entries as above: they were due too long ago, and are given up
1005  BOUND       an offset (8): no record that lies before it is delayed any more. Where a source
                  removed batches before its mirror had them, the copy has one in their place
===== =========== =================================================================================

Types 0 and 1 are Kafka's own: a transaction's abort and commit.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from qbus.errors import CorruptBatch
from qbus.records.decode import iter_records
from qbus.records.header import (
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    BatchHeader,
    Buffer,
    write_header,
)

_CONTROL: Final = 0x20
_KEY: Final = struct.Struct(">hh")
_INT64: Final = struct.Struct(">q")
_VERSION: Final = 0
_NONE: Final = -1
_CARRIED: Final = struct.Struct(">qqqqq")
_DELIVERED: Final = struct.Struct(">II")


class ControlType(IntEnum):
    """What a control record says."""

    CARRIED = 1000
    DELIVERED = 1001
    CANCELLED = 1002
    RESCHEDULED = 1003
    EXPIRED = 1004
    BOUND = 1005


class Entries(NamedTuple):
    """Delayed records: their due times in milliseconds, and the offsets where they lie."""

    dues: tuple[int, ...]
    offsets: tuple[int, ...]


class ControlRecord(NamedTuple):
    """One control record: its offset, type and value."""

    offset: int
    type: ControlType
    value: bytes


class Carried(NamedTuple):
    """A delayed record in its new place. Times in milliseconds since the Unix epoch.

    It lay at ``from_offset``, was given ``original_offset`` when it came at ``taken_ms``, and is in
    ``batch``, alone, with the ``timestamp`` of its producer.
    """

    due: int
    from_offset: int
    original_offset: int
    taken_ms: int
    timestamp: int
    batch: bytes


class Announcement(NamedTuple):
    """Records that are delivered if the next batch has this CRC and count."""

    crc: int
    records_count: int
    entries: Entries


def encode_entries(entries: Entries) -> bytes:
    """The bytes of ``entries`` in a value."""
    count = len(entries.dues)
    return struct.pack(f">{2 * count}q", *entries.dues, *entries.offsets)


def decode_entries(value: Buffer, position: int = 0) -> Entries:
    """The entries from ``position`` on. Raises CorruptBatch."""
    size = len(value) - position
    if size < 0 or size % 16:
        raise CorruptBatch(f"{size} bytes are no entries of control records")
    numbers = struct.unpack_from(f">{size // 8}q", value, position)
    half = len(numbers) // 2
    return Entries(numbers[:half], numbers[half:])


def encode_announcement(announcement: Announcement) -> bytes:
    """The value of a DELIVERED record."""
    return _DELIVERED.pack(announcement.crc, announcement.records_count) + encode_entries(
        announcement.entries
    )


def decode_announcement(value: bytes) -> Announcement:
    """The meaning of a DELIVERED record's value. Raises CorruptBatch."""
    if len(value) < _DELIVERED.size:
        raise CorruptBatch(f"{len(value)} bytes announce no batch")
    crc, count = _DELIVERED.unpack_from(value)
    return Announcement(crc, count, decode_entries(value, _DELIVERED.size))


def encode_rescheduled(due: int, entries: Entries) -> bytes:
    """The value of a RESCHEDULED record: ``entries`` are due at ``due`` from now on."""
    return _INT64.pack(due) + encode_entries(entries)


def decode_rescheduled(value: bytes) -> tuple[int, Entries]:
    """The new due time, and what has it. Raises CorruptBatch."""
    return decode_int64(value), decode_entries(value, _INT64.size)


def encode_carried(carried: Carried) -> bytes:
    """The value of a CARRIED record."""
    return _CARRIED.pack(*carried[:5]) + carried.batch


def decode_carried(value: bytes) -> Carried:
    """The meaning of a CARRIED record's value. Raises CorruptBatch."""
    if len(value) < _CARRIED.size:
        raise CorruptBatch(f"{len(value)} bytes are no carried record")
    due, from_offset, original_offset, taken_ms, timestamp = _CARRIED.unpack_from(value)
    batch = value[_CARRIED.size :]
    return Carried(due, from_offset, original_offset, taken_ms, timestamp, batch)


def encode_int64(number: int) -> bytes:
    """The value of a BOUND record."""
    return _INT64.pack(number)


def decode_int64(value: bytes) -> int:
    """The number that a value begins with. Raises CorruptBatch."""
    if len(value) < _INT64.size:
        raise CorruptBatch(f"{len(value)} bytes are no 64-bit integer")
    number: int = _INT64.unpack_from(value)[0]
    return number


def control_batch(
    records: Sequence[tuple[ControlType, bytes]],
    timestamp: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """One hidden batch of control records, each a type and a value; at least one.

    Its offsets and leader epoch are set when it is appended. With a producer's id, epoch and first
    sequence it stands for as many records of that producer.
    """
    from qbus.records.encode import build_batch  # noqa: PLC0415 - loads the codec

    items = [(_KEY.pack(_VERSION, type_), value, (), timestamp) for type_, value in records]
    return build_batch(
        items,
        attributes=_CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def iter_control(batch: Buffer) -> Iterator[ControlRecord]:
    """The control records of a hidden batch that is not a delayed one.

    Those of a later version, and of types that are not known, are passed over. Raises CorruptBatch.
    """
    for record in iter_records(batch):
        type_ = control_type(record.key)
        if type_ is not None:
            yield ControlRecord(record.offset, type_, record.value or b"")


def control_type(key: bytes | None) -> ControlType | None:
    """What a control record with this key says, if that is known. Raises CorruptBatch."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("a control record has no key")
    version, number = _KEY.unpack_from(key)
    return ControlType(number) if version == _VERSION and number in _KNOWN else None


_KNOWN: Final = frozenset(type_.value for type_ in ControlType)


def empty_batch(base_offset: int, end_offset: int, leader_epoch: int) -> bytes:
    """A batch without records in the place of those from ``base_offset`` to before ``end_offset``.

    Compaction leaves such batches in Kafka's logs: every client moves its position over them.
    """
    batch = bytearray(HEADER_SIZE)
    write_header(
        batch,
        BatchHeader(
            base_offset=base_offset,
            batch_length=HEADER_SIZE - LENGTH_PREFIX,
            partition_leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=end_offset - base_offset - 1,
            base_timestamp=_NONE,
            max_timestamp=_NONE,
            producer_id=_NONE,
            producer_epoch=_NONE,
            base_sequence=_NONE,
            records_count=0,
        ),
    )
    return bytes(batch)
