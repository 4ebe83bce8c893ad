"""Time-outs of a rebalance: missing members, expired sessions, late syncs, lost leaders."""

import pytest

from qbus.broker.group.requests import GroupProtocol
from qbus.broker.group.state import GroupState
from qbus.errors import ErrorCode

from .scene import REBALANCE_MS, SESSION_MS, Scene

CHANGED = (GroupProtocol("range", b"more topics"),)


def keep_alive(scene: Scene, member_id: str, seconds: float) -> None:
    """Heartbeat every three seconds like a client, whatever the answer."""
    for _ in range(int(seconds // 3)):
        scene.heartbeat(member_id)
        scene.pass_time(3)


class TestLaggards:
    def test_are_dropped_when_the_slowest_rebalance_timeout_has_passed(self) -> None:
        scene = Scene()
        scene.settle("a", "b", rebalance_timeout_ms=30_000, session_timeout_ms=60_000)
        request = scene.join("a", rebalance_timeout_ms=20_000)

        scene.pass_time(29.9)
        assert scene.answer(request) is None
        scene.pass_time(0.1)

        assert scene.joined(request).generation == 2
        assert "b" not in scene.group.members

    def test_hand_the_lead_to_someone_who_came(self) -> None:
        scene = Scene()
        scene.settle("leader", "b", session_timeout_ms=300_000)
        request = scene.join("b", protocols=CHANGED)

        scene.pass_time(REBALANCE_MS / 1000)

        assert scene.joined(request).leader == "b"
        assert [member.member_id for member in scene.joined(request).members] == ["b"]

    def test_learn_that_they_are_out_when_they_come(self) -> None:
        scene = Scene()
        scene.settle("a", "b", session_timeout_ms=300_000)
        scene.join("a")
        scene.pass_time(REBALANCE_MS / 1000)

        assert scene.heartbeat("b", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert scene.answer(scene.join("b")).error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_include_pending_ones_only_until_the_timeout(self) -> None:
        scene = Scene()
        scene.settle("a", session_timeout_ms=300_000)
        scene.join("", new_member_id="b", session_timeout_ms=300_000)
        request = scene.join("a")

        scene.pass_time(1)
        assert scene.answer(request) is None, "b may be on its way"
        scene.pass_time(REBALANCE_MS / 1000)

        assert scene.joined(request).generation == 2

    def test_everyone_lagging_empties_the_group(self) -> None:
        scene = Scene()
        scene.settle("a", "b", session_timeout_ms=300_000)
        scene.join("", new_member_id="c", session_timeout_ms=1_000)
        scene.leave("a")

        scene.pass_time(REBALANCE_MS / 1000)

        assert scene.group.state is GroupState.EMPTY
        assert scene.group.is_vacant
        assert scene.saved


class TestSessions:
    def test_last_as_long_as_heartbeats_come(self) -> None:
        scene = Scene()
        scene.settle("a")

        keep_alive(scene, "a", 10 * SESSION_MS / 1000)

        assert scene.heartbeat("a") is ErrorCode.NONE

    def test_end_without_heartbeats_and_the_others_rebalance(self) -> None:
        scene = Scene()
        scene.settle("a", "b")
        scene.pass_time(3)
        keep_alive(scene, "a", SESSION_MS / 1000)

        assert "b" not in scene.group.members
        assert scene.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS

    def test_end_and_the_last_one_leaves_the_group_empty_and_stored(self) -> None:
        scene = Scene()
        scene.settle("a")

        scene.pass_time(SESSION_MS / 1000)

        assert scene.group.state is GroupState.EMPTY
        assert scene.group.generation == 2
        assert scene.saved
        assert scene.group.wake_at == float("inf"), "an empty group needs no attention"

    def test_of_members_that_wait_for_an_answer_do_not_end(self) -> None:
        scene = Scene()
        scene.settle("a", "b", rebalance_timeout_ms=REBALANCE_MS)
        request = scene.join("a")

        keep_alive(scene, "b", REBALANCE_MS / 1000 - 3)
        assert scene.answer(request) is None
        scene.join("b")

        assert scene.joined(request).generation == 2

    def test_start_anew_when_the_answer_has_come(self) -> None:
        scene = Scene()
        scene.settle("a", "b")
        scene.join("a")
        keep_alive(scene, "b", 30)
        scene.join("b")

        scene.pass_time(SESSION_MS / 1000 - 0.1)
        assert "a" in scene.group.members
        scene.pass_time(0.1)

        assert "a" not in scene.group.members

    def test_ending_while_everyone_else_is_in_ends_the_wait(self) -> None:
        scene = Scene()
        scene.settle("a", "b")
        request = scene.join("a")

        scene.pass_time(SESSION_MS / 1000)

        assert scene.joined(request).generation == 2

    def test_ending_while_completing_starts_over(self) -> None:
        scene = Scene()
        for name in ("a", "b"):
            scene.join("", new_member_id=name, needs_known_id=False)
        scene.pass_time(6)
        parked = scene.sync("b")

        scene.pass_time(SESSION_MS / 1000)

        assert "a" not in scene.group.members
        assert scene.answer(parked).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert scene.group.state is GroupState.PREPARING


class TestLateSyncs:
    def test_a_leader_that_does_not_sync_is_dropped(self) -> None:
        scene = Scene()
        for name in ("a", "b"):
            scene.join("", new_member_id=name, needs_known_id=False, session_timeout_ms=300_000)
        scene.pass_time(6)
        parked = scene.sync("b")

        scene.pass_time(REBALANCE_MS / 1000)

        assert scene.answer(parked).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert [member.member_id for member in scene.group.members] == ["b"]
        assert scene.group.state is GroupState.PREPARING

    def test_a_follower_that_does_not_sync_is_dropped_though_it_heartbeats(self) -> None:
        scene = Scene()
        for name in ("a", "b"):
            scene.join("", new_member_id=name, needs_known_id=False, session_timeout_ms=300_000)
        scene.pass_time(6)
        leader = scene.sync("a")
        assert scene.synced(leader).error is ErrorCode.NONE

        keep_alive(scene, "b", REBALANCE_MS / 1000)

        assert scene.heartbeat("b", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert scene.group.state is GroupState.PREPARING

    def test_nobody_is_dropped_once_all_have_synced(self) -> None:
        scene = Scene()
        scene.settle("a", "b", session_timeout_ms=300_000)

        scene.pass_time(2 * REBALANCE_MS / 1000)

        assert len(scene.group.members) == 2


class TestNobodyRejoining:
    def test_a_group_of_static_members_waits_for_their_sessions(self) -> None:
        scene = Scene()
        scene.settle("a@one", "b@two", session_timeout_ms=100_000)
        scene.leave("a", instance_id="one")

        scene.pass_time(REBALANCE_MS / 1000)
        assert "b" in scene.group.members, "its session has not ended"
        scene.pass_time(100)

        assert scene.group.state is GroupState.EMPTY

    def test_a_timeout_of_nothing_does_not_spin(self) -> None:
        scene = Scene()
        scene.settle("a@one", "b@two", rebalance_timeout_ms=-1, session_timeout_ms=1_800_000)
        scene.join("a", instance_id="one", rebalance_timeout_ms=0)
        scene.leave("a", instance_id="one")

        wakes = 0
        while scene.group.wake_at <= scene.now + 60:
            scene.now = scene.group.wake_at
            scene.take(scene.group.tick(scene.now))
            wakes += 1

        assert wakes <= 61


@pytest.mark.parametrize("seconds", [0, 1, 3, 10, 60, 1000])
def test_letting_time_pass_at_any_moment_does_no_harm(seconds: float) -> None:
    scene = Scene()
    scene.settle("a", session_timeout_ms=2_000_000)

    scene.take(scene.group.tick(scene.now + seconds))

    assert scene.group.state is GroupState.STABLE
    assert scene.group.wake_at > scene.now + seconds
