"""Which quota holds for whom: Kafka's eight levels (KIP-55), and who shares it."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.quotas.resolution import Applied, QuotaTable, Sharers
from qbus.metadata.client_quotas import DEFAULT, PRODUCER_BYTE_RATE, QuotaEntity

KIND = PRODUCER_BYTE_RATE

LEVELS = (
    (QuotaEntity("u", "c"), Sharers("u", "c")),
    (QuotaEntity("u", DEFAULT), Sharers("u", "c")),
    (QuotaEntity("u"), Sharers("u", None)),
    (QuotaEntity(DEFAULT, "c"), Sharers("u", "c")),
    (QuotaEntity(DEFAULT, DEFAULT), Sharers("u", "c")),
    (QuotaEntity(DEFAULT), Sharers("u", None)),
    (QuotaEntity(None, "c"), Sharers(None, "c")),
    (QuotaEntity(None, DEFAULT), Sharers(None, "c")),
)
"""The precedence as Kafka documents it, and who shares the quota."""


@pytest.mark.parametrize("chosen", [*combinations(range(8), 1), *combinations(range(8), 2)])
def test_the_first_level_that_states_a_quota_decides(chosen: tuple[int, ...]) -> None:
    table = QuotaTable({LEVELS[level][0]: {KIND: level + 1.0} for level in chosen})
    assert table.applied(KIND, "u", "c") == Applied(min(chosen) + 1.0, LEVELS[min(chosen)][1])


@given(st.sets(st.integers(0, 7)))
def test_any_set_of_levels_is_decided_by_its_first(chosen: set[int]) -> None:
    table = QuotaTable({LEVELS[level][0]: {KIND: level + 1.0} for level in chosen})
    applied = table.applied(KIND, "u", "c")
    if not chosen:
        assert applied is None
    else:
        assert applied == Applied(min(chosen) + 1.0, LEVELS[min(chosen)][1])


def test_each_kind_is_decided_by_itself() -> None:
    table = QuotaTable(
        {
            QuotaEntity("u", "c"): {"consumer_byte_rate": 1.0},
            QuotaEntity("u"): {"producer_byte_rate": 2.0},
        }
    )
    assert table.applied("producer_byte_rate", "u", "c") == Applied(2.0, Sharers("u", None))
    assert table.applied("consumer_byte_rate", "u", "c") == Applied(1.0, Sharers("u", "c"))
    assert table.applied("request_percentage", "u", "c") is None


def test_other_users_and_clients_are_not_limited() -> None:
    table = QuotaTable({QuotaEntity("u"): {KIND: 1.0}, QuotaEntity(None, "c"): {KIND: 2.0}})
    assert table.applied(KIND, "other", "other") is None
    assert table.applied(KIND, "other", "c") == Applied(2.0, Sharers(None, "c"))


def test_a_user_quota_holds_whatever_client_ids_it_takes() -> None:
    table = QuotaTable({QuotaEntity("u"): {KIND: 1.0}})
    sharers = {applied.sharers for n in range(50) if (applied := table.applied(KIND, "u", f"c{n}"))}
    assert sharers == {Sharers("u", None)}


def test_addresses_have_their_own_or_the_default() -> None:
    table = QuotaTable(
        {
            QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 5.0},
            QuotaEntity(ip=DEFAULT): {"connection_creation_rate": 50.0},
        }
    )
    assert table.connection_rate("10.0.0.1") == 5.0
    assert table.connection_rate("10.0.0.2") == 50.0
    assert not table.has_client_quotas
    assert table.has_connection_rates
