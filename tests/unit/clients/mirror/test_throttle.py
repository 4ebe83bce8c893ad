"""Bytes per second: bursts of a second's worth, and the rate in the long run."""

import pytest

from qbus.clients.mirror.throttle import Throttle


def test_no_bound() -> None:
    throttle = Throttle(0, 0.0)
    throttle.took(1 << 40, 0.0)
    assert throttle.delay(0.0) == 0


def test_a_seconds_worth_may_come_at_once() -> None:
    throttle = Throttle(1000, 0.0)
    throttle.took(1000, 0.0)
    assert throttle.delay(0.0) == 0
    throttle.took(500, 0.0)
    assert throttle.delay(0.0) == pytest.approx(0.5)
    assert throttle.delay(0.5) == pytest.approx(0)


def test_what_was_not_used_is_not_saved_up() -> None:
    throttle = Throttle(1000, 0.0)
    throttle.delay(100.0)
    throttle.took(2000, 100.0)
    assert throttle.delay(100.0) == pytest.approx(1.0)


@pytest.mark.parametrize("size", [1, 333, 5000])
def test_the_rate_holds_in_the_long_run(size: int) -> None:
    throttle = Throttle(1000, 0.0)
    now, taken = 0.0, 0
    while taken < 100_000:
        now += throttle.delay(now)
        throttle.took(size, now)
        taken += size
    assert taken / (now + 1) <= 1000 + size
    assert taken / (now + 1) > 900


def test_a_clock_that_goes_back() -> None:
    throttle = Throttle(1000, 10.0)
    throttle.took(3000, 10.0)
    assert throttle.delay(5.0) == pytest.approx(2.0)
    assert throttle.delay(12.0) == pytest.approx(0.0)
