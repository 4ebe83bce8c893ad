"""Hidden batches as documents: what a log remembers of delayed records and of queues."""

from collections.abc import Callable
from typing import Any

from qbus.cli.consume.record_format import record_fields
from qbus.records import iter_records
from qbus.records.control import (
    ChangeKind,
    ControlType,
    Entries,
    decode_announcement,
    decode_carried,
    decode_entries,
    decode_int64,
    decode_rescheduled,
    decode_result,
    decode_shared,
    iter_control,
)

Fields = dict[str, Any]


def control_fields(batch: bytes) -> list[Fields]:
    """What each control record of a hidden batch says. Raises CorruptBatch."""
    return [
        {"offset": record.offset, "type": record.type.name.lower()}
        | _DECODERS[record.type](record.value)
        for record in iter_control(batch)
    ]


def _carried(value: bytes) -> Fields:
    carried = decode_carried(value)
    return {
        "due": carried.due,
        "from_offset": carried.from_offset,
        "original_offset": carried.original_offset,
        "taken": carried.taken_ms,
        "record": next(map(record_fields, iter_records(carried.batch)), None),
    }


def _delivered(value: bytes) -> Fields:
    announced = decode_announcement(value)
    return {
        "crc": announced.crc,
        "records_count": announced.records_count,
        **_entries(announced.entries),
    }


def _rescheduled(value: bytes) -> Fields:
    due, entries = decode_rescheduled(value)
    return {"due": due, **_entries(entries)}


def _shared(value: bytes) -> Fields:
    group, changes = decode_shared(value)
    return {
        "group": group,
        "changes": [
            {"kind": kind.name.lower(), "first": first, "last": last}
            | (history._asdict() if kind is ChangeKind.RETURNED else {})
            for kind, first, last, history in changes
        ],
    }


def _result(value: bytes) -> Fields:
    group, offset, body = decode_result(value)
    return {"group": group, "of": offset, "size": len(body)}


def _entries(entries: Entries) -> Fields:
    pairs = zip(*entries, strict=True)
    return {"entries": [{"due": due, "offset": offset} for due, offset in pairs]}


_DECODERS: dict[ControlType, Callable[[bytes], Fields]] = {
    ControlType.CARRIED: _carried,
    ControlType.DELIVERED: _delivered,
    ControlType.CANCELLED: lambda value: _entries(decode_entries(value)),
    ControlType.EXPIRED: lambda value: _entries(decode_entries(value)),
    ControlType.RESCHEDULED: _rescheduled,
    ControlType.BOUND: lambda value: {"bound": decode_int64(value)},
    ControlType.SHARED: _shared,
    ControlType.RESULT: _result,
}
