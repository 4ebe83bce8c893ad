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
1010  SHARED      what a share group did with records before this one: the length of its name (2),
                  the name in UTF-8, then changes
1011  RESULT      what came of a record that a share group has done: the length of the group's name
                  (2), the name in UTF-8, the record's offset (8), the result
===== =========== =================================================================================

A change is its kind (1 byte), the number of its further bytes (1), the first and the last offset of
the records that it is about (8 each), then the further bytes. Unknown kinds are passed over.

==== ============ =================================================================================
kind name         meaning
==== ============ =================================================================================
1    ACKNOWLEDGED they are done
2    ARCHIVED     they are done with, but not as they should be: nobody gets them any more
3    RETURNED     they are to be given out again. Further bytes: how often they were given out (2),
                  how many of these deliveries were refused (2), how many ended otherwise, as their
                  time was up (2), flags (1; 1: nobody is to get them, for they were rejected), and
                  the time before which they are not given out, in milliseconds since the Unix epoch
                  (8)
4    STARTED      the group begins at ``first``; what was known of it counts for nothing
5    FORGOTTEN    the group is not known any more
==== ============ =================================================================================

Offsets without a record, of hidden batches for instance, are done together with their neighbours.
A change of records that are done already changes nothing of them: now and then all before the start
of a group is ARCHIVED again, so that replicas that begin with what is left of a log know the group.
A SHARED record without changes says no more than that there is the group.

Types 0 and 1 are Kafka's own, in batches that are transactional, and so not hidden: the markers
that end transactions (KIP-98). One marker is a batch with one record; its value:

====== ==== =================================================================
offset size field
====== ==== =================================================================
0      2    version, 0
2      4    epoch of the transaction coordinator that had it written
====== ==== =================================================================
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from qbus.errors import CorruptBatch
from qbus.records.decode import iter_stored
from qbus.records.fields import encode_varint
from qbus.records.header import (
    CODEC_BITS,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    BatchHeader,
    Buffer,
    read_header,
    write_header,
    write_new_header,
)

_CONTROL: Final = 0x20
_TRANSACTIONAL: Final = 0x10
_MARKER: Final = struct.Struct(">hi")
_KEY: Final = struct.Struct(">hh")
_INT64: Final = struct.Struct(">q")
_VERSION: Final = 0
_NONE: Final = -1
_MAX_OFFSET: Final = (1 << 62) - 1
_LONGEST: Final = 35  # bits of a number
_AROUND: Final = 3  # bytes of a record before and behind its fields: attributes, time, no headers
_CARRIED: Final = struct.Struct(">qqqqq")
_DELIVERED: Final = struct.Struct(">II")
_LENGTH: Final = struct.Struct(">H")
_CHANGE: Final = struct.Struct(">BBqq")
_HISTORY: Final = struct.Struct(">HHHBq")
_FEW: Final = 1024
_SMALL: Final = [encode_varint(number) for number in range(_FEW)]
_REJECTED: Final = 1
_MOST: Final = 0xFFFF  # that is counted


class ControlType(IntEnum):
    """What a control record says."""

    CARRIED = 1000
    DELIVERED = 1001
    CANCELLED = 1002
    RESCHEDULED = 1003
    EXPIRED = 1004
    BOUND = 1005
    SHARED = 1010
    RESULT = 1011


class MarkerType(IntEnum):
    """How a marker ends a transaction."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The end of a transaction, as its marker says."""

    is_commit: bool
    coordinator_epoch: int


class ChangeKind(IntEnum):
    """What a change of a SHARED record says."""

    ACKNOWLEDGED = 1
    ARCHIVED = 2
    RETURNED = 3
    STARTED = 4
    FORGOTTEN = 5


class History(NamedTuple):
    """What a returned record went through so far; all counts are totals.

    It was given out ``deliveries`` times, of which ``nacks`` were refused and ``timeouts`` ended as
    their time was up. It is not given out before ``not_before``, in milliseconds since the Unix
    epoch; if it is ``rejected``, never.
    """

    deliveries: int = 0
    nacks: int = 0
    timeouts: int = 0
    not_before: int = 0
    rejected: bool = False


class Change(NamedTuple):
    """What a share group did with the records from ``first`` to ``last``, both included.

    ``history``: of records that were RETURNED.
    """

    kind: ChangeKind
    first: int
    last: int
    history: History = History()


class Shared(NamedTuple):
    """The changes that a share group made at a time, in their order."""

    group: str
    changes: list[Change]


class SharedResult(NamedTuple):
    """What came of the record at ``offset``, which ``group`` has done."""

    group: str
    offset: int
    body: bytes


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


def encode_shared(shared: Shared) -> bytes:
    """The value of a SHARED record. Counts of more than 65535 are written as 65535."""
    parts = [_encode_name(shared.group)]
    for kind, first, last, history in shared.changes:
        if kind is ChangeKind.RETURNED:
            parts.append(_CHANGE.pack(kind, _HISTORY.size, first, last))
            parts.append(encode_history(history))
        else:
            parts.append(_CHANGE.pack(kind, 0, first, last))
    return b"".join(parts)


def decode_shared(value: bytes) -> Shared:
    """The meaning of a SHARED record's value, without changes of unknown kinds.

    Raises CorruptBatch.
    """
    group, position = _decode_name(value)
    changes = []
    end = len(value)
    while position < end:
        if end - position < _CHANGE.size:
            raise CorruptBatch("a change is cut")
        number, size, first, last = _CHANGE.unpack_from(value, position)
        position += _CHANGE.size
        if end - position < size:
            raise CorruptBatch("a change is cut")
        kind = _KNOWN_KINDS.get(number)
        if kind is not None:
            if first > last or first < 0:
                raise CorruptBatch(f"a change of the records from {first} to {last}")
            history = _NO_HISTORY
            if kind is ChangeKind.RETURNED:
                history = decode_history(value[position : position + size])
            changes.append(Change(kind, first, last, history))
        position += size
    return Shared(group, changes)


def encode_history(history: History) -> bytes:
    """A history, in the 15 bytes that a change has of it."""
    deliveries, nacks, timeouts, not_before, rejected = history
    return _HISTORY.pack(
        min(deliveries, _MOST),
        min(nacks, _MOST),
        min(timeouts, _MOST),
        _REJECTED if rejected else 0,
        not_before,
    )


def decode_history(data: bytes) -> History:
    """The history that ``data`` begins with. Raises CorruptBatch."""
    if len(data) < _HISTORY.size:
        raise CorruptBatch(f"{len(data)} bytes are no history")
    deliveries, nacks, timeouts, flags, not_before = _HISTORY.unpack_from(data)
    return History(deliveries, nacks, timeouts, not_before, bool(flags & _REJECTED))


HISTORY_SIZE: Final = _HISTORY.size
"""The bytes that :func:`encode_history` returns."""


def encode_result(result: SharedResult) -> bytes:
    """The value of a RESULT record."""
    return _encode_name(result.group) + _INT64.pack(result.offset) + result.body


def decode_result(value: bytes) -> SharedResult:
    """The meaning of a RESULT record's value. Raises CorruptBatch."""
    group, position = _decode_name(value)
    offset = decode_int64(value[position:])
    return SharedResult(group, offset, value[position + _INT64.size :])


def _encode_name(name: str) -> bytes:
    encoded = name.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _decode_name(value: bytes) -> tuple[str, int]:
    """A name that a value begins with, and where it ends."""
    if len(value) < _LENGTH.size:
        raise CorruptBatch(f"{len(value)} bytes have no name")
    length: int = _LENGTH.unpack_from(value)[0]
    end = _LENGTH.size + length
    if len(value) < end:
        raise CorruptBatch("a name is cut")
    try:
        return value[_LENGTH.size : end].decode(), end
    except UnicodeDecodeError:
        raise CorruptBatch("a name is not UTF-8") from None


def small_varint(number: int) -> bytes:
    """What :func:`encode_varint` makes of a number that is not negative, and mostly small."""
    return _SMALL[number] if number < _FEW else encode_varint(number)


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
    if not records:
        raise ValueError("a batch has at least one record")
    batch = bytearray(HEADER_SIZE)
    number = 0
    for type_, value in records:
        fields = b"%b\x08%b%b" % (
            small_varint(number),
            _KEY.pack(_VERSION, type_),
            small_varint(len(value)),
        )
        batch += small_varint(len(fields) + len(value) + _AROUND)
        batch += b"\0\0"
        batch += fields
        batch += value
        batch += b"\0"
        number += 1
    write_new_header(batch, _CONTROL, number, timestamp, producer_id, producer_epoch, base_sequence)
    return batch


def marker_batch(
    producer_id: int, producer_epoch: int, marker: Marker, timestamp: int
) -> bytearray:
    """The batch that ends a producer's transaction. Its offset and leader epoch are set later."""
    from qbus.records.encode import build_batch  # noqa: PLC0415 - loads the codec

    kind = MarkerType.COMMIT if marker.is_commit else MarkerType.ABORT
    value = _MARKER.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [(_KEY.pack(_VERSION, kind), value, (), timestamp)],
        attributes=_CONTROL | _TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=_NONE,
    )


def read_marker(batch: Buffer) -> Marker | None:
    """The marker that a transactional control batch holds.

    None if it holds none: compaction has emptied it, or it is of a type that is not known. Raises
    CorruptBatch.
    """
    for record in iter_stored(batch):
        key, value = record.key or b"", record.value or b""
        if len(key) < _KEY.size or len(value) < _MARKER.size:
            raise CorruptBatch("a transaction's marker is cut")
        kind: int = _KEY.unpack_from(key)[1]
        epoch: int = _MARKER.unpack_from(value)[1]
        if kind in (MarkerType.ABORT, MarkerType.COMMIT):
            return Marker(kind == MarkerType.COMMIT, epoch)
    return None


def iter_control(batch: Buffer, header: BatchHeader | None = None) -> Iterator[ControlRecord]:
    """The control records of a hidden batch that is not a delayed one; ``header`` is its own.

    Those of a later version, and of types that are not known, are passed over. Raises CorruptBatch.
    """
    plain = _plain_records(batch, read_header(batch) if header is None else header)
    return _all_records(batch) if plain is None else iter(plain)


def _all_records(batch: Buffer) -> Iterator[ControlRecord]:
    """The control records of a batch of any form, up to where it is damaged."""
    for record in iter_stored(batch):
        type_ = control_type(record.key)
        if type_ is not None:
            yield ControlRecord(record.offset, type_, record.value or b"")


def _plain_records(batch: Buffer, header: BatchHeader) -> list[ControlRecord] | None:
    """The same of a batch as :func:`control_batch` makes it; None: it is not quite such a one."""
    count, first = header.records_count, header.base_offset
    if (
        header.attributes & CODEC_BITS
        or header.size != len(batch)
        or header.last_offset_delta != count - 1
        or not 0 <= first <= _MAX_OFFSET - count
    ):
        return None
    data, position = bytes(batch), HEADER_SIZE
    found: list[ControlRecord] = []
    try:
        for number in range(count):
            length, begin = _number(data, position)
            end = begin + length
            delta, key = _number(data, begin + 2)
            size, value = _number(data, key + _KEY.size + 1)
            if (
                end > len(data)
                or value + size + 1 != end
                or delta != number
                or data[begin + 1] != 0
                or data[key] != _KEY.size << 1
                or data[end - 1] != 0
            ):
                return None
            type_ = control_type(data[key + 1 : key + 1 + _KEY.size])
            if type_ is not None:
                found.append(ControlRecord(first + number, type_, data[value : end - 1]))
            position = end
    except IndexError:
        return None
    return found if position == len(data) else None


def _number(data: bytes, position: int) -> tuple[int, int]:
    """A number that is not negative, and where it ends. Raises IndexError for anything else."""
    number = shift = 0
    while shift < _LONGEST:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number & 1:
                break
            return number >> 1, position
        shift += 7
    raise IndexError


def control_type(key: bytes | None) -> ControlType | None:
    """What a control record with this key says, if that is known. Raises CorruptBatch."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("a control record has no key")
    version, number = _KEY.unpack_from(key)
    return _KNOWN.get(number) if version == _VERSION else None


_KNOWN: Final = {type_.value: type_ for type_ in ControlType}
_KNOWN_KINDS: Final = {kind.value: kind for kind in ChangeKind}
_NO_HISTORY: Final = History()


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
