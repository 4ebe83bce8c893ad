"""Delays between attempts."""

from itertools import islice

from qbus.clients.retry import backoff


def test_delays_double_up_to_a_second_give_or_take_a_fifth() -> None:
    expected = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    for delays in (list(islice(backoff(), 7)) for _ in range(100)):
        assert all(
            0.8 * base <= delay <= 1.2 * base for delay, base in zip(delays, expected, strict=True)
        )


def test_delays_are_spread() -> None:
    assert len({next(backoff()) for _ in range(20)}) > 10
