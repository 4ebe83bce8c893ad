"""How long a member may hold what others are to have."""

import math

from qbus.broker.consumer_group import Partitions
from qbus.broker.consumer_group.release import Release

P0, P1, P2 = ((b"t", index) for index in range(3))


def note(
    release: Release, now: float, *releasing: tuple[bytes, int], is_told: bool = False
) -> float:
    """When the member must have given that up, of 60 s with a heartbeat each 5 s."""
    held: Partitions = frozenset(releasing)
    release.note(held, now, is_told=is_told, timeout_ms=60_000, heartbeat_ms=5_000)
    return release.by


def test_without_anything_to_give_up_there_is_no_limit() -> None:
    assert note(Release(), 100) == math.inf


def test_its_time_begins_when_others_are_first_to_have_some_of_it() -> None:
    release = Release()
    assert note(release, 100, P0) == 160
    assert note(release, 130, P0, P1) == 160
    assert note(release, 140, P0, is_told=True) == 160


def test_it_begins_again_for_what_it_is_to_give_up_besides_and_for_what_comes_after() -> None:
    release = Release()
    note(release, 100, P0)
    assert note(release, 130, P0, P1, is_told=True) == 190
    assert note(release, 140, P2) == 200
    assert note(release, 150) == math.inf
    assert note(release, 155, P2) == 215


def test_it_is_told_again_for_some_heartbeats_and_some_times_at_least() -> None:
    release = Release()
    note(release, 100, P0)
    assert release.is_patient(10, 119)
    assert not release.is_patient(3, 120)
    assert release.is_patient(2, 150)


def test_of_a_short_time_half_is_for_that() -> None:
    release = Release()
    release.note(frozenset({P0}), 100, is_told=False, timeout_ms=10_000, heartbeat_ms=5_000)
    assert release.is_patient(3, 104)
    assert not release.is_patient(3, 105)
    assert release.by == 110


def test_a_negative_time_out_is_none() -> None:
    release = Release()
    release.limit(100, -1)
    assert release.by == 100
