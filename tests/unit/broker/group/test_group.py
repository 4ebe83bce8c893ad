"""The group as a whole: restarts, its end, and its effects."""

import math

from qbus.broker.group.requests import Moved
from qbus.broker.group.state import GroupState
from qbus.errors import ErrorCode

from .scene import REBALANCE_MS, SESSION_MS, Scene


class TestRestart:
    def test_of_a_stable_group_disturbs_nobody(self) -> None:
        scene = Scene()
        scene.settle("a", "b@two")
        before = scene.group.image()

        scene.restart()

        assert scene.group.image() == before
        assert scene.heartbeat("a", 1) is ErrorCode.NONE
        assert scene.heartbeat("b", 1, "two") is ErrorCode.NONE
        assert scene.commit("a", 1) is ErrorCode.NONE
        assert scene.synced(scene.sync("b", instance_id="two")).assignment == b"b"

    def test_gives_every_session_its_whole_time_again(self) -> None:
        scene = Scene()
        scene.settle("a")
        scene.pass_time(SESSION_MS / 1000 - 1)
        scene.restart()

        scene.pass_time(SESSION_MS / 1000 - 1)
        assert scene.heartbeat("a") is ErrorCode.NONE
        scene.pass_time(SESSION_MS / 1000)

        assert scene.group.state is GroupState.EMPTY

    def test_while_completing_lets_the_leader_go_on(self) -> None:
        scene = Scene()
        for name in ("a", "b"):
            scene.join("", new_member_id=name, needs_known_id=False)
        scene.pass_time(6)
        scene.restart()

        follower = scene.sync("b")
        told_again = scene.join("a")
        scene.sync("a", assignments={"b": b"two"})

        assert scene.joined(told_again).generation == 1
        assert [member.member_id for member in scene.joined(told_again).members] == ["a", "b"]
        assert scene.synced(follower).assignment == b"two"

    def test_while_completing_still_drops_who_does_not_sync(self) -> None:
        scene = Scene()
        for name in ("a", "b"):
            scene.join("", new_member_id=name, needs_known_id=False, session_timeout_ms=300_000)
        scene.pass_time(6)
        scene.restart()

        scene.sync("a")
        scene.pass_time(REBALANCE_MS / 1000)

        assert [member.member_id for member in scene.group.members] == ["a"]

    def test_while_preparing_calls_everyone_in_again(self) -> None:
        scene = Scene()
        scene.settle("a", "b", "c")
        scene.leave("c")
        scene.join("a")
        scene.restart()

        assert scene.heartbeat("a", 1) is ErrorCode.REBALANCE_IN_PROGRESS
        joins = [scene.join("a"), scene.join("b")]

        assert {scene.joined(join).generation for join in joins} == {2}

    def test_forgets_members_that_were_never_told_of_a_generation(self) -> None:
        scene = Scene()
        scene.join("", new_member_id="a", needs_known_id=False)
        scene.restart()

        assert scene.group.is_vacant
        assert scene.group.state is GroupState.EMPTY

    def test_of_a_group_led_by_such_a_member_finds_another_leader(self) -> None:
        scene = Scene()
        scene.settle("a", "b@two")
        scene.join("", new_member_id="c", needs_known_id=False)
        scene.leave("a")
        scene.restart()

        assert scene.group.leader == "b"

    def test_never_uses_a_generation_twice(self) -> None:
        scene = Scene()
        scene.settle("a")
        scene.leave("a")
        scene.restart()

        request = scene.join("", needs_known_id=False)
        scene.pass_time(3)

        assert scene.joined(request).generation == 3


class TestTheEnd:
    def test_answers_everyone_who_waits(self) -> None:
        scene = Scene()
        scene.settle("a", "b")
        join = scene.join("a")

        scene.take(scene.group.dissolve(ErrorCode.NOT_COORDINATOR))

        assert scene.answer(join).error is ErrorCode.NOT_COORDINATOR
        assert scene.group.wake_at == math.inf

    def test_answers_those_who_wait_for_the_leader(self) -> None:
        scene = Scene()
        for name in ("a", "b"):
            scene.join("", new_member_id=name, needs_known_id=False)
        scene.pass_time(6)
        sync = scene.sync("b")

        scene.take(scene.group.dissolve(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        assert scene.answer(sync).error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    def test_is_final(self) -> None:
        scene = Scene()
        scene.settle("a")
        scene.group.dissolve(ErrorCode.NOT_COORDINATOR)

        assert scene.group.tick(scene.now + 1_000_000) == []
        assert scene.group.state is GroupState.DEAD


def test_state_changes_have_a_reason() -> None:
    scene = Scene()
    scene.settle("a")

    scene.leave("a")

    assert [effect for effect in scene.effects if isinstance(effect, Moved)] == [
        Moved("Stable", "PreparingRebalance", "left: a (no reason given)"),
        Moved("PreparingRebalance", "Empty", "no members left"),
    ]
