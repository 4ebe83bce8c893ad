"""A share group: who is in it, and what each member is told."""

from typing import Any

import pytest

from qbus.broker.share.group import (
    JOIN,
    LEAVE,
    HeartbeatResult,
    MemberHeartbeat,
    ShareGroup,
    ShareGroupState,
)
from qbus.errors import ApiError, ErrorCode

A, B = b"a" * 16, b"b" * 16


class Scene:
    """A group, the topics of its cluster, and the time."""

    def __init__(self) -> None:
        self.group = ShareGroup("g")
        self.topics = {"a": (A, 2)}
        self.now = 0.0
        self.max_size = 10

    def beat(self, member: str, epoch: int, topics: Any = None, **fields: Any) -> HeartbeatResult:
        named = None if topics is None else tuple(topics)
        return self.group.heartbeat(
            MemberHeartbeat(member, epoch, topics=named, **fields),
            self.topics,
            now=self.now,
            session_s=45.0,
            max_size=self.max_size,
        )

    def join(self, member: str, *topics: str) -> HeartbeatResult:
        return self.beat(member, JOIN, topics or ("a",))

    def refusal(self, member: str, epoch: int, topics: Any = None) -> ErrorCode:
        with pytest.raises(ApiError) as refused:
            self.beat(member, epoch, topics)
        return refused.value.code


@pytest.fixture
def scene() -> Scene:
    return Scene()


def places(result: HeartbeatResult) -> set[int]:
    assert result.assignment is not None
    return {index for _, index in result.assignment}


def test_the_first_member_gets_all_partitions(scene: Scene) -> None:
    states = [scene.group.state]
    joined = scene.join("m")
    assert (joined.epoch, places(joined)) == (1, {0, 1})
    states.append(scene.group.state)
    assert states == [ShareGroupState.EMPTY, ShareGroupState.STABLE]


def test_an_assignment_is_told_once(scene: Scene) -> None:
    epoch = scene.join("m").epoch
    assert scene.beat("m", epoch) == HeartbeatResult(epoch)


def test_members_learn_of_a_change_with_their_next_heartbeat(scene: Scene) -> None:
    first = scene.join("m")
    second = scene.join("n")
    told = scene.beat("m", first.epoch)
    assert told.epoch == second.epoch == 2
    assert places(told) | places(second) == {0, 1}
    assert len(places(told)) == 1


def test_an_epoch_may_change_without_the_assignment(scene: Scene) -> None:
    scene.topics["b"] = (B, 1)
    first = scene.join("m")
    scene.join("n", "b")
    assert scene.beat("m", first.epoch) == HeartbeatResult(2)


def test_whoever_missed_an_answer_gets_it_again(scene: Scene) -> None:
    first = scene.join("m")
    scene.join("n")
    lost = scene.beat("m", first.epoch)
    assert scene.beat("m", first.epoch) == lost


def test_a_member_that_names_its_topics_is_told_its_assignment(scene: Scene) -> None:
    joined = scene.join("m")
    assert scene.beat("m", joined.epoch, ["a"]).assignment == joined.assignment


def test_a_member_may_subscribe_to_others(scene: Scene) -> None:
    scene.topics["b"] = (B, 3)
    joined = scene.join("m")
    told = scene.beat("m", joined.epoch, ["b"])
    assert told.assignment == frozenset({(B, 0), (B, 1), (B, 2)})
    assert told.epoch == joined.epoch + 1


def test_members_beyond_the_partitions_read_one_too(scene: Scene) -> None:
    scene.max_size = 1000
    joined = [scene.join(f"m{number}") for number in range(100)]
    assert all(places(one) for one in joined)
    readers = [index for one in scene.group.members for _, index in one.assignment]
    assert readers.count(0) == readers.count(1) == 50


def test_who_joins_a_large_group_changes_nothing_for_the_others(scene: Scene) -> None:
    scene.max_size = 1000
    for number in range(100):
        scene.join(f"m{number}")
    before = {one.member_id: one.assignment for one in scene.group.members}
    scene.join("late")
    after = {one.member_id: one.assignment for one in scene.group.members}
    assert after.pop("late")
    assert after == before


def test_readers_stay_even_while_members_leave_a_large_group(scene: Scene) -> None:
    scene.max_size = 1000
    for number in range(60):
        scene.join(f"m{number}")
    readers_of_0 = [one.member_id for one in scene.group.members if (A, 0) in one.assignment]
    for member in readers_of_0:
        scene.beat(member, LEAVE)
    readers = [index for one in scene.group.members for _, index in one.assignment]
    assert 10 <= readers.count(0) <= 20


def test_a_member_leaves(scene: Scene) -> None:
    first = scene.join("m")
    scene.join("n")
    second = scene.beat("m", first.epoch)
    assert len(places(second)) == 1
    assert scene.beat("n", LEAVE) == HeartbeatResult(LEAVE)
    assert places(scene.beat("m", second.epoch)) == {0, 1}
    assert scene.refusal("n", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.refusal("n", LEAVE) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_joins_again_keeps_what_it_has(scene: Scene) -> None:
    scene.join("m")
    scene.join("n")
    had = next(one.assignment for one in scene.group.members if one.member_id == "n")
    assert scene.join("n").assignment == had
    assert len(scene.group.members) == 2


def test_a_silent_member_is_removed(scene: Scene) -> None:
    first = scene.join("m")
    scene.now = 30.0
    second = scene.join("n")
    scene.now = 45.0
    assert scene.group.expire(scene.now, scene.topics) == ["m"]
    assert places(scene.beat("n", second.epoch)) == {0, 1}
    assert scene.refusal("m", first.epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_keeps_a_member(scene: Scene) -> None:
    epoch = scene.join("m").epoch
    scene.now = 44.0
    scene.beat("m", epoch)
    scene.now = 88.0
    assert scene.group.expire(scene.now, scene.topics) == []


@pytest.mark.parametrize("epoch", [2, 7])
def test_an_epoch_from_the_future_is_fenced(scene: Scene, epoch: int) -> None:
    scene.join("m")
    assert scene.refusal("m", epoch) is ErrorCode.FENCED_MEMBER_EPOCH


def test_an_epoch_long_past_is_fenced(scene: Scene) -> None:
    first = scene.join("m")
    for other in ("n", "o"):
        scene.join(other)
        epoch = scene.group.epoch
        scene.beat("m", epoch - 1)
    assert scene.refusal("m", first.epoch) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_joins_with_topics(scene: Scene) -> None:
    assert scene.refusal("m", JOIN) is ErrorCode.INVALID_REQUEST
    assert scene.refusal("m", JOIN, []) is ErrorCode.INVALID_REQUEST


def test_a_group_may_be_full(scene: Scene) -> None:
    scene.max_size = 1
    scene.join("m")
    assert scene.refusal("n", JOIN, ["a"]) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.join("m").epoch == 1


def test_a_topic_that_comes_or_grows_is_assigned(scene: Scene) -> None:
    scene.topics.clear()
    joined = scene.join("m")
    assert places(joined) == set()
    scene.topics["a"] = (A, 1)
    scene.group.topics_changed(["a"], scene.topics)
    told = scene.beat("m", joined.epoch)
    assert places(told) == {0}
    scene.topics["a"] = (A, 2)
    scene.group.topics_changed(["a"], scene.topics)
    assert places(scene.beat("m", told.epoch)) == {0, 1}


def test_topics_of_others_change_nothing(scene: Scene) -> None:
    scene.join("m")
    scene.group.topics_changed(["b"], scene.topics)
    assert scene.group.epoch == 1
