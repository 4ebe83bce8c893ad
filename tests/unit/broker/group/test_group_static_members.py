"""Static members (KIP-345): an instance keeps its place when its process restarts."""

import pytest

from qbus.broker.group.requests import GroupProtocol, Leave, Leaver
from qbus.broker.group.state import GroupState
from qbus.errors import ErrorCode

from .scene import SESSION_MS, Scene

BOTH = (GroupProtocol("range", b"topics"), GroupProtocol("sticky", b"topics"))
STICKY_FIRST = BOTH[::-1]


def reborn(scene: Scene, instance_id: str, new_member_id: str, **changes: object) -> object:
    return scene.join("", instance_id=instance_id, new_member_id=new_member_id, **changes)


def stable() -> Scene:
    scene = Scene()
    scene.settle("a@one", "b@two")
    return scene


class TestComingBackToAStableGroup:
    def test_does_not_rebalance_and_keeps_the_assignment(self) -> None:
        scene = stable()

        request = scene.join("", instance_id="two", new_member_id="b2")
        sync = scene.sync("b2", instance_id="two")

        assert scene.joined(request).generation == 1
        assert scene.synced(sync).assignment == b"b"
        assert scene.heartbeat("a", instance_id="one") is ErrorCode.NONE

    def test_is_stored(self) -> None:
        scene = stable()

        scene.join("", instance_id="two", new_member_id="b2")

        assert scene.saved
        assert {member.member_id for member in scene.group.image().members} == {"a", "b2"}

    def test_fences_the_former_incarnation(self) -> None:
        scene = stable()
        scene.join("", instance_id="two", new_member_id="b2")

        assert scene.heartbeat("b", instance_id="two") is ErrorCode.FENCED_INSTANCE_ID
        assert scene.commit("b", 1, "two") is ErrorCode.FENCED_INSTANCE_ID
        assert scene.leave("b", instance_id="two") == [ErrorCode.FENCED_INSTANCE_ID]
        assert scene.answer(scene.sync("b", instance_id="two")).error is (
            ErrorCode.FENCED_INSTANCE_ID
        )
        assert scene.answer(scene.join("b", instance_id="two")).error is (
            ErrorCode.FENCED_INSTANCE_ID
        )
        assert scene.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID
        assert scene.group.state is GroupState.STABLE

    def test_tells_a_leader_not_to_assign(self) -> None:
        scene = stable()

        request = scene.join("", instance_id="one", new_member_id="a2")

        result = scene.joined(request)
        assert result.leader == "a2"
        assert result.skip_assignment
        assert [member.member_id for member in result.members] == ["b", "a2"]

    def test_hides_the_lead_from_a_client_that_would_assign_anyway(self) -> None:
        scene = stable()

        request = scene.join("", instance_id="one", new_member_id="a2", knows_skip_assignment=False)

        result = scene.joined(request)
        assert result.leader == "a"
        assert not result.skip_assignment
        assert result.members == ()

    def test_with_another_preferred_protocol_rebalances(self) -> None:
        scene = Scene()
        scene.settle("a@one", protocols=BOTH)

        request = scene.join("", instance_id="one", new_member_id="a2", protocols=STICKY_FIRST)

        assert scene.joined(request).generation == 2
        assert scene.joined(request).protocol == "sticky"

    def test_takes_the_new_incarnations_timeouts_and_address(self) -> None:
        scene = stable()

        scene.join(
            "",
            instance_id="two",
            new_member_id="b2",
            session_timeout_ms=77_000,
            client_id="other",
            client_host="10.0.0.2",
        )

        member = scene.group.members["b2"]
        assert member.session_timeout_ms == 77_000
        assert (member.client_id, member.client_host) == ("other", "10.0.0.2")
        assert member.deadline == scene.now + 77


class TestComingBackDuringARebalance:
    def test_while_preparing_fences_the_parked_request(self) -> None:
        scene = stable()
        old = scene.join("a", instance_id="one")

        new = scene.join("", instance_id="one", new_member_id="a2")
        scene.join("b", instance_id="two")

        assert scene.answer(old).error is ErrorCode.FENCED_INSTANCE_ID
        assert scene.joined(new).leader == "a2"

    def test_while_completing_starts_over(self) -> None:
        scene = Scene()
        for name, instance in (("a", "one"), ("b", "two")):
            scene.join("", instance_id=instance, new_member_id=name)
        scene.pass_time(6)
        parked = scene.sync("b", instance_id="two")

        new = scene.join("", instance_id="two", new_member_id="b2")

        assert scene.answer(parked).error is ErrorCode.FENCED_INSTANCE_ID
        assert scene.group.state is GroupState.PREPARING
        scene.join("a", instance_id="one")
        assert scene.joined(new).generation == 2

    def test_before_the_first_generation_replaces_the_newcomer(self) -> None:
        scene = Scene()
        old = scene.join("", instance_id="one", new_member_id="a")

        new = scene.join("", instance_id="one", new_member_id="a2")
        scene.pass_time(3)

        assert scene.answer(old).error is ErrorCode.FENCED_INSTANCE_ID
        assert [member.member_id for member in scene.joined(new).members] == ["a2"]


class TestTheirPlace:
    def test_is_kept_through_a_rebalance_that_they_miss(self) -> None:
        scene = stable()
        request = scene.join("a", instance_id="one")
        for _ in range(20):
            scene.pass_time(3)
            scene.heartbeat("b", 1, "two")

        assert scene.joined(request).generation == 2
        assert {member.instance_id for member in scene.joined(request).members} == {"one", "two"}

    def test_is_lost_with_the_session(self) -> None:
        scene = stable()

        scene.pass_time(SESSION_MS / 1000)

        assert scene.group.state is GroupState.EMPTY
        assert scene.heartbeat("b", 1, "two") is ErrorCode.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize("instance_id", ["unknown", None])
    def test_is_given_up_by_an_administrator_naming_the_instance(
        self, instance_id: str | None
    ) -> None:
        scene = stable()

        outcomes = scene.ask(Leave((Leaver("", "two"), Leaver("", instance_id)))).outcomes

        assert [outcome.error for outcome in outcomes] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]
        assert "b" not in scene.group.members
        assert scene.group.state is GroupState.PREPARING

    def test_is_not_for_another_member(self) -> None:
        scene = stable()

        assert scene.heartbeat("a", instance_id="two") is ErrorCode.FENCED_INSTANCE_ID
