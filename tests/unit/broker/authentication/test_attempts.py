"""Failed log-ins by address, and by user and address."""

import pytest

from qbus.broker.authentication.attempts import FREE_FAILURES, FailedAttempts, Guesses, network_of

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


class TestGuesses:
    """At one user, from one address."""

    def guess(self, guesses: Guesses, until: float, since: float = 0.0, every: float = 0.1) -> int:
        """Guess regularly; return how many guesses were checked."""
        checked, now = 0, since
        while now < until:
            if guesses.may_try(HERE, "alice", now):
                guesses.failed(HERE, "alice", now)
                checked += 1
            now += every
        return checked

    def test_after_ten_failures_the_wait_doubles_up_to_the_longest(self) -> None:
        guesses = Guesses(60)
        for _ in range(FREE_FAILURES):
            assert guesses.may_try(HERE, "alice", 0.0)
            guesses.failed(HERE, "alice", 0.0)
        now = 0.0
        for wait in (1, 2, 4, 8, 16, 32, 60, 60, 60):
            assert not guesses.may_try(HERE, "alice", now + wait - 0.01)
            now += wait
            assert guesses.may_try(HERE, "alice", now)
            guesses.failed(HERE, "alice", now)
        assert guesses.refused == 9

    def test_a_day_of_guesses_are_few(self) -> None:
        assert self.guess(Guesses(60), 86_400, every=1.0) < 1_500

    def test_other_addresses_and_other_users_are_not_concerned(self) -> None:
        guesses = Guesses(60)
        self.guess(guesses, 100)
        assert not guesses.may_try(HERE, "alice", 100.0)
        assert guesses.may_try(THERE, "alice", 100.0)
        assert guesses.may_try(HERE, "bob", 100.0)

    def test_a_login_makes_the_wait_short_again_and_allows_no_ten_guesses_more(self) -> None:
        guesses = Guesses(60)
        self.guess(guesses, 40)
        assert not guesses.may_try(HERE, "alice", 40.0)
        guesses.succeeded(HERE, "alice")
        assert guesses.may_try(HERE, "alice", 40.0)
        assert self.guess(guesses, 40.9, since=40.0) == 1

    def test_those_who_stop_are_forgotten(self) -> None:
        guesses = Guesses(60)
        self.guess(guesses, 100)
        later = 100.0 + 1_000
        assert self.guess(guesses, later + 0.9, since=later, every=0.01) == FREE_FAILURES

    def test_guesses_at_the_same_time_are_no_more(self) -> None:
        guesses = Guesses(60)
        for _ in range(100):
            if guesses.may_try(HERE, "alice", 0.0):
                guesses.begin(HERE, "alice", 0.0)
        for _ in range(FREE_FAILURES):
            guesses.end(HERE, "alice")
            guesses.failed(HERE, "alice", 0.0)
        assert guesses.refused == 100 - FREE_FAILURES
        assert guesses.may_try(HERE, "alice", 1.0)
        guesses.begin(HERE, "alice", 1.0)
        assert not guesses.may_try(HERE, "alice", 1.0)

    def test_what_succeeds_leaves_nothing(self) -> None:
        guesses = Guesses(60)
        guesses.begin(HERE, "alice", 0.0)
        guesses.end(HERE, "alice")
        guesses.succeeded(HERE, "alice")
        assert not guesses._guessed

    def test_no_limit(self) -> None:
        assert self.guess(Guesses(0), 100, every=1.0) == 100

    def test_memory_is_bounded_however_long_the_names(self) -> None:
        guesses = Guesses(60)
        for number in range(25_000):
            guesses.failed(HERE, f"{number}{'x' * 1000}", 0.0)
        assert len(guesses._guessed) == 20_000
        assert all(len(name) == 16 for _, name in guesses._guessed)
