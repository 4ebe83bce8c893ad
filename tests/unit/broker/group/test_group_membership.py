"""Requests of members of a generation: sync, heartbeat, commit, leave."""

from collections.abc import Callable

import pytest

from qbus.broker.group.requests import Heartbeat, Leave, Leaver, LeaveResult, SyncResult
from qbus.broker.group.state import GroupState
from qbus.errors import ErrorCode

from .scene import Scene, make_sync

Given = Callable[[], Scene]

STALE = 0
CURRENT = 1


def completing() -> Scene:
    """A group of ``a``, ``b`` and ``c`` that know of generation 1; none has synced."""
    scene = Scene()
    for name in ("a", "b", "c"):
        scene.join("", new_member_id=name, needs_known_id=False)
    scene.pass_time(6)
    assert scene.group.state is GroupState.COMPLETING
    return scene


def preparing() -> Scene:
    """A group of ``a`` and ``b`` in generation 1, asked to rejoin because of a third."""
    scene = Scene()
    scene.settle("a", "b")
    scene.join("", new_member_id="c", needs_known_id=False)
    return scene


def stable() -> Scene:
    scene = Scene()
    scene.settle("a", "b")
    return scene


def empty() -> Scene:
    return Scene()


def dead() -> Scene:
    scene = stable()
    scene.group.dissolve(ErrorCode.NOT_COORDINATOR)
    return scene


class TestSync:
    def test_gives_each_member_what_the_leader_assigned(self) -> None:
        scene = completing()

        follower = scene.sync("b")
        assert scene.answer(follower) is None, "the leader has not come"
        leader = scene.sync("a", assignments={"a": b"one", "b": b"two", "z": b"nobody"})
        late = scene.sync("c")

        assert scene.answer(follower) == SyncResult(ErrorCode.NONE, "consumer", "range", b"two")
        assert scene.synced(leader).assignment == b"one"
        assert scene.synced(late).assignment == b"", "the leader forgot it"

    def test_of_the_leader_has_the_assignment_stored(self) -> None:
        scene = completing()

        scene.sync("a", assignments={"a": b"one"})

        assert scene.saved
        assert scene.group.image().members[0].assignment == b"one"

    def test_of_a_follower_cannot_assign(self) -> None:
        scene = completing()

        request = scene.sync("b", assignments={"a": b"mine", "b": b"mine"})

        assert scene.answer(request) is None
        assert scene.group.state is GroupState.COMPLETING

    def test_of_a_stable_group_repeats_the_assignment(self) -> None:
        scene = stable()

        again = scene.sync("b", assignments={"b": b"other"})

        assert scene.synced(again).assignment == b"b"

    def test_again_while_parked_answers_both_requests(self) -> None:
        scene = completing()
        first = scene.sync("b")

        second = scene.sync("b")
        scene.sync("a", assignments={"b": b"two"})

        assert scene.answer(first).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert scene.synced(second).assignment == b"two"

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation": STALE}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"instance_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ],
    )
    @pytest.mark.parametrize("given", [completing, stable])
    def test_is_refused(self, given: Given, changes: dict[str, object], error: ErrorCode) -> None:
        request = make_sync(**({"member_id": "a", "generation": CURRENT} | changes))  # type: ignore[arg-type]

        assert given().ask(request).error is error

    def test_without_protocol_is_an_older_version(self) -> None:
        scene = completing()

        request = scene.sync("a", protocol_type=None, protocol=None, assignments={"a": b"one"})

        assert scene.synced(request).assignment == b"one"

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            (empty, ErrorCode.UNKNOWN_MEMBER_ID),
            (preparing, ErrorCode.REBALANCE_IN_PROGRESS),
            (dead, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ],
    )
    def test_needs_a_generation_to_sync_with(self, given: Given, error: ErrorCode) -> None:
        assert given().ask(make_sync("a", CURRENT)).error is error


class TestHeartbeat:
    @pytest.mark.parametrize(
        ("given", "answer"),
        [
            (empty, ErrorCode.UNKNOWN_MEMBER_ID),
            (preparing, ErrorCode.REBALANCE_IN_PROGRESS),
            (completing, ErrorCode.NONE),
            (stable, ErrorCode.NONE),
            (dead, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ],
    )
    def test_tells_the_state(self, given: Given, answer: ErrorCode) -> None:
        assert given().ask(Heartbeat("a", None, CURRENT)) is answer

    @pytest.mark.parametrize("given", [preparing, completing, stable])
    def test_of_another_generation_or_nobody_is_refused(self, given: Given) -> None:
        scene = given()
        assert scene.heartbeat("a", STALE) is ErrorCode.ILLEGAL_GENERATION
        assert scene.heartbeat("nobody") is ErrorCode.UNKNOWN_MEMBER_ID


class TestCommit:
    @pytest.mark.parametrize(
        ("given", "member", "anyone", "old"),
        [
            (
                empty,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_MEMBER_ID,
            ),
            (
                preparing,
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.ILLEGAL_GENERATION,
            ),
            (
                completing,
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.ILLEGAL_GENERATION,
            ),
            (
                stable,
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.ILLEGAL_GENERATION,
            ),
            (
                dead,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ),
        ],
    )
    def test_is_for_members_of_the_generation_or_for_anyone_while_empty(
        self, given: Given, member: ErrorCode, anyone: ErrorCode, old: ErrorCode
    ) -> None:
        scene = given()
        assert scene.commit("a", CURRENT) is member
        assert scene.commit() is anyone
        assert scene.commit("a", STALE) is old

    def test_of_a_member_without_generation_is_refused(self) -> None:
        assert stable().commit("a", -1) is ErrorCode.ILLEGAL_GENERATION

    def test_of_a_member_while_preparing_needs_the_member_to_be_in_still(self) -> None:
        scene = preparing()
        scene.leave("b")

        assert scene.commit("b", CURRENT) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_keeps_the_session_alive(self) -> None:
        scene = stable()
        for _ in range(10):
            scene.pass_time(5)
            scene.commit("a", CURRENT)

        assert "a" in scene.group.members
        assert "b" not in scene.group.members


class TestLeave:
    def test_makes_the_others_rebalance_at_once(self) -> None:
        scene = stable()

        assert scene.leave("b") == [ErrorCode.NONE]

        assert scene.saved
        assert scene.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS

    def test_of_the_last_one_empties_the_group(self) -> None:
        scene = stable()

        scene.leave("a", "b")

        assert scene.group.state is GroupState.EMPTY
        assert scene.group.generation == 2

    def test_of_the_leader_passes_the_lead_on(self) -> None:
        scene = stable()
        scene.leave("a")

        request = scene.join("b")

        assert scene.joined(request).leader == "b"

    def test_answers_for_each_leaver(self) -> None:
        scene = stable()

        assert scene.leave("nobody", "b", "") == [
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]

    def test_of_nobody_disturbs_nobody(self) -> None:
        scene = stable()

        scene.leave("nobody")

        assert scene.group.state is GroupState.STABLE

    def test_ends_the_wait_for_the_one_who_leaves(self) -> None:
        scene = stable()
        request = scene.join("a")

        scene.leave("b")

        assert scene.joined(request).generation == 2

    def test_answers_what_the_leaver_was_waiting_for(self) -> None:
        scene = stable()
        request = scene.join("a")

        scene.leave("a")

        assert scene.answer(request).error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_of_a_pending_member_ends_the_wait_for_it_and_disturbs_nobody(self) -> None:
        scene = stable()
        scene.join("", new_member_id="c")
        assert scene.leave("c") == [ErrorCode.NONE]
        assert scene.group.state is GroupState.STABLE

        scene.join("", new_member_id="d")
        joins = [scene.join("a"), scene.join("b")]
        assert scene.answer(joins[0]) is None
        scene.leave("d")

        assert scene.joined(joins[0]).generation == 2

    def test_of_a_dissolved_group_makes_clients_look_for_the_coordinator(self) -> None:
        request = Leave((Leaver("a", None),))

        assert dead().ask(request) == LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
