from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.log.segment import VerifiedRanges


def test_what_is_appended_is_verified() -> None:
    verified = VerifiedRanges(100)
    assert verified.cover(100, 500)
    assert not verified.cover(99, 500)


def test_ranges_that_meet_become_one() -> None:
    verified = VerifiedRanges(100)
    verified.add(0, 30)
    verified.add(60, 100)
    assert not verified.cover(0, 100)
    verified.add(30, 60)
    assert verified.cover(0, 1000)


def test_what_is_cut_must_be_verified_again_unless_it_is_appended_again() -> None:
    verified = VerifiedRanges(100)
    verified.add(0, 100)
    verified.truncate(50)
    assert verified.cover(0, 50)
    assert verified.cover(50, 80), "appended by this process"


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))),
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80))),
    st.tuples(st.integers(0, 80), st.integers(0, 80)),
)
def test_what_went_bad_must_be_verified_again(
    added: list[tuple[int, int]], removed: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    verified = VerifiedRanges(60)
    known = set(range(60, 80))
    for start, end in added:
        verified.add(start, end)
        known |= set(range(start, end))
    for start, end in removed:
        verified.remove(start, end)
        known -= set(range(start, end))
    assert verified.cover(*asked) == known.issuperset(range(*asked))


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))),
    st.tuples(st.integers(0, 50), st.integers(0, 50)),
)
def test_a_range_is_covered_if_all_its_bytes_were_added(
    added: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    verified = VerifiedRanges(60)
    known: set[int] = set()
    for start, end in added:
        verified.add(start, end)
        known |= set(range(start, end))
    assert verified.cover(*asked) == known.issuperset(range(*asked))
