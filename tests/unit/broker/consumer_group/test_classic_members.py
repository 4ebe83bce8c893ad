"""Members of the classic protocol in a group of KIP-848."""

from collections.abc import Collection
from typing import Any

import pytest

from qbus.broker.group.requests import (
    GroupProtocol,
    Heartbeat,
    JoinResult,
    Leave,
    Leaver,
    SyncResult,
)
from qbus.consumer_protocol import Subscription, decode_assignment, encode_subscription
from qbus.errors import ErrorCode
from qbus.names import TopicPartition
from tests.unit.broker.group.scene import make_join, make_sync

from .scene import Scene


@pytest.fixture
def scene() -> Scene:
    """A group with one member of KIP-848, so that it is one."""
    scene = Scene()
    scene.client("kip")
    return scene


def protocols(
    owned: Collection[int] = (), topics: tuple[str, ...] = ("t",), name: str = "cooperative-sticky"
) -> tuple[GroupProtocol, ...]:
    held = tuple(TopicPartition("t", index) for index in owned)
    return (GroupProtocol(name, encode_subscription(Subscription(topics, held))),)


class Classic:
    """A cooperative client of the classic protocol."""

    def __init__(self, scene: Scene, instance_id: str | None = None) -> None:
        self.scene = scene
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()

    def join(self, **changes: Any) -> JoinResult:
        fields = {"instance_id": self.instance_id, "protocols": protocols(self.owned)} | changes
        result = self.scene.ask(make_join(self.member_id, **fields))
        assert isinstance(result, JoinResult)
        if result.error in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.member_id, self.generation = result.member_id, result.generation
        return result

    def sync(self, **changes: Any) -> SyncResult:
        fields = {"instance_id": self.instance_id, "protocol": "cooperative-sticky"} | changes
        result = self.scene.ask(make_sync(self.member_id, self.generation, **fields))
        assert isinstance(result, SyncResult)
        if not result.error:
            self.owned = {index for _, index in decode_assignment(result.assignment)}
        return result

    def heartbeat(self) -> ErrorCode:
        request = Heartbeat(self.member_id, self.instance_id, self.generation)
        answer = self.scene.ask(request)
        assert isinstance(answer, ErrorCode)
        return answer

    def enter(self, **changes: Any) -> None:
        if self.join(**changes).error is ErrorCode.MEMBER_ID_REQUIRED:
            assert self.join().error is ErrorCode.NONE
        assert self.sync().error is ErrorCode.NONE


def reconcile(scene: Scene, *members: Any) -> None:
    """Have members heartbeat, and join again when they are told to, until nothing changes."""
    scene.pass_time(1)
    for _ in range(10):
        for member in members:
            if not isinstance(member, Classic):
                member.beat()
            elif member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
                member.join()
                member.sync()


def test_it_joins_with_an_id_that_it_was_given_and_never_leads(scene: Scene) -> None:
    member = Classic(scene)
    refused = member.join(new_member_id="old")
    assert (refused.error, refused.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "old")
    joined = member.join()
    assert joined.error is ErrorCode.NONE
    assert (joined.member_id, joined.protocol_type) == ("old", "consumer")
    assert joined.protocol == "cooperative-sticky"
    assert joined.leader != "old"
    assert joined.members == ()


def test_both_kinds_share_the_partitions(scene: Scene) -> None:
    new, other, member = scene.clients["kip"], scene.client("other"), Classic(scene)
    member.enter()
    reconcile(scene, new, other, member)
    shares = [len(new.owned), len(other.owned), len(member.owned)]
    assert sorted(shares) == [1, 1, 2]
    assert not set(new.indexes + other.indexes) & member.owned
    assert member.heartbeat() is ErrorCode.NONE


def test_it_is_told_to_join_again_to_give_partitions_up() -> None:
    scene = Scene()
    new, member = scene.client("kip"), Classic(scene)
    member.enter()
    reconcile(scene, new, member)
    assert len(member.owned) == 2
    other = scene.client("other")
    another = scene.client("another")
    yet_another = scene.client("yet another")
    scene.pass_time(1)
    assert member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    had = set(member.owned)
    member.join()
    member.sync()
    assert len(member.owned) == 1
    assert member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "it is to tell that it gave up"
    for client in (other, another, yet_another):
        client.beat()
        assert not set(client.indexes) & had
    reconcile(scene, new, other, another, yet_another, member)
    assert member.heartbeat() is ErrorCode.NONE
    held = [len(one.assigned) for one in scene.group.members]
    assert sorted(held) == [0, 1, 1, 1, 1]


def test_one_that_does_not_join_again_in_time_is_removed(scene: Scene) -> None:
    member = Classic(scene)
    member.enter(rebalance_timeout_ms=5_000)
    new = scene.clients["kip"]
    reconcile(scene, new, member)
    scene.change_topics(t=6)
    assert member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    scene.pass_time(4)
    assert member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    scene.pass_time(61)
    assert member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_one_that_is_silent_is_removed_after_the_time_that_it_asked_for(scene: Scene) -> None:
    member = Classic(scene)
    member.enter()
    scene.pass_time(9)
    scene.client("kip")
    assert len(scene.group.members) == 2
    scene.pass_time(2)
    assert len(scene.group.members) == 1


def test_an_eager_one_has_given_up_everything_when_it_joins(scene: Scene) -> None:
    member = Classic(scene)
    member.join(protocols=protocols(name="range"), needs_known_id=False)
    member.sync(protocol="range")
    new = scene.clients["kip"]
    scene.pass_time(1)
    for _ in range(3):
        new.beat()
        member.owned.clear()
        assert member.join(protocols=protocols(name="range")).protocol == "range"
        assert member.sync(protocol="range").error is ErrorCode.NONE
    assert not set(new.indexes) & member.owned
    assert len(new.owned) + len(member.owned) == 4


def test_one_that_was_removed_and_still_has_partitions_does_not_get_back_unnoticed(
    scene: Scene,
) -> None:
    member = Classic(scene)
    member.enter()
    reconcile(scene, member)
    member.owned = {0}
    member.member_id = "removed"
    assert member.join().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_its_requests_are_for_its_epoch(scene: Scene) -> None:
    member = Classic(scene)
    member.enter()
    member.generation += 1
    assert member.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    assert member.sync().error is ErrorCode.ILLEGAL_GENERATION
    admit = scene.group.admit_commit
    assert admit(member.member_id, None, member.generation, 0) is ErrorCode.ILLEGAL_GENERATION
    assert admit(member.member_id, None, member.generation - 1, 0) is ErrorCode.NONE


def test_a_sync_for_another_protocol_is_refused(scene: Scene) -> None:
    member = Classic(scene)
    member.enter()
    assert member.sync(protocol="range").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_sync_while_there_is_a_newer_assignment_is_told_to_join_again(scene: Scene) -> None:
    member = Classic(scene)
    member.enter()
    scene.pass_time(1)
    scene.change_topics(t=6)
    assert member.sync().error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": (GroupProtocol("range", b"\0"),)},
        {"protocols": ()},
    ],
)
def test_what_is_no_consumer_is_refused(scene: Scene, changes: dict[str, Any]) -> None:
    member = Classic(scene)
    assert member.join(**changes).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert len(scene.group.members) == 1


def test_a_requests_for_the_other_kind_of_member_are_refused(scene: Scene) -> None:
    member = Classic(scene)
    member.enter()
    assert scene.ask(Heartbeat("kip", None, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.refusal(member.member_id, member.generation) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_static_one_takes_the_place_of_its_predecessor_and_fences_it(scene: Scene) -> None:
    first = Classic(scene, "i")
    first.enter(new_member_id="i-1")
    second = Classic(scene, "i")
    second.join(new_member_id="i-2")
    assert len(scene.group.members) == 2
    assert first.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert second.sync().error is ErrorCode.NONE


def test_a_static_one_comes_back_with_the_other_protocol(scene: Scene) -> None:
    """An upgrade of a static member: the classic client went without leaving."""
    first = Classic(scene, "i")
    first.enter(new_member_id="i-1")
    second = scene.client("i-2", instance_id="i")
    assert second.error is ErrorCode.NONE
    assert first.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert all(member.classic is None for member in scene.group.members)


def test_members_of_both_kinds_are_removed_by_their_ids_or_instances(scene: Scene) -> None:
    member = Classic(scene)
    member.enter()
    scene.client("static", instance_id="i")
    leavers = (
        Leaver(member.member_id, None),
        Leaver("", "i"),
        Leaver("nobody", None),
        Leaver("", "j"),
    )
    outcomes = scene.ask(Leave(leavers)).outcomes
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [error for _, error in outcomes] == [ErrorCode.NONE, ErrorCode.NONE, unknown, unknown]
    assert [one.member_id for one in scene.group.members] == ["kip"]


def test_a_restart_of_the_coordinator_changes_nothing_for_them(scene: Scene) -> None:
    member = Classic(scene)
    member.enter()
    new = scene.clients["kip"]
    reconcile(scene, new, member)
    before = scene.group.nodes()
    scene.restart()
    assert scene.group.nodes() == before
    assert member.heartbeat() is ErrorCode.NONE
