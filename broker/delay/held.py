"""Reading records that are held back."""

import threading
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from qbus.delay import NO_TTL, read_order
from qbus.errors import ApiError, CorruptBatch, OversizedBatch
from qbus.records import BatchHeader, Buffer, ConsumerRecord, read_header
from qbus.records.bounds import MAX_RECORDS_SIZE, most_bytes
from qbus.records.control import ControlType, control_type, decode_carried
from qbus.records.decode import iter_stored, records_of
from qbus.records.plain import record_positions
from qbus.records.record import Headers

from ..log import Log
from .schedule import Held

_BATCH_BYTES: Final = 32 << 20
_NEAR_BYTES: Final = 64 << 20
_ARRIVING_BYTES: Final = 256 << 10  # of a batch that is read as it is appended
_FEW_BATCHES: Final = 16  # that are read without a pause
_FEW_WHOLE: Final = 4  # batches that are kept whole
_LOADED_BYTES: Final = 8 << 20
_NEAR_RECORD: Final = 200  # bytes that one takes besides its own


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


class _Head:
    """Decodes single records of a hidden batch by the batch's header."""

    __slots__ = ("_decoder", "_header", "_one")

    def __init__(self, header: BatchHeader) -> None:
        from qbus.records import codec  # noqa: PLC0415 - which a broker without delays need not load

        self._decoder = codec.twin.Decoder
        self._header = header
        self._one = header._replace(records_count=1)

    def record(self, payload: bytes, offset: int) -> HeldRecord | None:
        """The record with these bytes, if it is, or was, held back. Raises CorruptBatch."""
        for record in self._decoder(payload, self._one, "", 0, offset).take(1):
            if self._header.is_delayed:
                return _delayed(record, self._header.max_timestamp)
            return _carried(record)
        return None


class _Batch:
    """A hidden batch that was read: its records' bytes, and where each of them begins."""

    __slots__ = (
        "_payload",
        "_positions",
        "base_offset",
        "head",
        "is_empty",
        "last_offset",
        "size",
    )

    def __init__(self, batch: Buffer, most: int = MAX_RECORDS_SIZE) -> None:
        """``most``: how many bytes its records may take. A visible one has no records here.

        Raises CorruptBatch.
        """
        header = read_header(batch)
        self.head = _Head(header)
        self.is_empty = not (header.records_count or header.is_hidden)
        self.base_offset = header.base_offset
        self.last_offset = header.last_offset if header.is_hidden else header.base_offset - 1
        payload = records_of(batch, header, most_bytes(len(batch), most))
        self._payload = b"" if payload is None else bytes(payload)
        self._positions = record_positions(self._payload, header.records_count)
        self.size = len(self._payload) + len(self._positions) * self._positions.itemsize

    def bytes_at(self, offset: int) -> bytes:
        """The bytes of the record at ``offset``."""
        number = offset - self.base_offset
        return self._payload[self._positions[number] : self._positions[number + 1]]

    def record(self, offset: int) -> HeldRecord | None:
        """The record at ``offset``, if it is, or was, held back. Raises CorruptBatch."""
        if not self.base_offset <= offset <= self.last_offset:
            return None
        return self.head.record(self.bytes_at(offset), offset)


class NearRecords:
    """Records that are due soon: the bytes of each by its offset, and how much they take."""

    __slots__ = ("end_ms", "records", "size")

    def __init__(self, end_ms: int) -> None:
        """For those that are due before ``end_ms``."""
        self.end_ms = end_ms
        self.records: dict[int, tuple[_Head, bytes]] = {}
        self.size = 0

    def add(self, batch: _Batch, offset: int) -> None:
        """Put in a record of a batch."""
        payload = batch.bytes_at(offset)
        self.records[offset] = (batch.head, payload)
        self.size += len(payload) + _NEAR_RECORD


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
    for record in iter_stored(carried.batch):
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


def read_entry(held: "HeldRecords", entry: Held, *, wait: bool) -> HeldRecord | None:
    """The record of an entry of the schedule, due when that says; None if it is damaged or gone.

    Raises BlockingIOError, OSError, ApiError as :meth:`HeldRecords.read` does.
    """
    try:
        record = held.read(entry.offset, wait=wait)
    except CorruptBatch:
        return None
    if record is None or record.due == entry.due:
        return record
    return record._replace(due=entry.due)


def _end_of(near: NearRecords) -> int:
    return near.end_ms


class HeldCache:
    """Bounds what is kept in memory of the hidden batches of all logs.

    The batches that were read last take ``batch_bytes``. Records that are due soon take
    ``near_bytes`` beside them, in ``near_owners`` logs, and at most about ``most_near_bytes``.
    """

    def __init__(
        self, most_batch_bytes: int = _BATCH_BYTES, most_near_bytes: int = _NEAR_BYTES
    ) -> None:
        self.lock = threading.Lock()
        self._most_batch_bytes = most_batch_bytes
        self.most_near_bytes = most_near_bytes
        self.batch_bytes = 0
        self.near_bytes = 0
        self.near_owners = 0
        self._read: OrderedDict[tuple[HeldRecords, int], int] = OrderedDict()

    def add(self, owner: "HeldRecords", base_offset: int, size: int) -> None:
        """Count in a batch that was read, and evict the oldest ones for it. Under the lock."""
        self._read[owner, base_offset] = size
        self.batch_bytes += size
        while self.batch_bytes > self._most_batch_bytes and len(self._read) > 1:
            (other, oldest), gone = self._read.popitem(last=False)
            self.batch_bytes -= gone
            other.evict(oldest)

    def remove(self, owner: "HeldRecords", base_offsets: Iterable[int]) -> None:
        """Count out batches that are kept no longer. Under the lock."""
        for base_offset in base_offsets:
            self.batch_bytes -= self._read.pop((owner, base_offset), 0)


class HeldRecords:
    """Reads the records of one log that are held back.

    :meth:`read` is for any thread. What keeps records that are due soon is for the event loop's
    thread, but for :meth:`gather` and :meth:`load`, which read the log.
    """

    def __init__(self, log: Log, cache: HeldCache) -> None:
        self.log = log
        self._cache = cache
        self._batches: dict[int, _Batch] = {}
        self._bases: list[int] = []  # the keys, ascending
        self._rewrites = log.rewrites
        self._near: list[NearRecords] = []
        self._arriving: NearRecords | None = None  # what comes while others are gathered

    def read(self, offset: int, *, wait: bool) -> HeldRecord | None:
        """The record that lies at ``offset``, if it is one that is, or was, held back.

        Its due time is the one that its headers, or the record of its carrying, say. Raises
        BlockingIOError when the log would have to be read for it, unless ``wait``; OSError,
        CorruptBatch, and ApiError as :meth:`Log.read` does.
        """
        found = self._near_at(offset)
        if found is not None:
            return found[0].record(found[1], offset)
        batch = self._read_before(offset)
        if batch is None:
            if not wait:
                raise BlockingIOError
            batch = self._read_batch(offset)
            if batch is not None:
                self._remember(batch)
        return None if batch is None else batch.record(offset)

    def is_lost(self, offset: int, *, wait: bool) -> bool:
        """Whether an empty batch stands for the record at ``offset``, which was damaged.

        Raises BlockingIOError unless ``wait``, OSError, and ApiError as :meth:`Log.read` does.
        """
        if not wait:
            raise BlockingIOError
        try:
            batch = self._read_batch(offset)
        except CorruptBatch:
            return False
        return batch is not None and batch.is_empty

    def _near_at(self, offset: int) -> tuple[_Head, bytes] | None:
        if self._rewrites == self.log.rewrites:
            arriving = self._arriving
            for near in self._near if arriving is None else [*self._near, arriving]:
                found = near.records.get(offset)
                if found is not None:
                    return found
        return None

    def _read_before(self, offset: int) -> _Batch | None:
        """The batch of a record, if it was read lately."""
        with self._cache.lock:
            if self._rewrites != self.log.rewrites:
                self._rewrites = self.log.rewrites
                self._clear()
            at = bisect_right(self._bases, offset) - 1
            batch = self._batches[self._bases[at]] if at >= 0 else None
        return batch if batch is not None and offset <= batch.last_offset else None

    def _read_batch(self, offset: int) -> _Batch | None:
        records = self.log.read_batch(offset, wait=True)
        if records is None:
            return None
        with records:
            records.warm()
            return _Batch(records.read())

    def _remember(self, batch: _Batch) -> None:
        with self._cache.lock:
            base = batch.base_offset
            if base not in self._batches:
                insort(self._bases, base)
                self._batches[base] = batch
                self._cache.add(self, base, batch.size)

    # Those that are due soon

    @property
    def window(self) -> int:
        """How many records of usual size may be read ahead: there is room for two such windows."""
        return self._cache.most_near_bytes // (4 * _NEAR_RECORD * max(self._cache.near_owners, 1))

    @property
    def has_room(self) -> bool:
        """Whether there is room for one."""
        cache = self._cache
        return cache.near_bytes + 2 * _NEAR_RECORD * self.window <= cache.most_near_bytes

    def begin_window(self, end_ms: int) -> NearRecords:
        """The records that are due before ``end_ms``, which :meth:`gather` is to read from now on.

        Those that come meanwhile are in none of its batches: they are kept from the start.
        """
        self._arriving = NearRecords(end_ms)
        return NearRecords(end_ms)

    def end_window(self, near: NearRecords | None) -> None:
        """Keep what :meth:`begin_window` gave, and what came since; None: neither."""
        arrived, self._arriving = self._arriving, None
        if near is not None:
            if arrived is not None:
                near.records.update(arrived.records)
                near.size += arrived.size
            self._keep(near)

    def gather(self, offsets: list[int], at: int, near: NearRecords) -> int:
        """Read some of the records at ``offsets``, ascending, from number ``at`` on; for a thread.

        Reads a few batches, each of them once, in whatever order their records are due. Returns the
        number of the first record that is left; ``len(offsets)`` if the others are not to be read,
        for large records have taken the room for a window. Raises OSError.
        """
        room = self._cache.most_near_bytes // (2 * max(self._cache.near_owners, 1))
        for _ in range(_FEW_BATCHES):
            if at == len(offsets):
                break
            if near.size >= room:
                return len(offsets)
            at = self._gather_batch(offsets, at, near)
        return at

    def _gather_batch(self, offsets: list[int], at: int, near: NearRecords) -> int:
        first = offsets[at]
        try:
            batch = self._read_batch(first)
        except (ApiError, CorruptBatch):  # who delivers it will say so
            batch = None
        if batch is None or batch.last_offset < first:
            return at + 1
        while at < len(offsets) and offsets[at] <= batch.last_offset:
            near.add(batch, offsets[at])
            at += 1
        return at

    def load(self, offsets: list[int], near: NearRecords) -> None:
        """Load the records at ``offsets``, ascending, into memory; for a thread. Raises OSError.

        The first few batches are kept whole, as their other records may be next. Of further batches
        only these records are kept, in ``near``, as far as :meth:`make_room` made room.
        """
        loaded = at = 0
        while at < len(offsets):
            first = offsets[at]
            if self._near_at(first) is not None or self._read_before(first) is not None:
                at += 1
                continue
            if near.size >= self._loaded_bytes:
                return
            loaded += 1
            if loaded > _FEW_WHOLE:
                at = self._gather_batch(offsets, at, near)
                continue
            at += 1
            with suppress(ApiError, CorruptBatch):
                batch = self._read_batch(first)
                if batch is not None and batch.last_offset >= first:
                    self._remember(batch)

    def keep(self, near: NearRecords) -> None:
        """Keep records that were read until the time for them has passed."""
        if near.records:
            self._keep(near)

    def _keep(self, near: NearRecords) -> None:
        with self._cache.lock:
            self._cache.near_owners += not self._near
            self._near.append(near)
            self._near.sort(key=_end_of)
            self._cache.near_bytes += near.size

    @property
    def _loaded_bytes(self) -> int:
        """How much :meth:`load` may read."""
        return min(_LOADED_BYTES, self._cache.most_near_bytes // 2)

    def make_room(self) -> int | None:
        """Evict what is due last, as far as there is no room beside it for what is due now.

        Returns the time in milliseconds before which records are still kept, if any were evicted.
        """
        end_ms: int | None = None
        cache = self._cache
        with cache.lock:
            while self._near and cache.near_bytes + self._loaded_bytes > cache.most_near_bytes:
                cache.near_bytes -= self._near.pop().size
                cache.near_owners -= not self._near
                end_ms = self._near[-1].end_ms if self._near else 0
        return end_ms

    def keep_arrivals(self, batch: Buffer, dues: list[tuple[int, int]]) -> None:
        """Keep the records of a batch just appended that are due while others are kept.

        ``dues``: the due time of each of them first.
        """
        arriving = self._arriving
        near = arriving or (self._near[-1] if self._near else None)
        taken = self._cache.near_bytes + (0 if arriving is None else arriving.size)
        if near is None or taken >= self._cache.most_near_bytes:
            return
        numbers = [number for number, due in enumerate(dues) if due[0] < near.end_ms]
        if numbers:
            try:
                came = _Batch(batch, _ARRIVING_BYTES)
            except OversizedBatch:  # too large to be read now: it is when it is due
                return
            before = near.size
            for number in numbers:
                near.add(came, came.base_offset + number)
            if near is not arriving:
                with self._cache.lock:
                    self._cache.near_bytes += near.size - before

    def evict_before(self, next_due: int | None) -> None:
        """Evict what was kept for times before ``next_due``; None: all."""
        if not self._near:
            return
        with self._cache.lock:
            while self._near and (next_due is None or self._near[0].end_ms <= next_due):
                self._cache.near_bytes -= self._near.pop(0).size
            self._cache.near_owners -= not self._near

    def evict(self, base_offset: int) -> None:
        """Evict a batch that was read. Under the cache's lock."""
        del self._batches[base_offset]
        del self._bases[bisect_left(self._bases, base_offset)]

    def close(self) -> None:
        """Evict all that was read."""
        with self._cache.lock:
            self._clear()

    def _clear(self) -> None:
        self._cache.near_bytes -= sum(near.size for near in self._near)
        self._cache.near_owners -= len(self._near) > 0
        self._near, self._arriving = [], None
        self._cache.remove(self, self._bases)
        self._batches.clear()
        self._bases.clear()
