"""What workers of jobs saw: each thing that must not be is found, and nothing else."""

from pathlib import Path

import pytest

from tests.support.job_audit import Breaks, Seen

S = 1_000_000_000


def seen(tmp_path: Path, text: str) -> Seen:
    (path := tmp_path / "journal").write_text(text)
    found = Seen()
    found.read(path)
    return found


def bad(found: Seen, breaks: Breaks = ()) -> dict[str, set[int]]:
    said = {
        "lost": found.lost(),
        "done twice": found.done_twice(),
        "given after done": found.given_after_done(),
        "given twice": found.given_twice(),
        "within lock": found.given_within_lock(10, breaks),
        "miscounted": found.miscounted(10, breaks),
    }
    return {what: numbers for what, numbers in said.items() if numbers}


ADDED = "+ 1 1\n"
DONE = f"a 1 D-x\nd 1 {S}\n"


def given(asked_s: float, here_s: float, nacks: int = 0, timeouts: int = 0) -> str:
    return f"g 1 {int(asked_s * S)} {int(here_s * S)} {nacks} {timeouts}\n"


def test_nothing_is_wrong_with_a_job_that_is_added_given_and_done(tmp_path: Path) -> None:
    found = seen(tmp_path, ADDED + given(0, 0.5) + DONE)
    assert bad(found) == {}
    assert (found.added, found.given, found.done) == (1, 1, 1)
    assert found.histogram() == "[(1, 1)]"


def test_one_that_is_given_to_nobody_is_lost(tmp_path: Path) -> None:
    assert bad(seen(tmp_path, ADDED)) == {"lost": {1}}
    assert bad(seen(tmp_path, ADDED + given(0, 1))) == {"lost": {1}}
    assert bad(seen(tmp_path, "? 1\n")) == {}, "it may never have been there"


def test_one_that_is_acknowledged_without_an_answer_is_to_be_asked_for(tmp_path: Path) -> None:
    found = seen(tmp_path, ADDED + given(0, 1) + "a 1 D-x\n")
    assert bad(found) == {}, "it may be done"
    assert found.unanswered() == {1: b"D-x"}
    assert found.open() == {1}
    assert seen(tmp_path, ADDED + given(0, 1) + DONE).unanswered() == {}


def test_one_that_was_given_up_is_not_lost(tmp_path: Path) -> None:
    found = seen(tmp_path, ADDED)
    assert found.lost(dead={1}) == set()
    assert found.lost(dead={2}) == {1}


def test_one_that_comes_after_it_was_done(tmp_path: Path) -> None:
    text = ADDED + given(0, 0.5) + DONE + given(20, 21, timeouts=1)
    assert bad(seen(tmp_path, text)) == {"given after done": {1}, "given twice": {1}}
    assert bad(seen(tmp_path, f"? 1\n{text}")) == {}, "it may have been added twice"


def test_one_that_is_done_twice(tmp_path: Path) -> None:
    text = ADDED + given(0, 0.5) + given(0, 30, timeouts=1) + DONE + f"d 1 {31 * S}\n"
    assert bad(seen(tmp_path, text)) == {"done twice": {1}, "given twice": {1}}


@pytest.mark.parametrize(
    ("again", "breaks", "is_wrong"),
    [
        (given(1, 9, 0, 1), (), True),
        (given(1, 11, 0, 1), (), False),
        (given(1, 9, 1, 0), (), False),  # the first one refused it
        (given(1, 9, 0, 1), ((S, 2 * S),), False),
        (given(1, 9, 0, 1), ((20 * S, 30 * S),), True),
    ],
)
def test_one_that_two_have_at_a_time(
    tmp_path: Path, again: str, breaks: Breaks, is_wrong: bool
) -> None:
    found = seen(tmp_path, f"+ 1 {-10 * S}\n" + given(0, 0.5) + again + "r 1\n")
    assert ("within lock" in bad(found, breaks)) is is_wrong


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        (given(0, 0.5) + given(10, 11, 0, 1), False),
        (given(0, 0.5) + given(10, 11, 0, 0), True),  # the time-out is forgotten
        (given(0, 0.5) + given(10, 11, 0, 2), True),  # there was no time for two
        (given(0, 21, 0, 2), False),  # whoever had it before was killed before he told of it
        (given(0, 0.5, 1, 0), True),  # nobody refused it
        ("r 1\n" + given(0, 0.5, 1, 0), False),
        (given(0, 0.1) + f"r 1\nn 1 {S}\n" + given(2, 3, 0, 0), True),  # a refusal is forgotten
        (given(0, 0.1) + f"r 1\nn 1 {S}\n" + given(2, 3, 1, 0), False),
        (given(0, 3, 1, 0) + f"r 1\nn 1 {S}\n" + given(0.1, 0.2), False),  # it asked, and waited
        (given(20, 21) + given(0, 12, 0, 1), True),  # as if it had been given out before
    ],
)
def test_what_it_counts(tmp_path: Path, text: str, is_wrong: bool) -> None:
    assert ("miscounted" in bad(seen(tmp_path, ADDED + text))) is is_wrong


def test_a_new_leader_may_count_less(tmp_path: Path) -> None:
    found = seen(tmp_path, ADDED + given(0, 0.5) + given(10, 11))
    assert found.miscounted(10, [(5 * S, 6 * S)]) == set()
    assert found.pairs([(5 * S, 6 * S)]) == (0, 1)
    assert found.pairs([(20 * S, 30 * S)]) == (1, 1)


def test_a_line_that_is_cut_does_not_count_until_it_is_whole(tmp_path: Path) -> None:
    text = ADDED + given(0, 0.5) + "a 1 D-x\nd 1"
    found = seen(tmp_path, text)
    assert bad(found) == {}
    assert found.done == 0
    (tmp_path / "journal").write_text(f"{text} {S}\n+ 7 0\n")
    found.read(tmp_path / "journal")
    assert (found.added, found.given, found.done) == (2, 1, 1)
    assert found.lost() == {7}
