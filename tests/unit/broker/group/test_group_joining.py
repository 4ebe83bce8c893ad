"""JoinGroup: which members may join, under which id, and when that causes a rebalance."""

import pytest

from qbus.broker.group.requests import GroupProtocol, JoinedMember, JoinResult
from qbus.broker.group.state import GroupState
from qbus.errors import ErrorCode

from .scene import RANGE, REBALANCE_MS, SESSION_MS, Scene

CHANGED = (GroupProtocol("range", b"more topics"),)


class TestNewMembers:
    def test_are_sent_away_once_to_come_back_with_the_id_they_were_given(self) -> None:
        scene = Scene()

        first = scene.join("", new_member_id="a")
        again = scene.join("a")
        scene.pass_time(3)

        assert scene.answer(first) == JoinResult(ErrorCode.MEMBER_ID_REQUIRED, "a")
        assert scene.joined(again).member_id == "a"

    def test_get_in_at_once_when_their_version_knows_no_such_answer(self) -> None:
        scene = Scene()

        request = scene.join("", new_member_id="a", needs_known_id=False)
        scene.pass_time(3)

        assert scene.joined(request).member_id == "a"

    def test_lose_an_id_they_do_not_use_within_the_session_timeout(self) -> None:
        scene = Scene()
        scene.join("", new_member_id="a")

        scene.pass_time(SESSION_MS / 1000)

        late = scene.join("a")
        assert scene.answer(late) == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "a")
        assert scene.group.is_vacant

    def test_may_not_invent_an_id(self) -> None:
        scene = Scene()
        scene.settle("a")

        request = scene.join("mallory")

        assert scene.answer(request) == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "mallory")
        assert scene.group.state is GroupState.STABLE

    def test_cannot_take_a_pending_id_for_a_static_member(self) -> None:
        scene = Scene()
        scene.join("", new_member_id="a")

        request = scene.join("a", instance_id="i")

        assert scene.answer(request).error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_do_not_disturb_a_stable_group_before_they_come_back(self) -> None:
        scene = Scene()
        scene.settle("a")

        scene.join("", new_member_id="b")

        assert scene.heartbeat("a") is ErrorCode.NONE
        assert scene.group.state is GroupState.STABLE

    def test_make_a_stable_group_rebalance(self) -> None:
        scene = Scene()
        scene.settle("a")

        newcomer = scene.join("", new_member_id="b", needs_known_id=False)
        told = scene.heartbeat("a")
        rejoined = scene.join("a")

        assert told is ErrorCode.REBALANCE_IN_PROGRESS
        assert scene.joined(newcomer).generation == scene.joined(rejoined).generation == 2

    def test_are_given_up_when_their_client_died_while_it_waited(self) -> None:
        scene = Scene(new_member_timeout=300.0)
        scene.settle("a@static", rebalance_timeout_ms=10_000_000, session_timeout_ms=10_000_000)
        dead = scene.join("", new_member_id="b", needs_known_id=False)

        scene.pass_time(300)

        assert scene.answer(dead).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert "b" not in scene.group.members


class TestTheFirstRebalance:
    def test_waits_for_the_delay_and_takes_in_everyone_who_comes(self) -> None:
        scene = Scene(initial_rebalance_delay=3.0)

        a = scene.join("", new_member_id="a", needs_known_id=False)
        scene.pass_time(2.9)
        assert scene.answer(a) is None
        scene.pass_time(0.1)

        assert scene.joined(a).generation == 1

    def test_is_put_off_while_members_keep_arriving(self) -> None:
        scene = Scene(initial_rebalance_delay=3.0)

        a = scene.join("", new_member_id="a", needs_known_id=False)
        scene.pass_time(2)
        b = scene.join("", new_member_id="b", needs_known_id=False)
        scene.pass_time(2)
        assert scene.answer(a) is None
        scene.pass_time(2)

        assert scene.joined(a).generation == scene.joined(b).generation == 1

    def test_is_put_off_no_longer_than_the_rebalance_timeout(self) -> None:
        scene = Scene(initial_rebalance_delay=3.0)
        a = scene.join("", new_member_id="m0", needs_known_id=False, rebalance_timeout_ms=7_000)

        for i in range(1, 8):
            scene.pass_time(1)
            scene.join("", new_member_id=f"m{i}", needs_known_id=False, rebalance_timeout_ms=7_000)

        assert scene.joined(a).generation == 1

    def test_needs_no_delay_when_none_is_configured(self) -> None:
        scene = Scene(initial_rebalance_delay=0.0)

        a = scene.join("", new_member_id="a", needs_known_id=False)
        scene.pass_time(0)

        assert scene.joined(a).generation == 1


class TestTheNewGeneration:
    def test_is_told_to_its_leader_with_everyone_and_to_followers_without(self) -> None:
        scene = Scene()

        a = scene.join("", new_member_id="a", needs_known_id=False)
        b = scene.join("", new_member_id="b", needs_known_id=False, protocols=CHANGED)
        scene.pass_time(6)

        everyone = (
            JoinedMember("a", None, b"topics"),
            JoinedMember("b", None, b"more topics"),
        )
        assert scene.answer(a) == JoinResult(
            ErrorCode.NONE, "a", 1, "consumer", "range", "a", everyone
        )
        assert scene.answer(b) == JoinResult(ErrorCode.NONE, "b", 1, "consumer", "range", "a", ())

    def test_is_stored_before_anyone_is_told(self) -> None:
        scene = Scene()
        scene.join("", new_member_id="a", needs_known_id=False)

        scene.pass_time(3)

        assert scene.saved

    def test_uses_the_protocol_that_most_prefer_among_those_all_support(self) -> None:
        def prefer(*names: str) -> tuple[GroupProtocol, ...]:
            return tuple(GroupProtocol(name, name.encode()) for name in names)

        scene = Scene()
        joins = [
            scene.join("", new_member_id=f"m{i}", needs_known_id=False, protocols=protocols)
            for i, protocols in enumerate(
                [
                    prefer("exotic", "range", "sticky"),
                    prefer("sticky", "range"),
                    prefer("sticky", "range"),
                ]
            )
        ]
        scene.pass_time(6)

        assert {scene.joined(join).protocol for join in joins} == {"sticky"}
        assert scene.joined(joins[0]).members[0].metadata == b"sticky"


class TestProtocols:
    @pytest.mark.parametrize(
        "changes",
        [
            {"protocol_type": "", "protocols": RANGE},
            {"protocol_type": "consumer", "protocols": ()},
        ],
    )
    def test_a_group_needs_a_type_and_a_protocol(self, changes: dict[str, object]) -> None:
        scene = Scene()

        request = scene.join("", **changes)

        assert scene.answer(request).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert scene.group.is_vacant

    @pytest.mark.parametrize(
        "changes",
        [
            {"protocol_type": "connect"},
            {"protocols": (GroupProtocol("sticky", b""),)},
            {"protocols": ()},
        ],
    )
    def test_a_member_that_fits_nobody_is_refused(self, changes: dict[str, object]) -> None:
        scene = Scene()
        scene.settle("a")

        newcomer = scene.join("", **changes)
        member = scene.join("a", **changes)

        assert scene.answer(newcomer).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert scene.answer(member).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert scene.heartbeat("a") is ErrorCode.NONE

    def test_an_emptied_group_may_change_its_type(self) -> None:
        scene = Scene()
        scene.settle("a")
        scene.leave("a")

        request = scene.join("", protocol_type="connect", needs_known_id=False)
        scene.pass_time(3)

        assert scene.joined(request).protocol_type == "connect"


class TestRejoining:
    @pytest.mark.parametrize("member_id", ["leader", "follower"])
    def test_while_completing_tells_a_member_that_missed_it_the_answer_again(
        self, member_id: str
    ) -> None:
        scene = Scene()
        joins = {
            name: scene.join("", new_member_id=name, needs_known_id=False)
            for name in ("leader", "follower")
        }
        scene.pass_time(6)

        again = scene.join(member_id)

        assert scene.answer(again) == scene.answer(joins[member_id])
        assert scene.group.state is GroupState.COMPLETING

    def test_while_completing_with_other_metadata_starts_over(self) -> None:
        scene = Scene()
        for name in ("a", "b"):
            scene.join("", new_member_id=name, needs_known_id=False)
        scene.pass_time(6)
        parked = scene.sync("b")

        again = scene.join("a", protocols=CHANGED)

        assert scene.answer(parked).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert scene.answer(again) is None
        assert scene.group.state is GroupState.PREPARING

    def test_rejoining_a_stable_group_unchanged_causes_no_rebalance(self) -> None:
        scene = Scene()
        scene.settle("leader", "follower")

        again = scene.join("follower")

        assert scene.joined(again).generation == 1
        assert scene.joined(again).members == ()
        assert scene.group.state is GroupState.STABLE

    @pytest.mark.parametrize(("member_id", "protocols"), [("leader", RANGE), ("follower", CHANGED)])
    def test_a_stable_group_as_leader_or_changed_rebalances(
        self, member_id: str, protocols: tuple[GroupProtocol, ...]
    ) -> None:
        scene = Scene()
        scene.settle("leader", "follower")

        again = scene.join(member_id, protocols=protocols)

        assert scene.answer(again) is None
        assert scene.group.state is GroupState.PREPARING

    def test_twice_answers_the_first_request_too(self) -> None:
        scene = Scene()
        scene.settle("a", "b")
        first = scene.join("a", protocols=CHANGED)

        second = scene.join("a", protocols=CHANGED)
        scene.join("b")

        assert scene.answer(first).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert scene.joined(second).generation == 2

    def test_an_empty_group_needs_a_new_id(self) -> None:
        scene = Scene()
        scene.settle("a")
        scene.leave("a")

        request = scene.join("a")

        assert scene.answer(request) == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "a")

    def test_a_dissolved_group_makes_clients_look_for_the_coordinator(self) -> None:
        scene = Scene()
        scene.group.dissolve(ErrorCode.NOT_COORDINATOR)

        request = scene.join("")

        assert scene.answer(request).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


class TestTheSizeLimit:
    def test_turns_a_newcomer_away_and_keeps_the_members(self) -> None:
        scene = Scene(max_size=2)
        scene.settle("a", "b")

        request = scene.join("")

        assert scene.answer(request) == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert scene.heartbeat("a") is ErrorCode.NONE

    def test_holds_while_preparing_for_those_who_come_last(self) -> None:
        scene = Scene(max_size=2)
        scene.join("", new_member_id="a", needs_known_id=False)
        scene.join("", new_member_id="b", needs_known_id=False)

        request = scene.join("", new_member_id="c", needs_known_id=False)

        assert scene.answer(request).error is ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_when_lowered_drops_the_last_member_to_rejoin(self) -> None:
        scene = Scene(max_size=2)
        scene.settle("a", "b")
        image = scene.group.image()
        scene = Scene(max_size=1)
        scene.group = type(scene.group).restore("g", image, scene.now, scene.limits)

        first = scene.join("a")
        last = scene.join("b")

        assert scene.answer(last).error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert scene.joined(first).generation == 2
        assert [member.member_id for member in scene.group.members] == ["a"]

    def test_a_member_in_the_middle_of_joining_may_retry(self) -> None:
        scene = Scene(max_size=1)
        scene.settle("a", rebalance_timeout_ms=REBALANCE_MS)

        again = scene.join("a")

        assert scene.joined(again).generation == 2
