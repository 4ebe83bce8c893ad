"""What a partition's hidden batches say about its delayed records: which are held back, and where.

A record *lies* at an offset of the log. That is the offset that its producer was told, until
retention would take it: then it is carried to the log's end, and lies there.

Content of a snapshot, all integers little-endian: the bound (8 bytes, signed), the counts of slots,
of runs of carried records and of rescheduled ones (4 each); for each slot its start (8), the number
of records (4), then 8 and 4 bytes for each; for each run the number (4), then original offsets and
places (8 each); for each rescheduled one where it lies and when it is due (8 each). If the log may
lack records that its source holds back, or there are open transactions, then how many it may lack
at most, and the end of the gap (8 each). For each open transaction the producer's id (8), the
number of its records (4), then for each its due time, offset and hash of the key (8, 8 and 4).

Delayed records of a transaction are *undecided* until it ends: only if it is committed are they
held back for delivery, else they are nothing. Retention keeps them meanwhile.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, TypeVar

from qbus.delay import read_order
from qbus.records import (
    BatchHeader,
    Buffer,
    CorruptBatch,
    crc32c,
)
from qbus.records.control import (
    Announcement,
    ControlRecord,
    ControlType,
    Entries,
    decode_carried,
    decode_entries,
    decode_int64,
    decode_rescheduled,
)
from qbus.records.decode import iter_stored

from ..log.controls import Fold
from .schedule import MAX_OFFSET, Schedule

F = TypeVar("F")

_START: Final = struct.Struct("<qIII")
_SLOT: Final = struct.Struct("<qI")
_COUNT: Final = struct.Struct("<I")
_PAIR: Final = struct.Struct("<qq")
_UNDECIDED: Final = struct.Struct("<qqI")


def hash_of(key: bytes | None) -> int:
    """What is remembered of a key: 32 bits."""
    return 0 if key is None else crc32c(key)


_NO_OFFSET: Final = MAX_OFFSET
SPREAD: Final = 2_000  # records brought near at a time


class CarriedRecords:
    """Where carried records lie, by the offsets that their producers were told: 16 bytes each."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[array[int], array[int]]] = []  # both ascending, the newest run last

    def __len__(self) -> int:
        return sum(len(places) for _, places in self._runs)

    def add(self, original_offset: int, offset: int) -> None:
        """A record lies at ``offset`` now."""
        if not self._runs or self._runs[-1][0][-1] >= original_offset:
            self._runs.append((array("q"), array("q")))
        originals, places = self._runs[-1]
        originals.append(original_offset)
        places.append(offset)

    def find(self, original_offset: int) -> int | None:
        """Where a record lies, if it was carried."""
        for originals, places in reversed(self._runs):
            at = bisect_left(originals, original_offset)
            if at < len(originals) and originals[at] == original_offset:
                return places[at]
        return None

    def forget_before(self, offset: int) -> None:
        """Nothing lies before ``offset`` any more."""
        self._runs = [run for run in self._runs if run[1][-1] >= offset]

    def dump(self) -> list[bytes]:
        """The runs in a snapshot."""
        parts: list[bytes] = []
        for originals, places in self._runs:
            parts += (_COUNT.pack(len(places)), originals.tobytes(), places.tobytes())
        return parts

    @property
    def run_count(self) -> int:
        """How many runs :meth:`dump` writes."""
        return len(self._runs)

    def load(self, originals: bytes, places: bytes) -> None:
        """Take in a run of a snapshot."""
        run = (array("q"), array("q"))
        run[0].frombytes(originals)
        run[1].frombytes(places)
        if run[0]:
            self._runs.append(run)


class DelayFold:
    """The delayed records of one partition."""

    __slots__ = (
        "bound",
        "cancelled",
        "carried",
        "carried_count",
        "delivered_count",
        "expected",
        "expired",
        "gap_end",
        "maybe_missing",
        "rescheduled",
        "schedule",
        "undecided",
    )

    def __init__(self) -> None:
        self.schedule = Schedule()
        self.carried = CarriedRecords()
        self.rescheduled: dict[int, int] = {}  # due times of those that have another one
        # Due times, offsets and hashes of keys in open transactions, by the producer's id.
        self.undecided: dict[int, list[tuple[int, int, int]]] = {}
        self.bound = 0  # no delayed record lies before it
        # Of a copy that was overtaken by its source's retention: how many of the records that it
        # held back before the gap may have been carried to where it has not come yet. A BOUND of
        # the source behind ``gap_end`` comes behind all that were carried.
        self.maybe_missing = 0
        self.gap_end = 0
        # The CRC of a batch that is about to come, and the due times of all its records, with the
        # hashes of their keys: so that whoever has read it need not read it again.
        self.expected: tuple[int, list[tuple[int, int]]] | None = None
        # Since the log was opened
        self.cancelled = 0
        self.expired = 0
        self.delivered_count = 0
        self.carried_count = 0

    @property
    def pending(self) -> int:
        """How many records are held back, those of open transactions included."""
        count = self.schedule.count
        for entries in self.undecided.values():
            count += len(entries)
        return count

    @property
    def first_undecided(self) -> int:
        """The first offset of an undecided record; one that no record has if there are none."""
        first = _NO_OFFSET
        for entries in self.undecided.values():
            first = min(first, entries[0][1])
        return first

    @property
    def needed_from(self) -> int | None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return self.bound if self.schedule.count or self.undecided else None

    @property
    def awaits_markers(self) -> bool:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return bool(self.undecided)

    @property
    def done_before(self) -> int | None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return None

    @property
    def told_from(self) -> int | None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return None

    def part(self, kind: type[F]) -> F | None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return self if isinstance(self, kind) else None

    def lies_at(self, original_offset: int) -> int:
        """Where a record lies whose producer was told ``original_offset``, if it is held back."""
        carried = self.carried.find(original_offset)
        return original_offset if carried is None else carried

    def find(self, original_offset: int, due: int, read_at: int) -> tuple[int, int] | None:
        """When a record is due, and where it lies; None if it is not held back any more.

        It was read at ``read_at``, and says itself that it is due at ``due``. It may have been
        rescheduled before or since, and carried since.
        """
        offset = self.lies_at(original_offset)
        known: int | None = self.rescheduled.get(offset, due)
        if offset != read_at and not self.schedule.contains(known or 0, offset):
            known = self.schedule.due_at(offset)
        if known is None or not self.schedule.contains(known, offset):
            return None
        return known, offset

    def delayed(self, header: BatchHeader, batch: Buffer) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        self._begin(header.base_offset)
        self._pass_time(header.max_timestamp)
        if header.in_transaction:
            entries = _entries(header, batch)
            if entries:
                self.undecided.setdefault(header.producer_id, []).extend(entries)
            return
        add = self.schedule.add
        if self.expected is not None and self.expected[0] == header.crc:
            offset = header.base_offset
            for due, key_hash in self.expected[1]:
                add(due, offset, key_hash)
                offset += 1
            return
        for due, offset, key_hash in _entries(header, batch):
            add(due, offset, key_hash)

    def ended(self, producer_id: int, *, is_commit: bool) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        entries = self.undecided.pop(producer_id, None)
        if entries is not None and is_commit:
            self.schedule.moves += 1
            for due, offset, key_hash in entries:
                self.schedule.add(due, offset, key_hash)

    def _begin(self, offset: int) -> None:
        if not self.schedule.count and not self.undecided:
            self.bound = offset

    def control(self, record: ControlRecord) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        if record.type is ControlType.CARRIED:
            self._carry(record)
        elif record.type is ControlType.CANCELLED:
            self.cancelled += self._remove(decode_entries(record.value))
        elif record.type is ControlType.EXPIRED:
            self.expired += self._remove(decode_entries(record.value))
        elif record.type is ControlType.RESCHEDULED:
            self._reschedule(*decode_rescheduled(record.value))
        elif record.type is ControlType.BOUND:
            self._move_bound(decode_int64(record.value), record.offset)

    def _move_bound(self, bound: int, stands_at: int) -> None:
        self.bound = bound
        if bound > stands_at:  # it stands in a gap of a mirrored log: none is left
            self.maybe_missing += self.pending
            self.gap_end = bound
            self.schedule, self.rescheduled = Schedule(), {}
            self.undecided = {}
        elif bound >= self.gap_end:
            self.maybe_missing = self.gap_end = 0
        self.carried.forget_before(bound)

    def delivered(self, announcement: Announcement) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        dues = announcement.entries.dues
        if dues:
            self._pass_time(dues[len(dues) - 1])
        self.delivered_count += self._remove(announcement.entries)

    def _pass_time(self, now_ms: int) -> None:
        """Bring near what is due soon by the log's own time: followers have no other.

        What is delivered is then taken out of a small slot, not out of an hour's.
        """
        self.schedule.advance(now_ms, SPREAD)

    def _remove(self, entries: Entries) -> int:
        removed = self.schedule.remove_all(entries)
        if self.rescheduled:
            for held in removed:
                self.rescheduled.pop(held.offset, None)
        return len(removed)

    def _reschedule(self, due: int, entries: Entries) -> None:
        self.schedule.moves += 1
        for held in self.schedule.remove_all(entries):
            self.rescheduled[held.offset] = due
            self.schedule.add(due, held.offset, held.key_hash)

    def _carry(self, record: ControlRecord) -> None:
        carried = decode_carried(record.value)
        key_hash = self.schedule.remove(carried.due, carried.from_offset)
        if key_hash is None:  # retention took where it lay, so this is the first that says of it
            key_hash = hash_of(next((one.key for one in iter_stored(carried.batch)), None))
            self._begin(record.offset)
        self.carried_count += 1
        self.rescheduled.pop(carried.from_offset, None)
        self.carried.add(carried.original_offset, record.offset)
        self.schedule.add(carried.due, record.offset, key_hash)

    def succeed(self, former: Fold) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`: what was held back there is gone."""

    def encode(self) -> Sequence[Buffer]:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        slots = list(self.schedule.dump())
        counts = (len(slots), self.carried.run_count, len(self.rescheduled))
        parts: list[Buffer] = [_START.pack(self.bound, *counts)]
        for start, entries, hashes in slots:
            parts += (_SLOT.pack(start, len(hashes) // 4), entries, hashes)
        parts += self.carried.dump()
        parts += [_PAIR.pack(offset, due) for offset, due in self.rescheduled.items()]
        if self.maybe_missing or self.undecided:
            parts.append(_PAIR.pack(self.maybe_missing, self.gap_end))
        for producer_id, undecided in self.undecided.items():
            parts.append(_SLOT.pack(producer_id, len(undecided)))
            parts += [_UNDECIDED.pack(*entry) for entry in undecided]
        return parts

    def restore(self, content: Buffer) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        schedule, carried = Schedule(), CarriedRecords()
        rescheduled: dict[int, int] = {}
        reader = _Reader(content)
        bound, slots, runs, others = reader.take(_START)
        for _ in range(slots):
            start, count = reader.take(_SLOT)
            schedule.load(start, reader.bytes(8 * count), reader.bytes(4 * count))
        for _ in range(runs):
            (count,) = reader.take(_COUNT)
            carried.load(reader.bytes(8 * count), reader.bytes(8 * count))
        for _ in range(others):
            offset, due = reader.take(_PAIR)
            rescheduled[offset] = due
        maybe_missing = gap_end = 0
        if not reader.is_at_end:
            maybe_missing, gap_end = reader.take(_PAIR)
        undecided: dict[int, list[tuple[int, int, int]]] = {}
        while not reader.is_at_end:
            producer_id, count = reader.take(_SLOT)
            entries: list[tuple[int, int, int]] = []
            for _ in range(count):
                due, offset, key_hash = reader.take(_UNDECIDED)
                entries.append((due, offset, key_hash))
            undecided[producer_id] = entries
        self.schedule, self.carried, self.rescheduled = schedule, carried, rescheduled
        self.bound = bound
        self.undecided = undecided
        self.maybe_missing, self.gap_end = maybe_missing, gap_end


def _entries(header: BatchHeader, batch: Buffer) -> list[tuple[int, int, int]]:
    """The due times, offsets and hashes of keys of a batch's delayed records.

    Raises CorruptBatch: then the batch is ignored as a whole.
    """
    from qbus.records.consume import decode_stored  # noqa: PLC0415 - loads the codec

    entries: list[tuple[int, int, int]] = []
    for records in decode_stored(batch, header):
        for record in records:
            try:
                order = read_order(record.headers, header.max_timestamp)
            except ValueError as error:
                raise CorruptBatch(str(error)) from error
            if order is not None:
                entries.append((order.due, record.offset, hash_of(record.key)))
    return entries


class _Reader:
    """Takes a snapshot's content apart. Raises ValueError where it is too short, or too long."""

    def __init__(self, content: Buffer) -> None:
        self._content = memoryview(content)
        self._at = 0

    def take(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.bytes(form.size))

    def bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._content):
            raise ValueError(f"a snapshot of {len(self._content)} bytes is cut")
        taken = self._content[self._at : end].tobytes()
        self._at = end
        return taken

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._content)
