"""What became of a partition's records, as its log says: hidden batches included. Pure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from qbus.delay import DELAYED_OFFSET, DELIVER_AT, read_order
from qbus.jobs import JobOptions, encode_id
from qbus.records import BatchHeader, Record, iter_records
from qbus.records.control import (
    Announcement,
    Change,
    ChangeKind,
    ControlRecord,
    ControlType,
    History,
    decode_announcement,
    decode_carried,
    decode_entries,
    decode_rescheduled,
    decode_result,
    decode_shared,
    iter_control,
)

from ..share.types import ShareRecord


class Settlement(NamedTuple):
    """What one control batch says is over for a group: ranges of offsets, and jobs' results."""

    changes: list[Change]
    results: dict[int, bytes]


_OVER = frozenset({ChangeKind.ACKNOWLEDGED, ChangeKind.ARCHIVED})
_ENDED = frozenset({ControlType.CANCELLED, ControlType.EXPIRED})


def is_control(header: BatchHeader) -> bool:
    """Whether a batch holds control records of Qbus's own, or a transaction's markers."""
    return header.is_control and not header.is_delayed


def settlement(batch: memoryview, group: str) -> Settlement:
    """Return what a control batch says is over for ``group``. Raises CorruptBatch."""
    found = Settlement([], {})
    for record in iter_control(batch):
        if record.type is ControlType.SHARED:
            name, changes = decode_shared(record.value)
            if name == group:
                found.changes.extend(change for change in changes if change.kind in _OVER)
        elif record.type is ControlType.RESULT:
            result = decode_result(record.value)
            if result.group == group:
                found.results[result.offset] = result.body
    return found


def delivered_as(batch: memoryview) -> Iterator[tuple[int, int]]:
    """Yield, of each delayed record that a batch delivers, what its producer was told and its
    offset.
    """
    for record in iter_records(batch):
        told = told_offset(record)
        if told is not None:
            yield told, record.offset


def told_offset(record: Record | ShareRecord) -> int | None:
    """Return the offset that the producer of a delayed record was told; None: it was not."""
    for name, value in record.headers:
        if name == DELAYED_OFFSET and value is not None and value.isdigit():
            return int(value)
    return None


def job_id(
    topic_id: bytes, partition: int, record: Record | ShareRecord, options: JobOptions
) -> str:
    """Return the id of the job that a record is, the same that its producer was told.

    So that of a delayed one has the time when it was to be due first.
    """
    told = told_offset(record) if options.delay else None
    if told is None:
        seconds = record.timestamp // 1000
        return encode_id(topic_id, partition, record.offset, options._replace(delay=0), seconds)
    return encode_id(topic_id, partition, told, options, _due_ms(record) // 1000)


def _due_ms(record: Record | ShareRecord) -> int:
    for name, value in record.headers:
        if name == DELIVER_AT and value is not None and value.isdigit():
            return int(value)
    return record.timestamp


class TraceEvent(NamedTuple):
    """One step of a record's way: at a time in ms since the Unix epoch, written at ``offset``.

    ``what`` happened: appended, delayed, rescheduled, cancelled, expired, carried, delivered,
    acknowledged, archived, returned, begun, forgotten, result. ``group``: to which share group.
    """

    at: int
    offset: int
    what: str
    group: str | None
    details: dict[str, Any]


class RecordTrace:
    """Follows one record through the batches of its partition, in their order."""

    def __init__(self, offset: int) -> None:
        """``offset``: the one that the record's producer was told."""
        self._told = offset
        self._place = offset
        self._announced: Announcement | None = None
        self._histories: dict[str, History] = {}
        self._over: set[str] = set()

    def see(self, header: BatchHeader, batch: memoryview) -> list[TraceEvent]:
        """Return what a batch says of the record. Raises CorruptBatch."""
        if is_control(header):
            return [
                event
                for record in iter_control(batch)
                for event in self._control(record, header.max_timestamp)
            ]
        announced, self._announced = self._announced, None
        if announced is not None:
            return self._delivered(batch)
        if not header.base_offset <= self._place <= header.last_offset:
            return []
        return [
            self._appended(header, record)
            for record in iter_records(batch)
            if record.offset == self._place
        ]

    def _appended(self, header: BatchHeader, record: Record) -> TraceEvent:
        details = {
            "key": record.key,
            "size": len(record.key or b"") + len(record.value or b""),
            "headers": record.headers,
            "leader_epoch": header.partition_leader_epoch,
        }
        if not header.is_delayed:
            return TraceEvent(record.timestamp, record.offset, "appended", None, details)
        order = read_order(record.headers, header.max_timestamp)
        if order is not None:
            details["due"] = order.due
        return TraceEvent(header.max_timestamp, record.offset, "delayed", None, details)

    def _delivered(self, batch: memoryview) -> list[TraceEvent]:
        for record in iter_records(batch):
            if told_offset(record) == self._told:
                self._place = record.offset
                return [TraceEvent(record.timestamp, record.offset, "delivered", None, {})]
        return []

    def _control(self, record: ControlRecord, at: int) -> Iterator[TraceEvent]:
        offset, kind, value = record
        if kind is ControlType.SHARED:
            group, changes = decode_shared(value)
            for change in changes:
                yield from self._changed(group, change, at, offset)
        elif kind is ControlType.RESULT:
            result = decode_result(value)
            if result.offset == self._place:
                yield TraceEvent(at, offset, "result", result.group, {"result": result.body})
        elif (details := self._delay(record)) is not None:
            yield TraceEvent(at, offset, kind.name.lower(), None, details)

    def _delay(self, record: ControlRecord) -> dict[str, Any] | None:
        """Return what is new about the delay of the record; None: nothing."""
        offset, kind, value = record
        if kind is ControlType.DELIVERED:
            announcement = decode_announcement(value)
            if self._place in announcement.entries.offsets:
                self._announced = announcement  # the next batch has it
        elif kind is ControlType.CARRIED:
            carried = decode_carried(value)
            if carried.from_offset == self._place:
                self._place = offset
                return {"due": carried.due}
        elif kind is ControlType.RESCHEDULED:
            due, entries = decode_rescheduled(value)
            if self._place in entries.offsets:
                return {"due": due}
        elif kind in _ENDED and self._place in decode_entries(value).offsets:
            return {}
        return None

    def _changed(self, group: str, change: Change, at: int, offset: int) -> Iterator[TraceEvent]:
        kind, first, last, history = change
        details: dict[str, Any] = {}
        if kind is ChangeKind.STARTED:
            what, details = "begun", {"start": first}
            self._histories.pop(group, None)
            self._over.discard(group)
        elif kind is ChangeKind.FORGOTTEN:
            what = "forgotten"
            self._histories.pop(group, None)
        elif not first <= self._place <= last or group in self._over:
            return  # what is over is told of again now and then
        elif kind is ChangeKind.RETURNED:
            what = "returned"
            details = _returned(self._histories.get(group, History()), history)
            self._histories[group] = history
        else:
            what = kind.name.lower()
            self._over.add(group)
        yield TraceEvent(at, offset, what, group, details)


def _returned(before: History, now: History) -> dict[str, Any]:
    """How a record came back: why, and how often so far."""
    if now.rejected:
        why = "rejected"
    elif now.timeouts > before.timeouts:
        why = "timed out"
    elif now.nacks > before.nacks:
        why = "refused"
    else:
        why = "released"
    return {
        "why": why,
        "deliveries": now.deliveries,
        "nacks": now.nacks,
        "timeouts": now.timeouts,
        "not_before": now.not_before or None,
    }
