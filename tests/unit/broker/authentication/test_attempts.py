"""Failed log-ins by address."""

import pytest

from qbus.broker.authentication.attempts import FailedAttempts, network_of

HERE, THERE = "10.0.0.1", "10.0.0.2"


def fail(attempts: FailedAttempts, host: str, times: int, now: float = 0.0) -> int:
    """Try so many times; return how many were checked."""
    checked = 0
    for _ in range(times):
        if attempts.may_try(host, "guessed", now):
            checked += 1
            attempts.failed(host, now)
    return checked


def test_an_address_may_fail_so_many_times_a_minute() -> None:
    attempts = FailedAttempts(60)
    assert 60 <= fail(attempts, HERE, 10_000) <= 62
    assert attempts.refused >= 9_900


def test_others_are_not_concerned() -> None:
    attempts = FailedAttempts(60)
    fail(attempts, HERE, 10_000)
    assert attempts.may_try(THERE, "alice", 0.0)


def test_who_has_logged_in_from_there_is_not_locked_out() -> None:
    attempts = FailedAttempts(60)
    attempts.succeeded(HERE, "alice")
    fail(attempts, HERE, 10_000)
    assert attempts.may_try(HERE, "alice", 0.0)
    assert not attempts.may_try(HERE, "bob", 0.0)


def test_who_stops_guessing_is_served_again_soon() -> None:
    attempts = FailedAttempts(60)
    fail(attempts, HERE, 10_000)
    assert not attempts.may_try(HERE, "bob", 0.5)
    assert attempts.may_try(HERE, "bob", 2.5)


def test_no_limit() -> None:
    attempts = FailedAttempts(0)
    assert fail(attempts, HERE, 1000) == 1000


def test_memory_is_bounded() -> None:
    attempts = FailedAttempts(1)
    for number in range(30_000):
        host = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        attempts.failed(host, 0.0)
        attempts.succeeded(host, "alice")
    assert len(attempts._buckets) == 10_000
    assert len(attempts._known) == 10_000


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("nonsense:", "nonsense:", True),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, is_same: bool) -> None:
    assert (network_of(one) == network_of(other)) is is_same
