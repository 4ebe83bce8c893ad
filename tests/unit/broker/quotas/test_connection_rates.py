"""Connections by address: a rate for each, and many addresses need no more memory."""

import pytest

from qbus.broker.quotas import ConnectionRates
from qbus.broker.quotas.connection_rates import NO_LIMIT, Admission, normal_ip
from qbus.metadata.client_quotas import DEFAULT, QuotaEntity


def rates(
    default: float | None = None, own: dict[str, float] | None = None, *, most: int = 1000
) -> ConnectionRates:
    made = ConnectionRates(10.0, 1.0, most)
    rates_of = (own or {}).items()
    quotas = {QuotaEntity(ip=ip): {"connection_creation_rate": rate} for ip, rate in rates_of}
    if default is not None:
        quotas[QuotaEntity(ip=DEFAULT)] = {"connection_creation_rate": default}
    made.set_quotas(quotas)
    return made


def admitted(some: ConnectionRates, host: str, count: int, now: float) -> int:
    return sum(some.admit(host, now) == 0.0 for _ in range(count))


def test_without_quotas_everybody_may_connect() -> None:
    assert admitted(rates(), "10.0.0.1", 1000, 0.0) == 1000


def test_an_address_gets_a_burst_and_then_its_rate() -> None:
    some = rates(default=5.0)
    assert admitted(some, "10.0.0.1", 1000, 0.0) == pytest.approx(50, abs=1)
    taken = sum(admitted(some, "10.0.0.1", 3, second / 10) for second in range(1, 101))
    assert taken == pytest.approx(50, abs=2)
    assert some.refused > 900


def test_one_address_costs_another_nothing() -> None:
    some = rates(default=5.0)
    admitted(some, "10.0.0.1", 1000, 0.0)
    assert admitted(some, "10.0.0.2", 5, 0.0) == 5


def test_an_address_may_have_a_quota_of_its_own() -> None:
    some = rates(1.0, {"10.0.0.9": 100.0})
    assert admitted(some, "10.0.0.9", 500, 0.0) == 500
    assert admitted(some, "10.0.0.1", 500, 0.0) < 15


def test_whoever_is_refused_is_kept_for_a_moment() -> None:
    some = rates(default=0.001)
    assert some.admit("10.0.0.1", 0.0) == 0.0
    assert some.admit("10.0.0.1", 0.0) == 1.0


@pytest.mark.parametrize(
    ("host", "normal"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("nothing", "nothing"),
    ],
)
def test_an_address_has_one_form(host: str, normal: str) -> None:
    assert normal_ip(host) == normal


def test_an_address_does_not_evade_its_quota_over_ipv6() -> None:
    some = rates(default=1.0)
    admitted(some, "10.0.0.1", 100, 0.0)
    assert some.admit("::ffff:10.0.0.1", 0.0) > 0.0


def test_memory_for_addresses_is_bounded_and_given_back() -> None:
    some = rates(default=1.0, most=10)
    for number in range(1000):
        some.admit(f"10.0.{number // 250}.{number % 250}", 0.0)
    assert len(some) == 10
    some.let_go_rested(60.0)
    assert len(some) == 0


def test_quotas_that_are_gone_leave_nothing() -> None:
    some = rates(default=1.0)
    some.admit("10.0.0.1", 0.0)
    some.set_quotas({})
    assert len(some) == 0
    assert admitted(some, "10.0.0.1", 100, 0.0) == 100


def test_a_listener_and_a_broker_have_rates_beside_those_of_addresses() -> None:
    some = rates(default=1000.0)
    now = [0.0]
    limits = {"listener": 2.0, "broker": float(NO_LIMIT)}
    admission = Admission(
        some, lambda: limits["listener"], lambda: limits["broker"], lambda: now[0]
    )
    other = Admission(some, lambda: NO_LIMIT, lambda: limits["broker"], lambda: now[0])
    assert sum(admission(f"10.0.0.{n}") == 0.0 for n in range(100)) == pytest.approx(20, abs=1)
    assert sum(other(f"10.0.0.{n}") == 0.0 for n in range(100)) == 100
    limits["listener"], limits["broker"], now[0] = NO_LIMIT, 1.0, 100.0
    taken = sum(admission("10.0.0.1") == 0.0 for _ in range(100))
    assert taken == pytest.approx(10, abs=1)
    assert other("10.0.0.2") > 0.0, "all listeners share it"


def test_a_rate_of_zero_lets_nobody_in_for_long() -> None:
    admission = Admission(rates(), lambda: 0.0, lambda: NO_LIMIT, lambda: 0.0)
    assert sum(admission("10.0.0.1") == 0.0 for _ in range(100)) <= 1


def test_whoever_the_listener_refuses_does_not_count_for_the_address() -> None:
    some = rates(default=1.0)
    admission = Admission(some, lambda: 0.0, lambda: NO_LIMIT, lambda: 0.0)
    for _ in range(100):
        admission("10.0.0.1")
    assert admitted(some, "10.0.0.1", 100, 0.0) >= 9
