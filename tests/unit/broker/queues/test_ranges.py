"""Ranges of offsets, beside a dictionary with an entry for each offset."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.queues.ranges import RangeMap, Span
from tests.support.ranges import spans

MOST = 40
EDGE = st.integers(0, MOST)
RANGE = st.tuples(EDGE, EDGE).map(lambda pair: (min(pair), max(pair)))
STEPS = st.lists(st.tuples(st.sampled_from(["set", "cut"]), RANGE, st.integers(0, 2)), max_size=40)


def spelled(found: list[Span[int]]) -> dict[int, int]:
    return {offset: span.value for span in found for offset in range(span.first, span.last + 1)}


@given(STEPS, RANGE)
def test_they_say_the_same_as_an_entry_for_each_offset(
    steps: list[tuple[str, tuple[int, int], int]], asked: tuple[int, int]
) -> None:
    ranges: RangeMap[int] = RangeMap()
    known: dict[int, int] = {}
    for what, (first, last), value in steps:
        if what == "set":
            ranges.set(first, last, value)
            known |= dict.fromkeys(range(first, last + 1), value)
        else:
            removed = ranges.cut(first, last)
            assert spelled(removed) == {at: known[at] for at in known if first <= at <= last}
            known = {at: known[at] for at in known if not first <= at <= last}
        assert spelled(list(ranges)) == known
        assert ranges.size == len(known)
        assert ranges.size_from(first) == sum(at >= first for at in known)
        assert ranges.count_from(first) == len([one for one in ranges if one.last >= first])
        assert ranges.end == max(known, default=-1) + 1
    assert all(ranges.at(offset) == known.get(offset) for offset in range(MOST + 1))
    first, last = asked
    inside = range(first, last + 1)
    assert spelled(ranges.spans(first, last)) == {at: known[at] for at in inside if at in known}
    gaps = [at for low, high in ranges.gaps(first, last) for at in range(low, high + 1)]
    assert gaps == [at for at in inside if at not in known]
    for one, other in pairwise(ranges):
        assert one.last + 1 < other.first or one.value != other.value


def test_a_range_is_found_by_any_of_its_offsets() -> None:
    ranges: RangeMap[str] = RangeMap()
    assert ranges.lowest() is None
    ranges.set(5, 9, "a")
    ranges.set(1, 2, "b")
    assert spans(ranges)[1] == (5, 9, "a")
    assert ranges.find(3) is None
    assert spans(ranges)[0] == (1, 2, "b")


@pytest.mark.parametrize("step", [1, -1])
def test_thousands_of_neighbours_become_one(step: int) -> None:
    ranges: RangeMap[bool] = RangeMap()
    for offset in range(5000)[::step]:
        ranges.set(offset, offset, True)
    assert spans(ranges) == [(0, 4999, True)]


def test_a_whole_range_gets_another_value_where_it_is() -> None:
    ranges: RangeMap[str] = RangeMap()
    ranges.set(3, 5, "a")
    ranges.set(6, 6, "b")
    assert ranges.replace(6, 6, "c")
    assert spans(ranges) == [(3, 5, "a"), (6, 6, "c")]
    assert not any(ranges.replace(first, last, "d") for first, last in [(3, 4), (4, 5), (7, 7)])
    assert (spans(ranges), ranges.size) == ([(3, 5, "a"), (6, 6, "c")], 4)
