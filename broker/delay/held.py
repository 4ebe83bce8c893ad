"""Reading records that are held back."""

import threading
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from qbus.delay import NO_TTL, read_order
from qbus.errors import CorruptBatch
from qbus.records import ConsumerRecord, iter_records, read_header
from qbus.records.control import ControlType, control_type, decode_carried
from qbus.records.decode import records_of
from qbus.records.fields import decode_varint
from qbus.records.record import Headers

from ..log import Log
from .fold import DelayFold

_CACHED_BYTES: Final = 64 << 20


class HeldRecord(NamedTuple):
    """A delayed record. Times in milliseconds since the Unix epoch.

    It lies at ``offset``; its producer, who gave it ``timestamp``, was told ``original_offset``. It
    is worthless ``ttl`` milliseconds after ``due`` (NO_TTL: never).
    """

    offset: int
    original_offset: int
    due: int
    ttl: int
    taken_ms: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class _Batch:
    """A hidden batch that was read: its records' bytes, and where each of them begins."""

    __slots__ = ("_decoder", "_header", "_one", "_payload", "_positions", "size")

    def __init__(self, batch: bytes) -> None:
        """Raises CorruptBatch."""
        from qbus.records import codec  # noqa: PLC0415 - which a broker without delays need not load

        self._decoder = codec.twin.Decoder
        self._header = read_header(batch)
        self._one = self._header._replace(records_count=1)
        payload = records_of(batch, self._header)
        self._payload = b"" if payload is None else bytes(payload)
        self._positions = _positions(self._payload, self._header.records_count)
        self.size = len(self._payload) + len(self._positions) * self._positions.itemsize

    def record(self, offset: int) -> HeldRecord | None:
        """The record at ``offset``, if it is, or was, held back. Raises CorruptBatch."""
        header = self._header
        if not (header.is_hidden and header.base_offset <= offset <= header.last_offset):
            return None
        number = offset - header.base_offset
        payload = self._payload[self._positions[number] : self._positions[number + 1]]
        for record in self._decoder(payload, self._one, "", 0, offset).take(1):
            if header.is_delayed:
                return _delayed(record, header.max_timestamp)
            return _carried(record)
        return None


def _positions(payload: bytes, count: int) -> "array[int]":
    """Where each record begins, and where the last one ends. Raises CorruptBatch."""
    positions = array("I", (0,))
    position = 0
    try:
        for _ in range(count):
            length, position = decode_varint(payload, position)
            position += length
            positions.append(position)
    except (IndexError, OverflowError):
        raise CorruptBatch("records are cut") from None
    return positions


def _delayed(record: ConsumerRecord, taken_ms: int) -> HeldRecord | None:
    order = read_order(record.headers, taken_ms)
    if order is None:
        return None
    return HeldRecord(
        record.offset,
        record.offset,
        order.due,
        order.ttl,
        taken_ms,
        record.timestamp,
        record.key,
        record.value,
        record.headers,
    )


def _carried(control: ConsumerRecord) -> HeldRecord | None:
    if control_type(control.key) is not ControlType.CARRIED:
        return None
    carried = decode_carried(control.value or b"")
    for record in iter_records(carried.batch):
        order = read_order(record.headers, carried.taken_ms)
        return HeldRecord(
            control.offset,
            carried.original_offset,
            carried.due,
            NO_TTL if order is None else order.ttl,
            carried.taken_ms,
            carried.timestamp,
            record.key,
            record.value,
            record.headers,
        )
    return None


class HeldCache:
    """The hidden batches that were read last, of all logs: a bounded number of bytes."""

    def __init__(self, most_bytes: int = _CACHED_BYTES) -> None:
        self.lock = threading.Lock()
        self._most_bytes = most_bytes
        self._size = 0
        self._read: OrderedDict[tuple[HeldRecords, int], int] = OrderedDict()

    def add(self, owner: "HeldRecords", base_offset: int, size: int) -> None:
        """A batch was read; those read before it may be forgotten for it. Under the lock."""
        self._read[owner, base_offset] = size
        self._size += size
        while self._size > self._most_bytes and len(self._read) > 1:
            (other, oldest), gone = self._read.popitem(last=False)
            self._size -= gone
            other.forget(oldest)

    def remove(self, owner: "HeldRecords", base_offsets: Iterable[int]) -> None:
        """These batches are forgotten. Under the lock."""
        for base_offset in base_offsets:
            self._size -= self._read.pop((owner, base_offset), 0)


class HeldRecords:
    """The records of one log that are held back. For any thread."""

    def __init__(self, log: Log, cache: HeldCache) -> None:
        self.log = log
        self._cache = cache
        self._batches: dict[int, _Batch] = {}
        self._bases: list[int] = []  # the keys, ascending
        self._rewrites = log.rewrites

    def read(self, offset: int, *, wait: bool) -> HeldRecord | None:
        """The record that lies at ``offset``, if it is one that is, or was, held back.

        Its due time is the one that its headers, or the record of its carrying, say. Raises
        BlockingIOError when that would wait for a disk, unless ``wait``; OSError, CorruptBatch, and
        ApiError as :meth:`Log.read` does.
        """
        with self._cache.lock:
            if self._rewrites != self.log.rewrites:
                self._rewrites = self.log.rewrites
                self._clear()
            at = bisect_right(self._bases, offset) - 1
            batch = self._batches[self._bases[at]] if at >= 0 else None
        known = None if batch is None else batch.record(offset)
        if known is not None:
            return known
        batch = self._load(offset, wait=wait)
        return None if batch is None else batch.record(offset)

    def _load(self, offset: int, *, wait: bool) -> _Batch | None:
        records = self.log.read_batch(offset, wait=wait)
        if records is None:
            return None
        with records:
            if wait:
                records.warm()
            elif records.needs_verification or not records.is_cached():
                raise BlockingIOError
            batch = _Batch(records.read())
            base = records.first_offset
        with self._cache.lock:
            if base not in self._batches:
                insort(self._bases, base)
                self._batches[base] = batch
                self._cache.add(self, base, batch.size)
        return batch

    def forget(self, base_offset: int) -> None:
        """Forget a batch that was read. Under the cache's lock."""
        del self._batches[base_offset]
        del self._bases[bisect_left(self._bases, base_offset)]

    def close(self) -> None:
        """Forget all that was read."""
        with self._cache.lock:
            self._clear()

    def _clear(self) -> None:
        self._cache.remove(self, self._bases)
        self._batches.clear()
        self._bases.clear()


def find(fold: DelayFold, held: HeldRecords, target: int, *, wait: bool) -> HeldRecord | None:
    """The record whose producer was told ``target``, with its due time of now, if it is held back.

    Raises as :meth:`HeldRecords.read` does.
    """
    offset = fold.lies_at(target)
    record = held.read(offset, wait=wait)
    if record is None:
        return None
    record = record._replace(due=fold.rescheduled.get(offset, record.due))
    return record if fold.schedule.contains(record.due, offset) else None
