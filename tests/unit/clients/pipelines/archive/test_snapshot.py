"""Sets of offsets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from qbus.clients.pipelines.archive.snapshot import common, union

INTERVALS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), max(pair)))
)


def numbers(intervals: object) -> set[int]:
    return {at for begin, end in intervals for at in range(begin, end)}  # type: ignore[attr-defined]


@given(INTERVALS, INTERVALS)
def test_a_union_has_the_fewest_intervals(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    found = union(one, other)
    assert numbers(found) == numbers(one) | numbers(other)
    assert all(a[1] < b[0] for a, b in pairwise(found))


@given(INTERVALS, INTERVALS)
def test_the_intersection_is_in_both(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    assert numbers(common(union(one), union(other))) == numbers(one) & numbers(other)
