"""Rendezvous hashing: deterministic, even, and with few moves."""

from collections import Counter

import pytest

from qbus.broker.group.ownership import Ownership, coordinator_of

from .shell import FakeMetadata

GROUPS = [f"group-{number}" for number in range(3_000)]


@pytest.mark.parametrize(
    ("group_id", "coordinator"), [("", 2), ("orders", 3), ("payments", 2), ("ü/..", 3), ("g", 1)]
)
def test_it_never_changes_from_version_to_version(group_id: str, coordinator: int) -> None:
    assert coordinator_of(group_id, [1, 2, 3]) == coordinator
    assert coordinator_of(group_id, [3, 1, 2]) == coordinator


def test_without_live_brokers_there_is_no_coordinator() -> None:
    assert coordinator_of("g", []) is None


def test_groups_spread_evenly() -> None:
    shares = Counter(coordinator_of(group, [0, 1, 2]) for group in GROUPS)

    assert all(900 < share < 1_100 for share in shares.values())


def test_only_the_groups_of_a_broker_that_goes_move_and_to_all_others() -> None:
    before = {group: coordinator_of(group, [1, 2, 3, 4]) for group in GROUPS}
    after = {group: coordinator_of(group, [1, 2, 4]) for group in GROUPS}

    moved = Counter(after[group] for group in GROUPS if before[group] == 3)
    assert all(before[group] in {3, after[group]} for group in GROUPS)
    assert min(moved[broker] for broker in (1, 2, 4)) > 150


async def test_a_stopping_broker_coordinates_no_groups() -> None:
    cluster = FakeMetadata(1, 2)
    owners = Ownership(1, cluster)
    assert {owners.is_ours(group) for group in GROUPS} == {True, False}

    await cluster.set_brokers(1, 2, stopping=[1])
    assert not any(owners.is_ours(group) for group in GROUPS)
    assert {owners.coordinator(group) for group in GROUPS} == {cluster.brokers[2]}

    await cluster.set_brokers(1, stopping=[1])
    assert owners.coordinator("g") is None
