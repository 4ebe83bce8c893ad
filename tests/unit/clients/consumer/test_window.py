"""How much is asked for at a time: what the cache holds, or what a long way needs."""

import pytest

from qbus.clients.consumer.window import LEAST, Window

MOST = 50 * 1024 * 1024


def test_it_grows_while_full_answers_are_long_on_their_way() -> None:
    window = Window(MOST)
    asked = []
    for _ in range(6):
        asked.append(window.nbytes)
        window.answered(window.nbytes, 0.1, is_awaited=True)
    assert asked == [LEAST, 2 * LEAST, 4 * LEAST, 8 * LEAST, MOST, MOST]


@pytest.mark.parametrize(
    ("nbytes", "seconds", "why"),
    [(LEAST, 0.005, "more would not come sooner"), (LEAST // 3, 0.1, "there was no more")],
)
def test_it_stays_where_more_would_not_help(nbytes: int, seconds: float, why: str) -> None:
    window = Window(MOST)
    window.answered(nbytes, seconds, is_awaited=True)
    assert window.nbytes == LEAST, why


def test_it_shrinks_bit_by_bit_while_nobody_has_to_wait() -> None:
    window = Window(MOST)
    window.answered(LEAST, 0.1, is_awaited=True)
    window.answered(LEAST, 0.1, is_awaited=False)
    assert window.nbytes == 2 * LEAST * 7 // 8
    for _ in range(20):
        window.answered(LEAST, 0.1, is_awaited=False)
    assert window.nbytes == LEAST


def test_a_partition_that_gives_no_more_at_a_time_does_not_make_it_grow_for_ever() -> None:
    window = Window(MOST)
    for _ in range(20):
        window.answered(LEAST, 0.1, is_awaited=True)
    assert window.nbytes == 2 * LEAST


def test_a_lower_limit_holds() -> None:
    window = Window(1000)
    window.answered(1000, 0.1, is_awaited=True)
    window.answered(1000, 0.1, is_awaited=False)
    assert window.nbytes == 1000
