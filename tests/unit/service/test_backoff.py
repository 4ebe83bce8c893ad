"""Delays between attempts."""

import itertools

import pytest

from qbus.service.backoff import JITTER, Backoff, backoff_delay


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 10.0, jitter=0)
    assert [backoff.failed() for _ in range(7)] == [0.5, 1, 2, 4, 8, 10, 10]
    assert backoff.failures == 7


def test_a_success_starts_over() -> None:
    backoff = Backoff(0.5, 10.0, jitter=0)
    for _ in range(5):
        backoff.failed()
    backoff.succeeded()
    assert backoff.failures == 0
    assert backoff.failed() == 0.5


def test_jitter_spreads_delays_by_a_fifth() -> None:
    delays = [backoff_delay(1, 1.0, 10.0) for _ in range(200)]
    assert all(2 * (1 - JITTER) <= delay <= 2 * (1 + JITTER) for delay in delays)
    assert len(set(delays)) > 100


@pytest.mark.parametrize("failures", [0, 5, 10_000])
def test_the_longest_delay_holds_for_the_first_and_for_any_number(failures: int) -> None:
    assert backoff_delay(failures, 5.0, 2.0, jitter=0) == 2.0


def test_a_longest_delay_of_none() -> None:
    backoff = Backoff(longest_s=0.0)
    assert list(itertools.islice(iter(backoff.failed, None), 3)) == [0, 0, 0]
