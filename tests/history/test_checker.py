"""The checker finds what it is there to find, and nothing in what a correct log shows."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .checker import assert_correct, check
from .history import History, Outcome, Poll, Produce
from .model import Model
from .report import Kind


def said(value: str, offset: int | None, started: float = 0.0, ended: float = 9.0) -> Produce:
    """A record that was acknowledged."""
    return Produce("p", 0, value.encode(), started, ended, Outcome.OK, offset)


def open_ended(value: str, **changes: object) -> Produce:
    """A record of which nothing was heard."""
    return replace(Produce("p", 0, value.encode(), 0.0), **changes)  # type: ignore[arg-type]


def read(
    *values: str, start: int = 0, who: str = "c", session: int = 0, ended: float = 9.0
) -> Poll:
    """A poll that handed these out."""
    records = [(start + index, value.encode()) for index, value in enumerate(values)]
    return Poll(who, 0, records, ended, session)


ABC = [said("a", 0), said("b", 1), said("c", 2)]


@pytest.mark.parametrize(
    ("produces", "polls", "end", "kinds"),
    [
        pytest.param(ABC, [read("a", "b", "c")], 3, set(), id="all is well"),
        pytest.param([], [], None, set(), id="nothing happened"),
        pytest.param(ABC, [read("a", "b"), read("c", start=2)], 3, set(), id="in two polls"),
        pytest.param(
            ABC,
            [read("a", "b", "c"), read("b", start=1, session=1)],
            3,
            set(),
            id="a seek goes back",
        ),
        pytest.param(
            [*ABC, open_ended("d")],
            [read("a", "b", "c", "d")],
            4,
            set(),
            id="one that may be there is there",
        ),
        pytest.param([*ABC, open_ended("d")], [read("a", "b", "c")], 3, set(), id="or is not"),
        pytest.param(ABC, [read("a", "b")], 2, {Kind.LOST}, id="the end was cut off"),
        pytest.param(
            ABC,
            [read("a"), read("c", start=2)],
            None,
            {Kind.LOST, Kind.GAP},
            id="one in the middle is passed over",
        ),
        pytest.param(
            [said("a", 0), said("b", None)],
            [read("a")],
            1,
            {Kind.LOST},
            id="whose place was not told",
        ),
        pytest.param(
            [said("a", 0), open_ended("b")],
            [read("a", "b"), read("a", who="d")],
            1,
            {Kind.LOST},
            id="what was read is gone",
        ),
        pytest.param(
            ABC,
            [read("a", "b", "x")],
            3,
            {Kind.LOST, Kind.PHANTOM, Kind.INCONSISTENT},
            id="replaced",
        ),
        pytest.param(ABC, [read("a", "b")], None, {Kind.UNSEEN}, id="not read so far"),
        pytest.param(
            ABC, [read("a", "b")], 3, {Kind.UNSEEN, Kind.GAP}, id="not read, though there"
        ),
        pytest.param(ABC, [read("a", "b", "c", "b")], 4, {Kind.DUPLICATED}, id="stored twice"),
        pytest.param(
            [said("a", 1), said("b", 0)],
            [read("b", "a")],
            2,
            {Kind.REORDERED},
            id="by one producer",
        ),
        pytest.param(
            [said("a", 1, ended=1.0), open_ended("b", producer="q", started=2.0)],
            [read("b", "a")],
            2,
            {Kind.REORDERED},
            id="by another one that began later",
        ),
        pytest.param(
            [open_ended("a"), open_ended("b", producer="q", started=3.0)],
            [read("b", "a"), read("a", start=1, who="d", ended=2.0)],
            2,
            {Kind.REORDERED},
            id="after another one was read",
        ),
        pytest.param(ABC, [read("a", "b", "c", "x")], 4, {Kind.PHANTOM}, id="never sent"),
        pytest.param(
            [open_ended("a", outcome=Outcome.FAILED)], [read("a")], 1, {Kind.PHANTOM}, id="refused"
        ),
        pytest.param(
            [open_ended("a", started=10.0)], [read("a")], 1, {Kind.PHANTOM}, id="from the future"
        ),
        pytest.param(
            [open_ended("a", partition=1)], [read("a")], None, {Kind.PHANTOM}, id="sent elsewhere"
        ),
        pytest.param(
            [open_ended("a"), open_ended("b", producer="q")],
            [read("a"), read("b", who="d")],
            None,
            {Kind.INCONSISTENT},
            id="two readers disagree",
        ),
        pytest.param(
            [open_ended("a"), said("b", 0)],
            [read("a", "b")],
            None,
            {Kind.INCONSISTENT, Kind.DUPLICATED},
            id="a reader disagrees with what a producer was told",
        ),
        pytest.param(
            ABC, [read("a", "b"), read("b", "c", start=1)], 3, {Kind.NON_MONOTONIC}, id="read again"
        ),
        pytest.param(
            ABC,
            [read("a", "b", "c"), read("a", who="d"), read("c", who="d", start=2)],
            3,
            {Kind.GAP},
            id="one reader jumps",
        ),
    ],
)
def test_a_planted_fault_is_found(
    produces: list[Produce], polls: list[Poll], end: int | None, kinds: set[Kind]
) -> None:
    history = History(produces, polls, ends={} if end is None else {0: end})
    assert check(history).kinds == kinds


def test_who_is_not_idempotent_may_repeat_and_reorder() -> None:
    produces = [said("a", 1), said("b", 0)]
    history = History(produces, [read("b", "a", "b")], relaxed={"p"}, ends={0: 3})
    assert_correct(history)


def test_partitions_are_checked_each_for_itself() -> None:
    other = Poll("c", 1, [(0, b"d"), (1, b"d")], 9.0)
    history = History([*ABC, open_ended("d", partition=1)], [read("a", "b", "c"), other])
    assert [finding.partition for finding in check(history).findings] == [1]


def test_the_report_says_what_is_wrong_and_is_short() -> None:
    polls = [read(*(f"x{number}" for number in range(100)))]
    with pytest.raises(AssertionError) as failure:
        assert_correct(History(ABC, polls))
    text = str(failure.value)
    assert "3 records sent (3 ok, 0 failed, 0 unknown), 100 read" in text
    assert "b'x7', read by c, was never sent" not in text
    assert "phantom, partition 0: 100 in all" in text
    assert "b'a' of p was acknowledged at 0; read there: b'x0'" in text


runs = st.builds(lambda random: Model(random).run(100), st.randoms(use_true_random=False))


@settings(max_examples=50)
@given(runs)
def test_a_correct_log_shows_nothing_wrong(history: History) -> None:
    assert_correct(history)
    assert check(History.from_json(history.to_json())).findings == []


def _lose(history: History, one: Produce) -> None:
    for poll in history.polls:
        kept = [(o, v) for o, v in poll.records if v != one.value]
        poll.records = [(o - (o > (one.offset or 0)), v) for o, v in kept]
    for other in history.produces:
        if other is not one and other.partition == one.partition and other.offset is not None:
            other.offset -= other.offset > (one.offset or 0)
    history.ends[one.partition] -= 1


def _double(history: History, one: Produce) -> None:
    end = history.ends[one.partition]
    history.polls.append(Poll("last", one.partition, [(end, one.value)], 1e9))
    history.ends[one.partition] += 1


def _refuse(history: History, one: Produce) -> None:
    one.outcome, one.offset = Outcome.FAILED, None


def _move(history: History, one: Produce) -> None:
    assert one.offset is not None
    one.offset += 1


def _repeat(history: History, one: Produce) -> None:
    assert one.offset is not None
    history.polls.append(Poll("last", one.partition, [(one.offset, one.value)], 1e9))


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (_lose, Kind.LOST),
        (_double, Kind.DUPLICATED),
        (_refuse, Kind.PHANTOM),
        (_move, Kind.INCONSISTENT),
        (_repeat, Kind.NON_MONOTONIC),
    ],
)
def test_a_fault_is_found_in_the_midst_of_a_long_run(
    plant: Callable[[History, Produce], None], kind: Kind
) -> None:
    for seed in range(5):
        random = Random(seed)
        history = deepcopy(Model(random).run(200))
        # The last record of all may move, or vanish, without being missed by the others.
        told = [
            one
            for one in history.produces
            if one.offset is not None
            and one.producer != "relaxed"
            and one.offset + 1 < history.ends[one.partition]
        ]
        plant(history, random.choice(told))
        assert kind in check(history).kinds
