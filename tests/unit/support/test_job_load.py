"""What workers of jobs saw: each thing that must not be is found, and nothing else."""

from pathlib import Path

import pytest

from tests.support.job_load import Seen

S = 1_000_000_000


def seen(tmp_path: Path, text: str) -> Seen:
    (path := tmp_path / "journal").write_text(text)
    found = Seen()
    found.read(path)
    return found


def bad(found: Seen, breaks: tuple[tuple[int, int], ...] = ()) -> dict[str, set[int]]:
    said = {
        "lost": found.lost(),
        "done twice": found.done_twice(),
        "given after done": found.given_after_done(),
        "given twice": found.given_twice(),
        "within lock": found.given_within_lock(10, breaks),
    }
    return {what: numbers for what, numbers in said.items() if numbers}


def test_nothing_is_wrong_with_a_job_that_is_added_given_and_done(tmp_path: Path) -> None:
    assert bad(seen(tmp_path, f"+ 1\ng 1 0 5\na 1 6\nd 1 {S}\n")) == {}


def test_one_that_is_given_to_nobody_is_lost(tmp_path: Path) -> None:
    assert bad(seen(tmp_path, "+ 1\n")) == {"lost": {1}}
    assert bad(seen(tmp_path, "+ 1\ng 1 0 5\n")) == {"lost": {1}}
    assert bad(seen(tmp_path, "+ 1\ng 1 0 5\na 1 6\n")) == {}, "it may be done"
    assert bad(seen(tmp_path, "? 1\n")) == {}, "it may never have been there"


def test_one_that_comes_after_it_was_done(tmp_path: Path) -> None:
    text = f"+ 1\ng 1 0 5\na 1 6\nd 1 7\ng 1 {20 * S} {21 * S}\n"
    assert bad(seen(tmp_path, text)) == {"given after done": {1}, "given twice": {1}}
    assert bad(seen(tmp_path, f"? 1\n{text}")) == {}, "it may have been added twice"


def test_one_that_is_done_twice(tmp_path: Path) -> None:
    text = f"+ 1\ng 1 0 5\ng 1 0 {30 * S}\nd 1 7\nd 1 {31 * S}\n"
    assert bad(seen(tmp_path, text)) == {"done twice": {1}, "given twice": {1}}


@pytest.mark.parametrize(
    ("again_s", "breaks", "is_wrong"),
    [
        (9, (), True),
        (11, (), False),
        (9, ((S, 2 * S),), False),
        (9, ((20 * S, 30 * S),), True),
    ],
)
def test_one_that_two_have_at_a_time(
    tmp_path: Path, again_s: int, breaks: tuple[tuple[int, int], ...], is_wrong: bool
) -> None:
    text = f"+ 1\ng 1 0 5\ng 1 {S} {again_s * S}\na 1 6\n"
    assert ("within lock" in bad(seen(tmp_path, text), breaks)) is is_wrong


def test_a_line_that_is_cut_does_not_count(tmp_path: Path) -> None:
    assert bad(seen(tmp_path, "+ 1\ng 1 0 5\na 1 6\nd 1")) == {}
