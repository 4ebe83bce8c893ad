"""Bytes per second: bursts of limited size, and the rate in the long run."""

import math

import pytest

from qbus.service.token_bucket import RateLimit, TokenBucket


def test_no_limit() -> None:
    limit = RateLimit(0, 0.0)
    limit.spend(1 << 40)
    assert limit.wait(0.0) == 0


def test_a_seconds_worth_may_be_spent_at_once() -> None:
    limit = RateLimit(1000, 0.0)
    limit.spend(1000)
    assert limit.wait(0.0) == 0
    limit.spend(500)
    assert limit.wait(0.0) == pytest.approx(0.5)
    assert limit.wait(0.5) == pytest.approx(0)


@pytest.mark.parametrize("burst_s", [0.1, 1.0])
def test_no_more_than_a_burst_is_saved_up(burst_s: float) -> None:
    limit = RateLimit(1000, 0.0, burst_s=burst_s)
    assert limit.wait(100.0) == 0
    limit.spend(2000)
    assert limit.wait(100.0) == pytest.approx(2 - burst_s)


@pytest.mark.parametrize("size", [1, 333, 5000])
def test_the_rate_holds_in_the_long_run(size: int) -> None:
    limit = RateLimit(1000, 0.0)
    now, spent = 0.0, 0
    while spent < 100_000:
        now += limit.wait(now)
        limit.spend(size)
        spent += size
    assert spent / (now + 1) <= 1000 + size
    assert spent / (now + 1) > 900


def test_a_clock_that_goes_back() -> None:
    limit = RateLimit(1000, 10.0)
    limit.spend(3000)
    assert limit.wait(5.0) == pytest.approx(2.0)
    assert limit.wait(12.0) == pytest.approx(0.0)


def test_the_rate_of_a_bucket_may_change() -> None:
    bucket = TokenBucket(0.0)
    assert bucket.wait(1000, 0.0) == 0
    bucket.spend(1000)
    assert bucket.wait(1000, 0.0) == pytest.approx(1.0)
    assert bucket.wait(100, 0.0) == pytest.approx(10.0)


def test_a_lower_rate_shrinks_what_was_saved_up() -> None:
    bucket = TokenBucket(0.0)
    assert bucket.wait(1000, 1.0) == 0
    assert bucket.wait(100, 1.0) == 0
    bucket.spend(200)
    assert bucket.wait(100, 1.0) == pytest.approx(1.0)


def test_a_bucket_without_a_rate_is_shut_whatever_it_held() -> None:
    bucket = TokenBucket(0.0, tokens=1000.0)
    assert bucket.wait(0, 5.0) == math.inf
    assert bucket.wait(1000, 5.0) == 0
    bucket.spend(500)
    assert bucket.wait(1000, 5.0) == pytest.approx(0.5)
