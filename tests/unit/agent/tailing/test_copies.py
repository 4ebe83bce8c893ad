"""A new file may be a copy of one that is shipped."""

import pytest

from qbus.agent.positions.position import Fingerprint
from qbus.agent.tailing.copies import Original, Verdict, judge, stem

HEAD = b"h" * 256


def original(**changes: object) -> Original:
    values = {"offset": 5000, "tail": (256, 7), "is_read": True, "has_ended": False, **changes}
    return Original(fingerprint=Fingerprint.of(HEAD), **values)  # type: ignore[arg-type]


def verdict(
    one: Original, *, head: bytes = HEAD, is_alike: bool | None = True, is_partial: bool = False
) -> Verdict:
    return judge(one, head, 256, lambda offset, tail: is_alike, lambda: is_partial)


def test_a_copy_is_read_once_its_original_has_ended() -> None:
    assert verdict(original()) is Verdict.WAITING
    assert verdict(original(has_ended=True)) is Verdict.COPY


def test_another_head_or_another_tail_is_another_file() -> None:
    assert verdict(original(), head=b"x" * 256) is Verdict.OTHER
    assert verdict(original(has_ended=True), is_alike=False) is Verdict.OTHER


def test_an_unfinished_copy_is_waited_for() -> None:
    assert verdict(original(), is_alike=None) is Verdict.WAITING
    assert verdict(original(has_ended=True), is_alike=None) is Verdict.OTHER


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_copy_that_is_being_written_is_judged_when_it_is_whole(has_ended: bool) -> None:
    one = original(has_ended=has_ended)
    assert verdict(one, head=HEAD[:10], is_partial=True) is Verdict.WAITING
    assert verdict(one, is_alike=None, is_partial=True) is Verdict.WAITING
    assert verdict(one, head=HEAD[:10]) is Verdict.OTHER
    assert verdict(one, head=b"x" * 256, is_partial=True) is Verdict.OTHER


def test_too_few_equal_bytes_prove_nothing() -> None:
    assert verdict(original(offset=256)) is Verdict.OTHER
    assert verdict(original(offset=0, is_read=False)) is Verdict.WAITING


@pytest.mark.parametrize(
    "name",
    [
        "app.log",
        "app.log.1",
        "app.log.1.gz",
        "app.log-20260101.gz",
        "app-20260101.log",
        "app.log.old",
    ],
)
def test_additions_of_rotations_are_stripped(name: str) -> None:
    assert stem(name) == "app.log"


def test_other_names_stay_unchanged() -> None:
    assert stem("app2.log") == "app2.log"
    assert stem("7") == "7"
