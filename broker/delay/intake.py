"""What a producer sends to a topic with delays: what is visible at once, held back, or an order.

A batch without a header of :mod:`qbus.delay` is appended as any other. One whose records are all
to be delayed is hidden as it is. Any other is cut into runs of records of one kind, each a batch of
its own, whose offsets and sequences follow one another: so the producer gets the offsets that it
expects, and what it sends again is recognised.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import groupby
from typing import Final, NamedTuple

from qbus.delay import BY_KEY, Order
from qbus.errors import ApiError, ErrorCode
from qbus.records import (
    BatchHeader,
    Buffer,
    Compression,
    ConsumerRecord,
    read_header,
    set_log_append_time,
)
from qbus.records.control import (
    ControlType,
    Entries,
    control_batch,
    encode_entries,
    encode_rescheduled,
    iter_control,
)
from qbus.records.header import hide_delayed, set_transactional

from ..log import Log, LogConfig, RecordsRefusedError, StoredPart
from .contents import Contents
from .fold import DelayFold, hash_of
from .held import HeldRecord, HeldRecords
from .schedule import MAX_OFFSET

_MAX_SEQUENCE: Final = 2**31 - 1


class StoredMeanwhileError(Exception):
    """What the log has of a batch changed while a thread read for it: it is to be taken in anew."""

    def __init__(self, batch: Buffer) -> None:
        super().__init__("the batch is to be taken in anew")
        self.batch = batch


class _Kind(Enum):
    """What becomes of a record."""

    VISIBLE = 0
    HELD = 1
    ORDER = 2


class _Item(NamedTuple):
    number: int
    record: ConsumerRecord
    kind: _Kind
    order: Order | None


class Taken(NamedTuple):
    """A producer's batch, taken apart. ``orders``: those of its records that cancel or reschedule.

    ``now_ms`` is when it was taken in. Where all its records are held back there are no ``items``,
    but the due times of all, with the hashes of their keys. The first ``stored`` records are in the
    log already, and are not among the items.
    """

    header: BatchHeader
    batch: Buffer
    items: list[_Item]
    now_ms: int
    held: list[tuple[int, int]]
    stored: int = 0

    @property
    def orders(self) -> list[tuple[int, Order, bytes | None]]:
        """The number of each record that is an order, the order, and the record's key."""
        return [
            (item.number, item.order, item.record.key)
            for item in self.items
            if item.kind is _Kind.ORDER and item.order is not None
        ]


def take_in(
    batch: Buffer, contents: Contents, config: LogConfig, fold: DelayFold, stored: int = 0
) -> Taken | None:
    """What is to become of a batch that a producer may write; None: it is visible as it is.

    Its first ``stored`` records are in the log already. Where delays were switched off since, what
    is missing is visible. Raises RecordsRefusedError for what its producer cannot have meant.
    """
    header, now_ms, records, orders, errors = contents
    if errors:
        raise RecordsRefusedError(errors)
    visible = sum(
        order is None or (order.target is None and order.due <= now_ms) for order in orders
    )
    if visible == len(records) and not stored:
        return None
    held = [
        (order.due, hash_of(record.key))
        for record, order in zip(records, orders, strict=True)
        if order is not None and order.target is None and order.due > now_ms
    ]
    if len(held) == len(records) and not stored:
        _check_room(range(len(held)), config, fold)
        return Taken(header, batch, [], now_ms, held)
    items = [
        _Item(number, record, _kind(order, now_ms), order)
        for number, (record, order) in enumerate(zip(records, orders, strict=True))
        if number >= stored
    ]
    if header.is_transactional:
        _refuse_orders(items)
    _check_room([item.number for item in items if item.kind is _Kind.HELD], config, fold)
    return Taken(header, batch, items, now_ms, [], stored)


def _refuse_orders(items: Sequence[_Item]) -> None:
    """Refuse what would be done at once, and could not be undone where a transaction is aborted."""
    errors = [
        (item.number, "a transaction cannot cancel or reschedule delayed records")
        for item in items
        if item.kind is _Kind.ORDER
    ]
    if errors:
        raise RecordsRefusedError(errors)


def _kind(order: Order | None, now_ms: int) -> _Kind:
    if order is None:
        return _Kind.VISIBLE
    if order.target is not None:
        return _Kind.ORDER
    return _Kind.HELD if order.due > now_ms else _Kind.VISIBLE


def _check_room(held: Sequence[int], config: LogConfig, fold: DelayFold) -> None:
    """``held``: the numbers of the records that are to be held back."""
    most = config.qbus_delay_max_pending
    if held and fold.pending + len(held) > most:
        first = held[max(most - fold.pending, 0)] if fold.pending < most else held[0]
        why = (
            f"the partition holds {fold.pending} delayed records, qbus.delay.max.pending is {most}"
        )
        raise RecordsRefusedError([(first, why)])


class OrdersStored(NamedTuple):
    """The orders of a batch.

    late: the numbers of those that found no delayed record; done: how many others there are.
    """

    late: list[int]
    done: int

    def with_rest(self, rest: "OrdersStored") -> "OrdersStored":
        """Those of this beginning of a batch, and of the ``rest``."""
        return OrdersStored(self.late + rest.late, self.done + rest.done)


def places_of_targets(taken: Taken, fold: DelayFold) -> dict[int, list[int]]:
    """Where the records lie that each order of ``taken`` may be about, by the order's number."""
    hashes = {hash_of(key) for _, order, key in taken.orders if order.target == BY_KEY}
    by_hash: dict[int, list[int]] = {}
    for held in fold.schedule.with_hashes(hashes) if hashes else ():
        by_hash.setdefault(held.key_hash, []).append(held.offset)
    found: dict[int, list[int]] = {}
    for number, order, key in taken.orders:
        if order.target == BY_KEY:
            found[number] = by_hash.get(hash_of(key), [])
        else:
            found[number] = [fold.lies_at(order.target or 0)]
    return found


def read_targets(
    taken: Taken, at: dict[int, list[int]], held: HeldRecords, *, wait: bool
) -> dict[int, list[HeldRecord]]:
    """The records that each order is about, read at the places that it may lie ``at``.

    For a thread, if it is to ``wait``. Raises as :meth:`HeldRecords.read` does.
    """
    targets: dict[int, list[HeldRecord]] = {}
    for number, order, key in taken.orders:
        records = [held.read(offset, wait=wait) for offset in at[number]]
        targets[number] = [
            record
            for record in records
            if record is not None and (order.target != BY_KEY or record.key == key)
        ]
    return targets


def to_append(
    taken: Taken,
    targets: dict[int, list[HeldRecord]],
    fold: DelayFold,
    config: LogConfig,
    base_offset: int,
) -> tuple[bytearray, OrdersStored]:
    """The batches to append at ``base_offset``, and what becomes of the orders among them.

    An order that comes too late is no error: it is said, with its number. Raises ApiError
    INVALID_RECORD when offsets are too large for delays.
    """
    if base_offset + taken.header.records_count > MAX_OFFSET:
        raise ApiError(ErrorCode.INVALID_RECORD, f"delays end before offset {MAX_OFFSET}")
    out = bytearray()
    if taken.held:
        out += taken.batch
        hide_delayed(out, taken.now_ms)
        return out, OrdersStored([], 0)
    orders = _Orders(targets, fold)
    for kind, run in groupby(taken.items, key=_kind_of):
        items = list(run)
        if kind is _Kind.ORDER:
            records = [orders.control_record(item) for item in items]
            out += control_batch(records, taken.now_ms, **_sequence(taken.header, items[0].number))
        else:
            batch = _batch_of(items, taken.header)
            if taken.header.is_transactional:
                set_transactional(batch)
            if kind is _Kind.HELD:
                hide_delayed(batch, taken.now_ms)
                for item in items:
                    orders.add_held(item, base_offset + item.number - taken.stored)
            elif config.uses_log_append_time:
                set_log_append_time(batch, taken.now_ms)
            out += batch
    return out, OrdersStored(orders.late, len(taken.orders) - len(orders.late))


def orders_stored(log: Log, header: BatchHeader, stored: StoredPart) -> OrdersStored:
    """What became of the orders in what is ``stored`` of a producer's batch with this ``header``.

    For a thread. Raises ApiError, CorruptBatch, OSError.
    """
    late: list[int] = []
    done = 0
    for first, last in stored.runs:
        for part, batch in _batches(log, max(first, log.log_start_offset), last):
            if not part.is_control or part.is_delayed:
                continue
            skipped = part.base_sequence - header.base_sequence - part.base_offset
            for order in iter_control(batch):
                number = (skipped + order.offset) & _MAX_SEQUENCE
                if number >= stored.records_count or order.type not in _NO_ENTRIES:
                    continue
                if len(order.value) > _NO_ENTRIES[order.type]:
                    done += 1
                else:
                    late.append(number)
    return OrdersStored(late, done)


def _batches(log: Log, offset: int, last_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches from the one with ``offset`` to the one with ``last_offset``."""
    while offset <= last_offset:
        records = log.read_batch(offset, wait=True)
        if records is None:
            return
        with records:
            batch = records.read()
        header = read_header(batch)
        yield header, batch
        offset = header.last_offset + 1


def _kind_of(item: _Item) -> _Kind:
    return item.kind


_NO_ENTRIES: Final = {ControlType.CANCELLED: 0, ControlType.RESCHEDULED: 8}


class _Orders:
    """What the orders of a batch do, to what was held back before it and to what came in it.

    The fold does not know of any of them yet. ``late``: the numbers of those that come too late.
    """

    def __init__(self, targets: dict[int, list[HeldRecord]], fold: DelayFold) -> None:
        """``targets``: what was held back before that each order is about, by its number."""
        self._targets = targets
        self._fold = fold
        self._came: dict[bytes | None, list[int]] = {}  # offsets of the batch's own, by key
        self._dues: dict[int, int | None] = {}  # of what came or was changed; None: cancelled
        self._own: set[int] = set()
        self.late: list[int] = []

    def add_held(self, item: _Item, offset: int) -> None:
        """A record of the batch is held back at ``offset``: later orders may be about it."""
        assert item.order is not None
        self._came.setdefault(item.record.key, []).append(offset)
        self._own.add(offset)
        self._dues[offset] = item.order.due

    def control_record(self, item: _Item) -> tuple[ControlType, bytes]:
        """What the log is to say of an order."""
        order = item.order
        assert order is not None
        entries = self._entries(item, order)
        if not entries.offsets:
            self.late.append(item.number)
        for offset in entries.offsets:
            self._dues[offset] = None if order.is_cancel else order.due
        if order.is_cancel:
            return ControlType.CANCELLED, encode_entries(entries)
        return ControlType.RESCHEDULED, encode_rescheduled(order.due, entries)

    def _entries(self, item: _Item, order: Order) -> Entries:
        """The records that an order is about, as far as they are held back still."""
        dues: list[int] = []
        offsets: list[int] = []
        for held in self._targets.get(item.number, ()):
            found = self._fold.find(held.original_offset, held.due, held.offset)
            if found is not None:
                due = self._dues.get(found[1], found[0])
                if due is not None:
                    dues.append(due)
                    offsets.append(found[1])
        for offset in self._own_targets(item, order):
            due = self._dues[offset]
            if due is not None:
                dues.append(due)
                offsets.append(offset)
        return Entries(tuple(dues), tuple(offsets))

    def _own_targets(self, item: _Item, order: Order) -> list[int]:
        if order.target == BY_KEY:
            return self._came.get(item.record.key, [])
        return [order.target] if order.target is not None and order.target in self._own else []


def _sequence(header: BatchHeader, number: int) -> dict[str, int]:
    if header.producer_id < 0:
        return {}
    return {
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": (header.base_sequence + number) & 0x7FFFFFFF,
    }


def _batch_of(items: list[_Item], header: BatchHeader) -> bytearray:
    from qbus.records.encode import encode_records  # noqa: PLC0415 - loads the codec

    records = [item.record for item in items]
    return encode_records(
        [record.value for record in records],
        [record.key for record in records],
        [record.headers for record in records],
        [record.timestamp for record in records],
        base_timestamp=records[0].timestamp,
        compression=Compression(header.compression),
        **_sequence(header, items[0].number),
    )
