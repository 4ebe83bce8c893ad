"""The audit finds what it is there to find."""

import pytest

from .audit import Acknowledged, audit

SAID = {0: {0: b"1", 1: b"2", 2: b"3"}}


def test_an_intact_log_passes() -> None:
    audit(Acknowledged(SAID), {0: [(0, b"1"), (1, b"2"), (2, b"3"), (3, b"4")]})


@pytest.mark.parametrize(
    ("records", "finding"),
    [
        ([(0, b"1"), (1, b"2")], "acknowledged at 2"),
        ([(0, b"1"), (2, b"3")], "not dense"),
        ([(0, b"1"), (1, b"2"), (2, b"2"), (3, b"3")], "more than once"),
        ([(0, b"2"), (1, b"1"), (2, b"3")], "out of order"),
        ([(0, b"1"), (1, b"2"), (2, b"9")], "acknowledged at 2"),
    ],
)
def test_a_planted_fault_is_found(records: list[tuple[int, bytes]], finding: str) -> None:
    with pytest.raises(AssertionError, match=finding):
        audit(Acknowledged(SAID), {0: records})
