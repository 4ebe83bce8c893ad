"""What the control records of queues add up to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.queues.fold import MOST_RESULTS, GroupProgress, QueueFold, Results
from qbus.errors import CorruptBatch
from qbus.records.control import (
    Change,
    ChangeKind,
    ControlRecord,
    ControlType,
    History,
    Shared,
    SharedResult,
    encode_result,
    encode_shared,
)
from tests.support.ranges import spans

STARTED, DONE, ARCHIVED = ChangeKind.STARTED, ChangeKind.ACKNOWLEDGED, ChangeKind.ARCHIVED
RETURNED, FORGOTTEN = ChangeKind.RETURNED, ChangeKind.FORGOTTEN


def fold(*changes: Change, group: str = "g") -> QueueFold:
    """A fold of one control record for each change."""
    made = QueueFold()
    for place, change in enumerate(changes, 1000):
        value = encode_shared(Shared(group, [change]))
        made.control(ControlRecord(place, ControlType.SHARED, value))
    return made


def progress(*changes: Change) -> GroupProgress:
    return fold(*changes).groups["g"]


def test_the_start_moves_over_what_is_done_in_a_row() -> None:
    group = progress(Change(STARTED, 5, 5), Change(DONE, 7, 8), Change(ARCHIVED, 10, 10))
    assert (group.start, spans(group.done)) == (5, [(7, 8, True), (10, 10, True)])
    group.apply(Change(DONE, 5, 6))
    assert (group.start, spans(group.done)) == (9, [(10, 10, True)])
    group.apply(Change(DONE, 9, 9))
    assert (group.start, spans(group.done)) == (11, [])
    assert group.is_done(10)
    assert not group.is_done(11)


def test_what_is_returned_is_known_until_it_is_done() -> None:
    once, twice = History(1), History(2, 1, 0, 99)
    group = progress(
        Change(STARTED, 0, 0), Change(RETURNED, 0, 4, once), Change(RETURNED, 2, 2, twice)
    )
    assert spans(group.returned) == [(0, 1, once), (2, 2, twice), (3, 4, once)]
    group.apply(Change(DONE, 1, 3))
    assert spans(group.returned) == [(0, 0, once), (4, 4, once)]
    group.apply(Change(RETURNED, 0, 4, twice))
    assert spans(group.returned) == [(0, 0, twice), (4, 4, twice)], "what is done stays done"


def test_a_group_begins_anew() -> None:
    group = progress(Change(STARTED, 0, 0), Change(DONE, 0, 9), Change(STARTED, 3, 3))
    assert (group.start, group.begun_at, group.mentioned_at) == (3, 1002, 1002)


def test_a_group_that_is_forgotten_is_not_known() -> None:
    known = fold(Change(STARTED, 0, 0), Change(FORGOTTEN, 0, 0))
    assert (known.groups, known.done_before) == ({}, None)


def test_a_log_whose_beginning_is_gone_says_what_is_done_of_the_rest() -> None:
    group = progress(Change(DONE, 50, 59), Change(RETURNED, 70, 70, History(1)))
    assert group.start == 0
    assert [group.is_done(offset) for offset in (49, 50, 59, 60)] == [False, True, True, False]


def test_groups_do_not_know_of_each_other() -> None:
    known = fold(Change(STARTED, 0, 0), Change(DONE, 0, 9), group="a")
    value = encode_shared(Shared("b", [Change(STARTED, 4, 4)]))
    known.control(ControlRecord(2000, ControlType.SHARED, value))
    assert {name: group.start for name, group in known.groups.items()} == {"a": 10, "b": 4}
    assert known.done_before == 4


def test_where_results_are_is_known_of_the_latest() -> None:
    known = fold(Change(STARTED, 0, 0))
    value = encode_result(SharedResult("g", 3, b""))
    known.control(ControlRecord(5000, ControlType.RESULT, value))
    results = known.groups["g"].results
    assert (len(results), results.get(3), results.get(2), results.get(4)) == (1, 5000, None, None)
    value = encode_result(SharedResult("unknown", 1, b""))
    known.control(ControlRecord(1, ControlType.RESULT, value))
    assert list(known.groups) == ["g"]


def test_so_many_results_are_known_of_the_latest_records() -> None:
    results = Results()
    for offset in range(MOST_RESULTS + 2_500):
        results.add(offset, 7 * offset)
    assert MOST_RESULTS <= len(results) < MOST_RESULTS + 1_000
    last = MOST_RESULTS + 2_499
    assert (results.get(0), results.get(last), results.get(last + 1)) == (None, 7 * last, None)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers())))
def test_results_come_in_any_order_and_the_last_one_counts(
    told: list[tuple[int, int]],
) -> None:
    told = [(offset, place % (1 << 40)) for offset, place in told]
    results = Results()
    for offset, place in told:
        results.add(offset, place)
    assert list(results) == sorted(dict(told).items())
    assert {offset: results.get(offset) for offset in range(31)} == {
        offset: dict(told).get(offset) for offset in range(31)
    }


def test_a_group_may_be_mentioned_without_a_change() -> None:
    known = fold(Change(STARTED, 3, 3))
    for name in ("g", "other"):
        value = encode_shared(Shared(name, []))
        known.control(ControlRecord(2000, ControlType.SHARED, value))
    found = {name: (one.start, one.mentioned_at) for name, one in known.groups.items()}
    assert found == {"g": (3, 2000), "other": (0, 2000)}
    assert known.told_from == 2000


def test_records_of_others_and_damaged_ones() -> None:
    known = fold(Change(STARTED, 0, 0))
    known.control(ControlRecord(1, ControlType.BOUND, bytes(8)))
    with pytest.raises(CorruptBatch):
        known.control(ControlRecord(1, ControlType.SHARED, b"\0"))


@st.composite
def any_change(draw: st.DrawFn) -> Change:
    kind = draw(st.sampled_from(ChangeKind))
    first = draw(st.integers(0, 50))
    last = first + draw(st.integers(0, 20))
    history = History()
    if kind is RETURNED:
        count = st.integers(0, 3)
        history = History(draw(count), draw(count), draw(count), 7, draw(st.booleans()))
    return Change(kind, first, last, history)


def summary(known: QueueFold) -> object:
    return {
        name: (
            one.start,
            spans(one.done),
            spans(one.returned),
            list(one.results),
            one.mentioned_at,
        )
        for name, one in known.groups.items()
    }


@given(st.lists(st.tuples(st.sampled_from(["g", "h"]), any_change()), max_size=30), st.data())
def test_a_snapshot_and_the_rest_say_what_all_says(
    changes: list[tuple[str, Change]], data: st.DataObject
) -> None:
    whole, before = QueueFold(), QueueFold()
    cut = data.draw(st.integers(0, len(changes)))
    entries = [
        ControlRecord(place, ControlType.SHARED, encode_shared(Shared(name, [change])))
        for place, (name, change) in enumerate(changes)
    ]
    for number, entry in enumerate(entries):
        whole.control(entry)
        if number < cut:
            before.control(entry)
    for name, one in before.groups.items():
        one.results.add(len(name), 99)
    restored = QueueFold()
    restored.restore(b"".join(before.encode()))
    assert summary(restored) == summary(before)
    for one in restored.groups.values():
        one.results = Results()
    for entry in entries[cut:]:
        restored.control(entry)
    assert summary(restored) == summary(whole)
    for one in restored.groups.values():
        for span in one.done:
            assert span.first > one.start, "what the start is behind is not remembered"
            assert not one.returned.spans(span.first, span.last)
        assert not one.returned.spans(0, one.start - 1)


@pytest.mark.parametrize("cut", [1, 5, -1])
def test_a_snapshot_that_is_cut_is_refused(cut: int) -> None:
    content = b"".join(fold(Change(STARTED, 0, 0), Change(DONE, 3, 4)).encode())
    known = fold(Change(STARTED, 8, 8))
    for damaged in (content[:cut], content + b"?"):
        with pytest.raises(ValueError, match="snapshot"):
            known.restore(damaged)
    assert known.groups["g"].start == 8
