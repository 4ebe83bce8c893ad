"""What one entity uses of one quota: never more than the quota, a burst, and one request."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.quotas import Meter

BURST_S = 10.0
BOUND = 1000.0


def meter(bound: float = BOUND) -> Meter:
    return Meter(bound, BURST_S)


def test_a_new_entity_may_use_a_burst_at_once() -> None:
    fresh = meter()
    assert fresh.credit(0.0) == BURST_S * BOUND
    assert fresh.charge(BURST_S * BOUND, 0.0) == 0.0
    assert fresh.credit(0.0) == 0.0


def test_what_is_more_is_owed_until_it_is_paid() -> None:
    one = meter()
    one.charge(BURST_S * BOUND, 0.0)
    assert one.charge(2 * BOUND, 0.0) == pytest.approx(2.0)
    assert one.owes_s(1.5) == pytest.approx(0.5)
    assert one.owes_s(2.0) == pytest.approx(0.0)
    assert one.owes_s(99.0) == 0.0


def test_at_its_quota_an_entity_owes_nothing() -> None:
    steady = meter()
    steady.charge(BURST_S * BOUND, 0.0)
    owed = [steady.charge(BOUND / 10, at / 10) for at in range(1, 1000)]
    assert max(owed) < 1e-6


def test_a_rest_gives_back_one_burst_and_no_more() -> None:
    one = meter()
    one.charge(50 * BOUND, 0.0)
    assert one.owes_s(0.0) == pytest.approx(40.0)
    assert one.credit(45.0) == pytest.approx(5 * BOUND)
    assert one.credit(1e6) == pytest.approx(BURST_S * BOUND)


def test_a_debt_is_never_forgotten() -> None:
    one = meter()
    for _ in range(100):  # each connection has one request taken
        one.charge(10 * BOUND, 0.0)
    assert one.owes_s(100.0) == pytest.approx(1000 - BURST_S - 100)


def test_what_was_not_used_after_all_is_given_back() -> None:
    one = meter()
    one.charge(BURST_S * BOUND, 0.0)
    one.charge(BOUND, 0.0)
    one.refund(BOUND)
    assert one.owes_s(0.0) == pytest.approx(0.0)


def test_another_quota_leaves_what_is_owed() -> None:
    one = meter()
    one.charge((BURST_S + 8) * BOUND, 0.0)
    one.set_bound(4 * BOUND, 0.0)
    assert one.owes_s(0.0) == pytest.approx(2.0)
    one.set_bound(4 * BOUND, 1.0)
    assert one.owes_s(1.0) == pytest.approx(1.0)


def test_a_debt_can_be_limited() -> None:
    one = meter()
    one.charge(100 * BOUND, 0.0)
    one.limit_debt(1.0, 0.0)
    assert one.owes_s(0.0) == 1.0


def test_one_that_rested_is_as_new() -> None:
    one = meter()
    assert one.is_rested(0.0)
    one.charge(1, 0.0)
    assert not one.is_rested(0.0005)
    assert one.is_rested(BURST_S)


def test_the_rate_is_that_of_the_last_while() -> None:
    one = meter()
    assert one.rate(0.0) == 0.0
    for second in range(30):
        one.charge(500, float(second))
    assert one.rate(29.5) == pytest.approx(500, rel=0.12)
    assert one.rate(29.5 + 3 * BURST_S) == 0.0


@given(
    bound=st.floats(0.5, 1e7),
    requests=st.lists(st.tuples(st.floats(0, 3), st.floats(0, 20)), min_size=1, max_size=60),
)
def test_whoever_waits_as_told_gets_its_quota_a_burst_and_one_request(
    bound: float, requests: list[tuple[float, float]]
) -> None:
    one = Meter(bound, BURST_S)
    now, used, largest = 0.0, 0.0, 0.0
    for pause, seconds_worth in requests:
        now += pause
        amount = seconds_worth * bound
        used += amount
        largest = max(largest, amount)
        now += one.charge(amount, now)
        assert used <= bound * (now + BURST_S) * (1 + 1e-9) + largest + 1e-6


@given(
    connections=st.integers(1, 50),
    rounds=st.integers(1, 20),
    amount=st.floats(1, 100),
)
def test_connections_that_share_a_meter_get_one_quota_together(
    connections: int, rounds: int, amount: float
) -> None:
    """Each waits for what it is told after its own request, as a muted connection does."""
    one = Meter(100.0, BURST_S)
    free_at = [0.0] * connections
    used = 0.0
    for _ in range(rounds * connections):
        who = min(range(connections), key=free_at.__getitem__)
        now = free_at[who]
        used += amount
        free_at[who] = now + one.charge(amount, now)
        if free_at[who] == now:
            free_at[who] = math.nextafter(now, math.inf)
        assert used <= 100.0 * (now + BURST_S) + connections * amount + 1e-6


@given(amounts=st.lists(st.floats(0, 1e6), max_size=30), at=st.floats(0, 1e6))
def test_debt_and_credit_exclude_each_other(amounts: list[float], at: float) -> None:
    one = meter()
    for amount in amounts:
        one.charge(amount, at)
        assert one.owes_s(at) == 0.0 or one.credit(at) == 0.0
