"""The chronicle finds what may not be, or no storm proves anything."""

from tests.sdk.storms.chronicle import Chronicle


def test_two_owners_in_one_generation() -> None:
    chronicle = Chronicle()
    chronicle.note("a", ("owns", [1, 0, 1]))
    chronicle.note("b", ("owns", [2, 0]))
    assert chronicle.wrong == []
    chronicle.note("b", ("owns", [1, 1, 2]))
    assert chronicle.wrong == ["partition 1 has owners a and b in 1"]


def test_an_offset_that_goes_back() -> None:
    chronicle = Chronicle()
    chronicle.note("a", ("committed", [0, 7]))
    chronicle.note("b", ("committed", [0, 5]))
    chronicle.check_committed(dict(chronicle.commits), {0: 7})
    assert chronicle.wrong == []
    chronicle.check_committed(dict(chronicle.commits), {0: 6})
    chronicle.check_committed(dict(chronicle.commits), {})
    assert chronicle.wrong == [
        "partition 0 went back from 7 to 6",
        "partition 0 went back from 7 to None",
    ]


def test_an_offset_beyond_what_was_seen() -> None:
    chronicle = Chronicle()
    for offset in (0, 1, 3):
        chronicle.note("a", ("saw", [0, offset]))
    chronicle.check_covered({0: 2})
    assert chronicle.wrong == []
    chronicle.check_covered({0: 4})
    assert chronicle.wrong == ["partition 0: 4 committed without {2}"]
