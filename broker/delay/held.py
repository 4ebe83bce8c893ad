"""Reading records that are held back."""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from typing import Final, NamedTuple

from qbus.delay import NO_TTL, read_order
from qbus.errors import ApiError, CorruptBatch, ErrorCode
from qbus.records import ConsumerRecord, iter_records, read_header
from qbus.records.control import ControlType, control_type, decode_carried
from qbus.records.decode import records_of
from qbus.records.fields import decode_varint
from qbus.records.record import Headers

from ..log import Log
from .fold import DelayFold

_CACHED_BYTES: Final = 32 << 20


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


class HeldRecords:
    """The records of one log that are held back; the batches read last are kept in memory."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._batches: OrderedDict[int, _Batch] = OrderedDict()
        self._bases: list[int] = []  # the keys, ascending
        self._rewrites = log.rewrites
        self._size = 0

    def read(self, offset: int, *, wait: bool) -> HeldRecord | None:
        """The record that lies at ``offset``, if it is one that is, or was, held back.

        Its due time is the one that its headers, or the record of its carrying, say. Raises
        BlockingIOError when that would wait for a disk, unless ``wait``; CorruptBatch, and ApiError
        as :meth:`Log.read` does.
        """
        if self._rewrites != self.log.rewrites:
            self._batches.clear()
            self._bases.clear()
            self._rewrites, self._size = self.log.rewrites, 0
        at = bisect_right(self._bases, offset) - 1
        if at >= 0:
            known = self._batches[self._bases[at]].record(offset)
            if known is not None:
                return known
        batch = self._load(offset, wait=wait)
        return None if batch is None else batch.record(offset)

    def _load(self, offset: int, *, wait: bool) -> _Batch | None:
        try:
            records = self.log.read(offset, 0, wait=wait)
        except ApiError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            raise
        if records is None:
            return None
        with records:
            if wait:
                records.warm()
            elif records.needs_verification or not records.is_cached():
                raise BlockingIOError
            batch = _Batch(records.read())
            base = records.first_offset
        if base not in self._batches:
            insort(self._bases, base)
            self._batches[base] = batch
            self._size += batch.size
        while self._size > _CACHED_BYTES and len(self._batches) > 1:
            oldest, gone = self._batches.popitem(last=False)
            self._size -= gone.size
            del self._bases[bisect_left(self._bases, oldest)]
        return batch


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
