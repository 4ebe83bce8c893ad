"""Bounds on memory and on bytes per second."""

from qbus.agent.delivery.limits import Budget, RateLimiter


def test_there_is_room_until_the_limit_is_reached() -> None:
    budget = Budget(100)
    assert budget.has_room
    budget.used = 100
    assert not budget.has_room


def test_no_rate_never_delays() -> None:
    limiter = RateLimiter(0)
    limiter.take(1 << 40)
    assert not limiter.delay(0.0)


def test_what_was_taken_too_much_is_waited_for() -> None:
    limiter = RateLimiter(1000)
    assert not limiter.delay(10.0)
    limiter.take(2100)
    assert 1.9 < limiter.delay(10.0) < 2.1
    assert limiter.delay(11.0) > 0
    assert not limiter.delay(12.1)


def test_a_pause_earns_no_more_than_a_burst() -> None:
    limiter = RateLimiter(1000)
    assert not limiter.delay(1000.0)
    limiter.take(150)
    assert limiter.delay(1000.0) > 0
