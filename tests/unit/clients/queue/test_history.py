"""What a log says of one record: each step of its way, in the order in which it went."""

import pytest

from qbus.clients.queue.history import RecordTrace, TraceEvent, delivered_as, settlement
from qbus.records import build_batch, iter_batches, set_base_offset
from qbus.records.control import (
    Announcement,
    Carried,
    Change,
    ChangeKind,
    ControlType,
    Entries,
    History,
    Shared,
    SharedResult,
    control_batch,
    encode_announcement,
    encode_carried,
    encode_entries,
    encode_rescheduled,
    encode_result,
    encode_shared,
)
from qbus.records.header import hide_delayed

ACKNOWLEDGED, ARCHIVED, RETURNED, STARTED, FORGOTTEN = ChangeKind


class Log:
    """Batches one after the other, and what is said of the record at an offset."""

    def __init__(self, told: int) -> None:
        self.trace = RecordTrace(told)
        self.end = 0

    def append(self, batch: bytearray, count: int) -> list[TraceEvent]:
        set_base_offset(batch, self.end, 7)
        self.end += count
        ((header, whole),) = iter_batches(bytes(batch))
        return self.trace.see(header, whole)

    def records(self, *headers: tuple[str, bytes | None]) -> list[TraceEvent]:
        return self.append(build_batch([(b"k", b"value", headers, 1000 + self.end)]), 1)

    def control(self, kind: ControlType, value: bytes) -> list[TraceEvent]:
        return self.append(control_batch([(kind, value)], 2000 + self.end), 1)

    def shared(self, *changes: Change, group: str = "g") -> list[TraceEvent]:
        return self.control(ControlType.SHARED, encode_shared(Shared(group, [*changes])))


def test_an_appended_record() -> None:
    log = Log(1)
    assert log.records() == []
    (event,) = log.records(("h", b"x"))
    assert event == (
        1001,
        1,
        "appended",
        None,
        {"key": b"k", "size": 6, "headers": (("h", b"x"),), "leader_epoch": 7},
    )
    assert log.records() == []


def test_returned_and_why() -> None:
    log = Log(0)
    log.records()
    events = [
        *log.shared(Change(RETURNED, 0, 3, History(1, 1, 0, 9000))),
        *log.shared(Change(RETURNED, 0, 0, History(2, 1, 1))),
        *log.shared(Change(RETURNED, 0, 0, History(3, 1, 1))),
        *log.shared(Change(RETURNED, 1, 1, History(9, 9, 9))),
        *log.shared(Change(RETURNED, 0, 0, History(4, 2, 1, 0, rejected=True))),
        *log.shared(Change(ARCHIVED, 0, 0)),
    ]
    assert [(event.what, event.details.get("why")) for event in events] == [
        ("returned", "refused"),
        ("returned", "timed out"),
        ("returned", "released"),
        ("returned", "rejected"),
        ("archived", None),
    ]
    assert events[0].details == {
        "why": "refused",
        "deliveries": 1,
        "nacks": 1,
        "timeouts": 0,
        "not_before": 9000,
    }
    assert {(event.group, event.at) for event in events[:1]} == {("g", 2001)}


def test_done_by_each_group_and_its_result() -> None:
    log = Log(0)
    log.records()
    events = [
        *log.shared(Change(STARTED, 0, 0)),
        *log.shared(Change(ACKNOWLEDGED, 0, 5), group="a"),
        *log.control(ControlType.RESULT, encode_result(SharedResult("g", 0, b"42"))),
        *log.control(ControlType.RESULT, encode_result(SharedResult("g", 1, b"other"))),
        *log.shared(Change(ACKNOWLEDGED, 0, 0)),
        *log.shared(Change(FORGOTTEN, 0, 0)),
    ]
    assert [(event.what, event.group, event.details) for event in events] == [
        ("begun", "g", {"start": 0}),
        ("acknowledged", "a", {}),
        ("result", "g", {"result": b"42"}),
        ("acknowledged", "g", {}),
        ("forgotten", "g", {}),
    ]


def test_what_is_over_is_not_told_again() -> None:
    log = Log(0)
    log.records()
    assert len(log.shared(Change(ACKNOWLEDGED, 0, 0))) == 1
    assert log.shared(Change(ARCHIVED, 0, 9)) == []
    log.shared(Change(STARTED, 0, 0))
    assert len(log.shared(Change(ARCHIVED, 0, 9))) == 1


def delayed(log: Log, due: int) -> list[TraceEvent]:
    batch = build_batch([(b"k", b"v", (("qbus-deliver-at", b"%d" % due),), 5)])
    hide_delayed(batch, 1234)
    return log.append(batch, 1)


def test_a_delayed_record_where_it_goes_and_what_becomes_of_it_there() -> None:
    log = Log(0)
    (event,) = delayed(log, 5000)
    assert (event.what, event.at, event.details["due"]) == ("delayed", 1234, 5000)
    (event,) = log.control(
        ControlType.RESCHEDULED, encode_rescheduled(6000, Entries((5000,), (0,)))
    )
    assert (event.what, event.details) == ("rescheduled", {"due": 6000})
    carried = Carried(6000, 0, 0, 1234, 5, b"")
    (event,) = log.control(ControlType.CARRIED, encode_carried(carried))
    assert (event.what, event.offset) == ("carried", 2)
    announced = Announcement(0, 2, Entries((6000, 6000), (9, 2)))
    assert log.control(ControlType.DELIVERED, encode_announcement(announced)) == []
    items = [
        (None, b"other", (("qbus-delayed-offset", b"9"),), 6000),
        (b"k", b"v", (("qbus-delayed-offset", b"0"),), 6000),
    ]
    (event,) = log.append(build_batch(items), 2)
    assert (event.what, event.at, event.offset) == ("delivered", 6000, 5)
    assert log.shared(Change(ACKNOWLEDGED, 0, 4)) == []
    (event,) = log.shared(Change(ACKNOWLEDGED, 5, 5))
    assert event.what == "acknowledged"


@pytest.mark.parametrize("kind", [ControlType.CANCELLED, ControlType.EXPIRED])
def test_a_delayed_record_that_is_not_delivered(kind: ControlType) -> None:
    log = Log(0)
    delayed(log, 5000)
    assert log.control(kind, encode_entries(Entries((5000,), (1,)))) == []
    (event,) = log.control(kind, encode_entries(Entries((5000,), (0,))))
    assert event.what == kind.name.lower()


def test_what_is_over_for_one_group() -> None:
    over, other = Change(ACKNOWLEDGED, 3, 5), Change(ARCHIVED, 7, 7)
    batch = control_batch(
        [
            (ControlType.RESULT, encode_result(SharedResult("g", 4, b"four"))),
            (ControlType.RESULT, encode_result(SharedResult("h", 5, b"five"))),
            (ControlType.SHARED, encode_shared(Shared("g", [over, Change(RETURNED, 6, 6)]))),
            (ControlType.SHARED, encode_shared(Shared("h", [Change(ACKNOWLEDGED, 0, 0)]))),
            (ControlType.SHARED, encode_shared(Shared("g", [other]))),
            (ControlType.BOUND, bytes(8)),
        ],
        0,
    )
    assert settlement(memoryview(batch), "g") == ([over, other], {4: b"four"})


def test_what_producers_were_told_of_delivered_records() -> None:
    items: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]] = [
        (None, b"a", (), 5),
        (None, b"b", (("qbus-delayed-offset", b"17"),), 5),
        (None, b"c", (("qbus-delayed-offset", b"x"), ("qbus-delayed-offset", None)), 5),
    ]
    batch = build_batch(items)
    set_base_offset(batch, 30, 0)
    assert list(delivered_as(memoryview(batch))) == [(17, 31)]
