"""What a member of a share group has: accepted in rows, record by record once it must be."""

import gc
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from qbus.clients.share.options import ShareOptions
from qbus.clients.share.session import Lease, ShareSession
from qbus.clients.share.taken import Span, TakenRecords, TakenRun, rows_of
from qbus.clients.share.types import ShareRecord
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.records import TimestampType
from qbus.records.codec import HeldItems

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS: Any = ShareOptions.__new__(ShareOptions)
LEASE = Lease(ShareSession(OPTIONS, "m", 1), 0)


def record(offset: int, partition: TopicPartition = P0) -> ShareRecord:
    return ShareRecord(*partition, offset, 5, None, b"v", (), TimestampType.CREATE_TIME, 1)


def run_of(*offsets: int, partition: TopicPartition = P0) -> TakenRun:
    return TakenRun(partition, LEASE, [record(offset, partition) for offset in offsets])


def taken(*runs: TakenRun, is_explicit: bool = False) -> TakenRecords:
    records = TakenRecords(is_explicit=is_explicit)
    for run in runs:
        records.add(run)
    return records


def accepted(records: TakenRecords, *, but_current: bool) -> list[tuple[int, int]]:
    return [(span.first, span.size) for span in records.seen(but_current=but_current)]


@pytest.mark.parametrize(
    ("offsets", "rows"),
    [
        ((), []),
        (range(0), []),
        (range(3, 7), [(3, 4)]),
        ([4], [(4, 1)]),
        ([1, 2, 3, 7, 9, 10], [(1, 3), (7, 1), (9, 2)]),
    ],
)
def test_offsets_as_rows(offsets: Any, rows: list[tuple[int, int]]) -> None:
    assert list(rows_of(offsets)) == rows


def test_a_loop_is_done_with_all_but_the_record_that_it_is_at() -> None:
    run = run_of(3, 4, 5)
    records = taken(run)
    assert accepted(records, but_current=True) == []
    next(run.rest)
    assert accepted(records, but_current=True) == []
    next(run.rest)
    next(run.rest)
    assert accepted(records, but_current=True) == [(3, 2)]
    assert accepted(records, but_current=True) == []
    run.is_passed = True
    assert accepted(records, but_current=True) == [(5, 1)]
    assert records.index() == {}


def test_who_asks_for_more_is_done_with_all_that_was_seen() -> None:
    run = run_of(3, 4, 5)
    records = taken(run)
    assert [one.offset for one in run.take(2)] == [3, 4]
    run.is_polled = True
    assert accepted(records, but_current=True) == []
    assert accepted(records, but_current=False) == [(3, 2)]
    assert list(records.index()) == [("t", 0, 5)]


def test_offsets_with_gaps_are_several_rows() -> None:
    run = run_of(3, 4, 7)
    records = taken(run, run_of(1, partition=P1))
    run.take(3)
    assert records.seen(but_current=False) == [Span(P0, 3, 2, LEASE), Span(P0, 7, 1, LEASE)]


def test_what_was_said_of_single_records_is_not_said_again() -> None:
    run = run_of(*range(6))
    records = taken(run)
    run.take(4)
    index = records.index()
    assert len(index) == 6
    assert records.remove([("t", 0, 1), ("t", 0, 2), ("t", 0, 5)]) == [
        Span(P0, 1, 2, LEASE),
        Span(P0, 5, 1, LEASE),
    ]
    assert not records.has(record(5))
    assert records.has(record(4))
    assert accepted(records, but_current=False) == [(0, 1), (3, 1)]


def test_nothing_more_is_seen_of_a_run_that_is_withheld() -> None:
    run = run_of(*range(6))
    records = taken(run)
    next(run.rest)
    assert records.withhold(run) == [1, 2, 3, 4, 5]
    assert records.withhold(run) == []
    assert run.is_passed
    assert not run.is_left
    assert accepted(records, but_current=True) == [(0, 1)]
    assert records.index() == {}


def test_of_an_indexed_run_only_what_is_held_is_withheld() -> None:
    run = run_of(*range(4))
    records = taken(run)
    records.index()
    records.remove([("t", 0, 2)])
    assert records.withhold(run) == [0, 1, 3]
    assert records.index() == {}


def looped(run: TakenRun) -> "HeldItems[ShareRecord]":
    """What a loop iterates over, which is quick after its first record."""

    def look() -> ShareRecord:
        run.be_quick(lambda: True)
        return next(run.rest)

    run.items = HeldItems(run.rest, run.lease.until, look)
    next(run.items)
    return run.items


@pytest.mark.parametrize("end", [TakenRun.finish, TakenRun.withhold])
def test_a_run_that_is_over_does_not_wait_for_the_collector(
    end: Callable[[TakenRun], object],
) -> None:
    run = run_of(*range(4))
    items = looped(run)
    gone = weakref.ref(run)
    gc.collect()
    gc.disable()
    try:
        end(run)
        del run, items
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "change",
    [
        lambda records, run: records.index(),
        lambda records, run: records.withhold(run),
        lambda records, run: records.look_again(),
        lambda records, run: records.clear(),
        lambda records, run: run.look_again(),
    ],
)
def test_a_loop_is_quick_until_something_changes(
    change: Callable[[TakenRecords, TakenRun], object],
) -> None:
    run = run_of(*range(4))
    records = taken(run)
    records.ready.append(run)
    items = looped(run)
    assert items.is_quick
    change(records, run)
    assert not items.is_quick


def test_a_session_that_is_lost_has_its_loops_look_again() -> None:
    records = TakenRecords(is_explicit=False)
    session = ShareSession(OPTIONS, "m", 1, records.look_again)
    run = TakenRun(P0, Lease(session, 0), [record(offset) for offset in range(4)])
    records.ready.append(run)
    items = looped(run)
    seen = [items.is_quick]
    session.lose(ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND))
    seen.append(items.is_quick)
    assert next(items).offset == 1
    seen.append(items.is_quick)
    assert seen == [True, False, False]


@pytest.mark.parametrize("what", ["is_indexed", "is_passed"])
def test_what_another_thread_changes_meanwhile_keeps_a_loop_from_being_quick(what: str) -> None:
    run = run_of(1, 2)
    items = looped(run)
    run.be_quick(lambda: False)  # nobody looks how far it is
    assert not items.is_quick
    setattr(run, what, True)
    run.be_quick(lambda: True)
    assert not items.is_quick


class WatchedOffsets(list[int]):
    """Offsets that note, each time they are gone through, whether their run counts as indexed."""

    def __init__(self, offsets: list[int], notes: list[bool]) -> None:
        super().__init__(offsets)
        self.notes = notes
        self.run: TakenRun | None = None

    def __getitem__(self, key: Any) -> Any:
        some = WatchedOffsets(super().__getitem__(key), self.notes)
        some.run = self.run
        return some

    def __iter__(self) -> Iterator[int]:
        if self.run is not None:
            self.notes.append(self.run.is_indexed)
        return super().__iter__()


def test_a_run_counts_as_indexed_once_all_of_it_is() -> None:
    """Else a thread that reads it meanwhile would pass over what is accepted later."""
    notes: list[bool] = []
    offsets = WatchedOffsets([2, 3, 9], notes)
    offsets.run = run = TakenRun(P0, LEASE, offsets=offsets)
    assert list(taken(run).index()) == [("t", 0, 2), ("t", 0, 3), ("t", 0, 9)]
    assert notes
    assert not any(notes)
    assert run.is_indexed


def test_explicit_members_keep_what_they_say_nothing_of() -> None:
    run = run_of(*range(3))
    records = taken(run, is_explicit=True)
    run.take(3)
    assert records.seen(but_current=False) == []
    assert list(records.index()) == [("t", 0, offset) for offset in range(3)]


def test_columns_are_seen_at_once() -> None:
    run = TakenRun(P0, LEASE, offsets=[2, 3, 9])
    records = taken(run)
    assert not run.is_left
    assert accepted(records, but_current=False) == [(2, 2), (9, 1)]


def test_nothing_is_shown_after_the_end() -> None:
    run = run_of(1, 2)
    records = taken(run)
    records.ready.append(run)
    records.clear()
    assert run.is_passed
    assert records.index() == {}
    assert records.seen(but_current=False) == []


class User:
    """Does anything with the runs of a member, and takes down what was seen and what was said."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.records = TakenRecords(is_explicit=False)
        self.runs: list[TakenRun] = []
        self.seen: set[int] = set()
        self.said: list[int] = []
        self.offset = 0

    def add(self) -> None:
        offsets = []
        for _ in range(5):
            self.offset += self.draw.choice([1, 1, 1, 3])
            offsets.append(self.offset)
        self.runs.append(run_of(*offsets))
        self.records.add(self.runs[-1])

    def read(self) -> None:
        run = self.draw.choice(self.runs)
        if run.is_left:
            self.seen.add(next(run.rest).offset)

    def poll(self, limit: int = 0) -> None:
        run = self.draw.choice(self.runs)
        if run.is_left:
            self.seen.update(one.offset for one in run.take(limit or self.draw.randrange(1, 4)))
            run.is_polled = True

    def ask(self, *, but_current: bool = False) -> None:
        for span in self.records.seen(but_current=but_current):
            self.said += range(span.first, span.first + span.size)

    def look(self) -> None:
        self.ask(but_current=True)

    def say(self) -> None:
        if index := self.records.index():
            place = self.draw.choice(list(index))
            self.said += [span.first for span in self.records.remove([place])]
            self.seen.add(place[2])

    def withhold(self) -> None:
        withheld = self.records.withhold(self.draw.choice(self.runs))
        self.said += withheld
        self.seen.update(withheld)


@pytest.mark.parametrize("seed", range(20))
def test_each_record_is_accepted_once_or_said_of_once(seed: int) -> None:
    """Whatever a user does, in whatever order: no record is lost, and none is spoken of twice."""
    user = User(seed)
    user.add()
    for _ in range(200):
        user.draw.choice(
            [user.add, user.read, user.poll, user.ask, user.look, user.say, user.withhold]
        )()
    for run in user.runs:
        if run.is_left:
            user.seen.update(one.offset for one in run.take(5))
    user.ask()
    assert len(user.said) == len(set(user.said))
    assert set(user.said) == user.seen
