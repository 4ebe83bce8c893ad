"""A group of KIP-848: who is in it, who is told what, and that no partition has two readers."""

import math
from typing import Any, NamedTuple

import pytest

from qbus.broker.consumer_group import Partitions
from qbus.broker.consumer_group.group import Settings
from qbus.broker.consumer_group.member import MemberState
from qbus.broker.group.requests import Moved
from qbus.broker.group.state import GroupState
from qbus.errors import ErrorCode

from .scene import NOTHING, Scene

SUBSCRIBED = {"topics": ("t",), "rebalance_timeout_ms": 60_000, "owned": NOTHING}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def state_of(scene: Scene, member_id: str) -> MemberState:
    (found,) = [one for one in scene.group.members if one.member_id == member_id]
    return found.state


def state(scene: Scene) -> GroupState:
    return scene.group.state


# Joining


def test_the_first_member_gets_everything_with_the_answer_to_its_first_heartbeat(
    scene: Scene,
) -> None:
    result = scene.beat("a", 0, **SUBSCRIBED)
    assert (result.error, result.member_id, result.epoch) == (ErrorCode.NONE, "a", 1)
    assert result.heartbeat_interval_ms == 5_000
    assert result.assignment == frozenset((b"t", index) for index in range(4))
    assert scene.saved
    assert state(scene) is GroupState.STABLE


def test_a_heartbeat_that_changes_nothing_stores_nothing_and_tells_nothing(scene: Scene) -> None:
    client = scene.client("a")
    client.beat()
    result = client.beat()
    assert result.assignment is None
    assert not scene.saved


def test_a_second_member_gets_what_the_first_has_given_up_and_not_before(scene: Scene) -> None:
    first = scene.client("a")
    second = scene.client("b")
    assert second.owned == NOTHING

    scene.pass_time(1)
    assert state(scene) is GroupState.RECONCILING
    told = first.beat(owned=first.owned)  # it has all four still
    assert told.assignment is not None
    assert len(told.assignment) == 2
    assert second.beat().assignment is None  # two are not given up yet
    first.beat(owned=told.assignment)
    assert first.epoch == 2
    result = second.beat()
    assert result.assignment is not None
    assert len(result.assignment) == 2
    assert not result.assignment & told.assignment
    assert state(scene) is GroupState.STABLE


def test_a_partition_that_is_not_listed_is_not_given_up_unless_the_member_was_told_to(
    scene: Scene,
) -> None:
    """A client that takes partitions over lists them only when it is done."""
    first = scene.client("a")
    second = scene.client("b")
    scene.pass_time(1)
    first.beat(owned=NOTHING)  # it is about to take over all four, which it was told of
    assert state_of(scene, "a") is MemberState.UNREVOKED
    assert not second.beat().assignment


def test_partitions_that_were_given_up_are_listed_no_more_by_the_next_heartbeat(
    scene: Scene,
) -> None:
    first, second = scene.client("a"), scene.client("b")
    scene.pass_time(1)
    told = first.beat()
    assert told.epoch == 1, "the epoch changes when everything was given up"
    assert first.beat(owned=told.assignment).epoch == 2
    assert len(second.beat().assignment or ()) == 2


def test_a_heartbeat_without_a_list_gives_nothing_up(scene: Scene) -> None:
    first, second = scene.client("a"), scene.client("b")
    scene.pass_time(1)
    for _ in range(3):
        scene.beat("a", first.epoch)
        assert not second.beat().assignment


def test_a_member_is_told_what_to_give_up_until_it_has_given_it_up(scene: Scene) -> None:
    """librdkafka overlooks it at times while it takes over what it was told of before."""
    first = scene.client("a")
    scene.client("b")
    scene.pass_time(1)
    everything = first.owned
    told = first.beat(owned=everything).assignment
    assert told is not None
    assert scene.beat("a", first.epoch, owned=everything).assignment == told
    assert scene.beat("a", first.epoch).assignment == told
    done = scene.beat("a", first.epoch, owned=told)
    assert done.assignment is None
    assert scene.beat("a", done.epoch).assignment is None


def test_a_member_is_told_what_it_has_until_it_lists_that(scene: Scene) -> None:
    first = scene.client("a")
    assert scene.beat("a", first.epoch).assignment == first.owned
    assert scene.beat("a", first.epoch).assignment == first.owned
    assert first.beat(owned=first.owned).assignment is None
    assert first.beat().assignment is None


def test_whoever_missed_what_it_was_given_is_told_again_before_it_is_to_give_that_up() -> None:
    """To be told to have what it has would be no news to it, and it would never answer."""
    scene = Scene(t=2)
    client = scene.client("a")
    everything = {"topics": ("t",), "rebalance_timeout_ms": 60_000, "owned": client.owned}
    scene.change_topics(t=3)
    scene.pass_time(1)
    lost = scene.beat("a", client.epoch)
    joined = scene.beat("b", 0, **SUBSCRIBED)
    scene.pass_time(1)
    again = scene.beat("a", client.epoch, **everything)
    assert again.assignment == lost.assignment
    assert len(again.assignment or ()) == 3
    told = scene.beat("a", again.epoch, owned=again.assignment)
    assert told.assignment == client.owned
    waiting = scene.beat("b", joined.epoch)
    assert not waiting.assignment
    scene.beat("a", told.epoch, owned=told.assignment)
    assert len(scene.beat("b", waiting.epoch).assignment or ()) == 1
    assert state(scene) is GroupState.STABLE


def test_whoever_takes_over_what_it_is_not_to_have_any_more_keeps_it_from_others() -> None:
    """It missed twice what to give up, and lists what it had before it was given that."""
    scene = Scene(t=2)
    scene.beat("a", 0, **SUBSCRIBED)
    assert len(scene.beat("a", 1).assignment or ()) == 2
    other = scene.beat("b", 0, **SUBSCRIBED)
    scene.pass_time(1)
    kept = scene.beat("a", 1).assignment or NOTHING  # lost
    assert len(kept) == 1
    assert scene.beat("a", 1, **SUBSCRIBED).assignment == kept  # lost as well
    other = scene.beat("b", other.epoch)
    assert not other.assignment
    everything = frozenset({(b"t", 0), (b"t", 1)})
    assert scene.beat("a", 1, owned=everything).assignment == kept
    other = scene.beat("b", other.epoch)
    assert not other.assignment
    assert scene.beat("a", 1, owned=kept).epoch == 2
    assert len(scene.beat("b", other.epoch).assignment or ()) == 1


def test_what_it_gave_up_once_and_takes_over_again_it_keeps_from_others_as_well() -> None:
    """That it listed that before it gave it up says nothing."""
    scene = Scene(t=2)
    everything = scene.client("a").owned
    scene.beat("a", 1, owned=everything)
    scene.beat("b", 0, **SUBSCRIBED)
    scene.pass_time(1)
    kept = scene.beat("a", 1).assignment or NOTHING
    assert len(kept) == 1
    scene.beat("b", -1)
    scene.pass_time(1)
    again = scene.beat("a", 1, owned=kept)
    assert again.assignment == everything
    other = scene.beat("c", 0, **SUBSCRIBED)
    scene.pass_time(1)
    for _ in range(5):  # it takes that over, then misses that it is to give it up again
        told = scene.beat("a", again.epoch).assignment
        other = scene.beat("c", other.epoch)
        scene.pass_time(5)
    assert told == kept
    scene.beat("a", again.epoch, **{**SUBSCRIBED, "owned": kept})
    assert not scene.beat("c", other.epoch).assignment


class TestAMemberThatMayHaveMissedWhatItWasGiven:
    """It listed two partitions, was given a third one, and is not to have that any more."""

    @pytest.fixture
    def kept(self) -> Partitions:
        return frozenset({(b"t", 0), (b"t", 1)})

    @pytest.fixture
    def scene(self, kept: Partitions) -> Scene:
        scene = Scene(t=2)
        scene.client("a").beat()
        scene.change_topics(t=3)
        scene.pass_time(1)
        scene.beat("a", 1)  # it hears nothing of the third partition, or is slow to take it over
        scene.beat("b", 0, **SUBSCRIBED)
        scene.pass_time(1)
        return scene

    def silent(self, scene: Scene, seconds: float, interval: float = 5) -> list[int]:
        """Let time pass; how many partitions each answer to its heartbeats told it to have.

        The one that is to have the third partition asks for it meanwhile.
        """
        told = []
        end = scene.now + seconds
        while scene.now < end:
            result = scene.beat("a", 2)
            assert result.error is ErrorCode.NONE
            told.append(len(result.assignment or ()))
            assert not scene.beat("b", 3).assignment
            scene.pass_time(min(interval, end - scene.now))
        return told

    def test_is_told_again_for_a_while_then_what_to_give_up(self, scene: Scene) -> None:
        assert self.silent(scene, 40) == [3, 3, 3, 3, 2, 2, 2, 2]
        assert state_of(scene, "a") is MemberState.UNREVOKED

    def test_is_to_ask_sooner_meanwhile(self, scene: Scene) -> None:
        assert scene.beat("a", 2).heartbeat_interval_ms == 2_000
        self.silent(scene, 40)
        assert scene.beat("a", 2).heartbeat_interval_ms == 5_000

    def test_is_told_thrice_however_seldom_it_asks(self, scene: Scene) -> None:
        assert self.silent(scene, 59, interval=14) == [3, 3, 3, 2, 2]

    def test_needs_no_longer_than_its_time_out_for_all_of_that(self, scene: Scene) -> None:
        self.silent(scene, 59)
        scene.pass_time(1)
        assert scene.refusal("a", 2) is ErrorCode.UNKNOWN_MEMBER_ID
        assert len(scene.beat("b", 3).assignment or ()) == 3

    def test_that_takes_it_over_at_last_gives_it_up_without_losing_its_place(
        self, scene: Scene, kept: Partitions
    ) -> None:
        self.silent(scene, 50)
        everything = kept | {(b"t", 2)}
        told = scene.beat("a", 2, owned=everything)  # it had begun before it was told otherwise
        assert told.assignment == kept
        scene.pass_time(5)
        assert scene.beat("a", 2, owned=kept).epoch == 3
        assert len(scene.beat("b", 3).assignment or ()) == 1
        scene.pass_time(30)
        assert scene.beat("a", 3).error is ErrorCode.NONE

    def test_has_the_whole_time_out_again_for_what_it_is_to_give_up_next(
        self, scene: Scene, kept: Partitions
    ) -> None:
        self.silent(scene, 50)
        scene.beat("a", 2, owned=kept)
        scene.beat("c", 0, **SUBSCRIBED)
        scene.pass_time(1)
        assert len(scene.beat("a", 3).assignment or ()) == 1
        for _ in range(5):
            scene.pass_time(10)
            assert scene.beat("a", 3).error is ErrorCode.NONE

    def test_is_told_again_if_it_may_have_missed_what_to_give_up(
        self, scene: Scene, kept: Partitions
    ) -> None:
        """It is taking the third one over all the while: nobody else may have that yet."""
        everything = {**SUBSCRIBED, "owned": kept}
        self.silent(scene, 20)
        assert scene.beat("a", 2).assignment == kept  # lost
        again = scene.beat("a", 2, **everything)  # lost as well
        assert len(again.assignment or ()) == 3
        assert not scene.beat("b", 3).assignment
        told = scene.beat("a", 2, owned=kept | {(b"t", 2)})
        assert told.assignment == kept
        assert scene.beat("a", 2, **everything).epoch == 3  # it had that: now it gave it up
        assert len(scene.beat("b", 3).assignment or ()) == 1

    def test_that_answers_is_believed_that_it_never_had_it(
        self, scene: Scene, kept: Partitions
    ) -> None:
        self.silent(scene, 20)
        assert scene.beat("a", 2).assignment == kept
        assert scene.beat("a", 2, owned=kept).epoch == 3
        assert len(scene.beat("b", 3).assignment or ()) == 1

    def test_that_is_told_for_ever_loses_its_place_in_time(
        self, scene: Scene, kept: Partitions
    ) -> None:
        for _ in range(80):
            assert scene.beat("a", 2, **SUBSCRIBED | {"owned": kept}).error is ErrorCode.NONE
            assert not scene.beat("b", 3).assignment
            scene.pass_time(1)
        scene.pass_time(1)
        assert len(scene.beat("b", 3).assignment or ()) == 3

    def test_has_its_time_out_from_when_others_are_to_have_what_it_takes_over_meanwhile(
        self, scene: Scene, kept: Partitions
    ) -> None:
        self.silent(scene, 18)
        assert scene.beat("a", 2, owned=kept | {(b"t", 2)}).assignment == kept
        self.silent(scene, 41)
        scene.pass_time(1)
        assert scene.refusal("a", 2, owned=kept) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_has_the_whole_time_out_for_what_it_is_to_give_up_besides(self, scene: Scene) -> None:
        """That it lists the rest ends that it is told again: it is to give some of that up, too."""
        self.silent(scene, 18)
        scene.beat("c", 0, **SUBSCRIBED)
        scene.pass_time(1)
        assert len(scene.beat("a", 2).assignment or ()) == 1
        for _ in range(5):
            scene.pass_time(11)
            assert scene.beat("a", 2).error is ErrorCode.NONE
        scene.pass_time(5)
        assert scene.refusal("a", 2) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_that_goes_for_a_while_has_nothing_to_release(self) -> None:
        scene = Scene(t=2)
        scene.client("a", instance_id="i").beat()
        scene.change_topics(t=3)
        scene.pass_time(1)
        scene.beat("a", 1, instance_id="i")
        scene.beat("b", 0, **SUBSCRIBED)
        scene.pass_time(1)
        scene.beat("a", 2, instance_id="i")
        scene.beat("a", -2, instance_id="i")
        scene.pass_time(1)
        assert len(scene.beat("b", 3).assignment or ()) == 1
        successor = scene.client("c", instance_id="i")
        assert len(successor.owned) == 2
        assert state(scene) is GroupState.STABLE


def test_a_member_that_waits_for_others_is_to_ask_sooner(scene: Scene) -> None:
    first = scene.client("a")
    joined = scene.beat("b", 0, **SUBSCRIBED)
    assert (joined.assignment, joined.heartbeat_interval_ms) == (NOTHING, 2_000)
    scene.pass_time(1)
    assert scene.beat("b", joined.epoch).heartbeat_interval_ms == 2_000  # "a" has all four still
    assert first.beat().heartbeat_interval_ms == 5_000
    first.beat()
    told = scene.beat("b", joined.epoch)
    assert (len(told.assignment or ()), told.heartbeat_interval_ms) == (2, 5_000)


def test_nobody_is_to_ask_oftener_than_every_two_seconds_or_as_configured() -> None:
    scene = Scene(Settings(heartbeat_interval_ms=600))
    scene.client("a")
    assert scene.beat("b", 0, **SUBSCRIBED).heartbeat_interval_ms == 600
    scene = Scene(Settings(heartbeat_interval_ms=20_000))
    scene.client("a")
    assert scene.beat("b", 0, **SUBSCRIBED).heartbeat_interval_ms == 4_000


def test_a_member_that_misses_an_answer_while_it_waits_has_the_whole_interval(
    scene: Scene,
) -> None:
    """Librdkafka gives an answer up after the interval, and would miss the next one as well."""
    first = scene.client("a")
    joined = scene.beat("b", 0, **SUBSCRIBED)
    scene.pass_time(1)
    assert scene.beat("b", joined.epoch).heartbeat_interval_ms == 2_000  # missed
    again = scene.beat("b", joined.epoch, **SUBSCRIBED)
    assert again.heartbeat_interval_ms == 5_000
    assert scene.beat("b", again.epoch).heartbeat_interval_ms == 5_000
    first.beat()
    first.beat()
    told = scene.beat("b", again.epoch)
    assert len(told.assignment or ()) == 2
    scene.beat("b", told.epoch, owned=told.assignment)
    first.beat(topics=("u",))
    scene.pass_time(1)
    waits = scene.beat("b", told.epoch)
    assert waits.heartbeat_interval_ms == 2_000, "it waits for something else"


def test_members_that_come_together_are_assigned_together() -> None:
    scene = Scene(t=1000)
    clients = [scene.client(f"m{n}") for n in range(100)]
    assert scene.group.assignment_epoch < scene.group.epoch
    assert state(scene) is GroupState.ASSIGNING
    scene.pass_time(1)
    assert scene.group.assignment_epoch == scene.group.epoch
    scene.settle(*clients)
    assert {len(client.owned) for client in clients} == {10}
    assert state(scene) is GroupState.STABLE


def test_a_group_has_only_so_many_members() -> None:
    scene = Scene(Settings(max_size=1))
    scene.client("a")
    assert scene.refusal("b", 0, **SUBSCRIBED) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.client("a").error is ErrorCode.NONE


# Epochs


def test_whoever_is_no_member_is_told_so(scene: Scene) -> None:
    assert scene.refusal("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.refusal("a", -1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_epoch_of_the_future_or_of_long_ago_is_fenced(scene: Scene) -> None:
    client = scene.client("a")
    for _ in range(2):
        scene.pass_time(1)
        scene.change_topics(t=scene.topics.sizes["t"] + 1)
        client.beat()
    assert client.epoch == 3
    assert scene.refusal("a", 4) is ErrorCode.FENCED_MEMBER_EPOCH
    assert scene.refusal("a", 1) is ErrorCode.FENCED_MEMBER_EPOCH


def test_the_epoch_before_is_that_of_a_member_that_missed_an_answer(scene: Scene) -> None:
    client = scene.client("a")
    before = client.owned
    scene.pass_time(1)
    scene.change_topics(t=6)
    lost = scene.beat("a", 1)
    again = scene.beat("a", 1, owned=before)
    assert (again.epoch, again.assignment) == (lost.epoch, lost.assignment)


def test_a_member_that_misses_answer_after_answer_keeps_its_place(scene: Scene) -> None:
    """On a slow machine answers come when they were given up, and a new epoch with each."""
    client = scene.client("a")
    for size in (6, 8, 10):
        scene.pass_time(1)
        scene.change_topics(t=size)
        missed = scene.beat("a", 1, **(SUBSCRIBED | {"owned": client.owned}))
        assert (missed.error, missed.epoch) == (ErrorCode.NONE, 2)
    heard = scene.beat("a", 2, owned=missed.assignment)
    assert (heard.epoch, len(heard.assignment or NOTHING)) == (4, 10)


def test_a_member_that_missed_two_answers_gives_up_what_others_are_to_have(scene: Scene) -> None:
    client = scene.client("a")
    scene.pass_time(1)
    scene.change_topics(t=6)
    scene.beat("a", 1)
    scene.pass_time(1)
    other = scene.client("b")
    told = scene.beat("a", 1, **(SUBSCRIBED | {"owned": client.owned}))
    assert (told.error, told.epoch) == (ErrorCode.NONE, 2)
    client.epoch, client.owned, client.acknowledges = 2, told.assignment or NOTHING, True
    scene.settle(client, other)
    assert sorted([*client.indexes, *other.indexes]) == list(range(6))
    assert len(other.owned) == 3


def test_the_epoch_before_is_fenced_if_whoever_sends_it_has_what_the_member_has_not(
    scene: Scene,
) -> None:
    scene.client("a")
    scene.pass_time(1)
    scene.change_topics(t=6)
    scene.beat("a", 1)
    other = frozenset({(b"u", 0)})
    assert scene.refusal("a", 1, owned=other) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_joins_again_has_nothing_and_gets_its_own_back(scene: Scene) -> None:
    client = scene.client("a")
    other = scene.client("b")
    scene.settle(client, other)
    before = client.owned
    epoch = scene.group.epoch
    client.join()
    assert client.owned == before
    assert scene.group.epoch == epoch


def test_what_a_member_had_is_free_when_it_joins_again_and_is_to_have_less(scene: Scene) -> None:
    first, second = scene.client("a"), scene.client("b")
    scene.pass_time(1)
    first.join()
    assert len(first.owned) == 2
    second.beat()
    assert len(second.owned) == 2


# Leaving


@pytest.mark.parametrize("epoch", [-1, -2, 0, 1])
def test_what_a_member_said_before_it_connected_anew_does_not_count(
    epoch: int, scene: Scene
) -> None:
    """Librdkafka gives up waiting after the interval, disconnects, and goes on as the same member.

    The broker may read the former connection later: there, others were waited for.
    """
    scene.beat("a", 0, **SUBSCRIBED, instance_id="i", connection=7)
    again = scene.beat("a", 0, **SUBSCRIBED, instance_id="i", connection=9)
    scene.beat("a", again.epoch, instance_id="i", owned=again.assignment, connection=9)
    late = scene.refusal("a", epoch, **SUBSCRIBED, instance_id="i", connection=7)
    assert late is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not scene.saved
    stays = scene.beat("a", again.epoch, instance_id="i", connection=9)
    assert (stays.error, stays.epoch, stays.assignment) == (ErrorCode.NONE, again.epoch, None)
    assert scene.refusal("a", -1, instance_id="i", connection=9) is ErrorCode.NONE
    assert scene.refusal("a", 0, **SUBSCRIBED, connection=8) is ErrorCode.NONE


@pytest.mark.parametrize("epoch", [-1, -2, 0])
@pytest.mark.parametrize("how", ["new", "back", "of another instance"])
def test_nor_does_what_comes_after_the_first_that_is_heard_of_it(
    how: str, epoch: int, scene: Scene
) -> None:
    """The join that it gave up waiting for may be read after the one that it sent then."""
    if how == "back":
        scene.client("former", instance_id="i").leave(-2)
    elif how == "of another instance":
        scene.beat("a", 0, **SUBSCRIBED, connection=5)
    scene.beat("a", 0, **SUBSCRIBED, instance_id="i", connection=9)
    late = scene.refusal("a", epoch, **SUBSCRIBED, instance_id="i", connection=7)
    assert late is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not scene.saved


def test_somebody_else_under_the_name_of_a_member_does_not_keep_it_from_being_heard(
    scene: Scene,
) -> None:
    client = scene.client("a")
    stranger = scene.refusal("a", client.epoch + 1, connection=9)
    assert stranger is ErrorCode.FENCED_MEMBER_EPOCH
    assert client.beat().error is ErrorCode.NONE


def test_whoever_takes_the_group_over_lets_a_member_go_that_joined_elsewhere(scene: Scene) -> None:
    scene.beat("a", 0, **SUBSCRIBED, connection=9)
    scene.restart()
    assert scene.refusal("a", -1, connection=1) is ErrorCode.NONE


def test_what_a_member_had_goes_to_others_when_it_leaves(scene: Scene) -> None:
    first, second = scene.client("a"), scene.client("b")
    scene.settle(first, second)
    assert first.leave().epoch == -1
    scene.pass_time(1)
    second.beat()
    assert second.indexes == [0, 1, 2, 3]


def test_a_group_without_members_is_empty_and_stays(scene: Scene) -> None:
    scene.client("a").leave()
    assert state(scene) is GroupState.EMPTY
    assert scene.group.is_vacant
    scene.pass_time(100)
    assert scene.group.wake_at == math.inf
    assert state(scene) is GroupState.EMPTY


def test_a_member_that_is_silent_is_removed(scene: Scene) -> None:
    scene.client("a")
    scene.pass_time(44.9)
    assert scene.beat("a", 1).error is ErrorCode.NONE
    scene.pass_time(44.9)
    assert len(scene.group.members) == 1
    scene.pass_time(0.2)
    assert not scene.group.members
    assert scene.saved
    assert scene.refusal("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_in_time_is_removed(scene: Scene) -> None:
    first = scene.client("a", rebalance_timeout_ms=20_000)
    second = scene.client("b")
    scene.pass_time(1)
    for _ in range(3):
        first.beat(owned=None)
        second.beat()
        scene.pass_time(9)
    assert scene.refusal("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    second.beat()
    assert second.indexes == [0, 1, 2, 3]


def test_the_move_to_another_state_is_told_with_its_reason(scene: Scene) -> None:
    scene.client("a")
    scene.pass_time(46)
    (moved,) = [effect for effect in scene.effects if isinstance(effect, Moved)]
    assert (moved.old, moved.new) == ("Stable", "Empty")
    assert "silent" in moved.reason


# Static members


def test_a_static_member_that_goes_for_a_while_finds_its_partitions_again(scene: Scene) -> None:
    first, other = scene.client("a", instance_id="i"), scene.client("b")
    scene.settle(first, other)
    before, epoch = first.owned, scene.group.epoch
    assert first.leave(-2).epoch == -2
    other.beat()
    scene.pass_time(10)
    other.beat()
    assert len(other.owned) == 2
    successor = scene.client("c", instance_id="i")
    assert successor.owned == before
    assert scene.group.epoch == epoch
    assert scene.refusal("a", 2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_is_removed(scene: Scene) -> None:
    first, other = scene.client("a", instance_id="i"), scene.client("b")
    scene.settle(first, other)
    first.leave(-2)
    scene.pass_time(40)
    other.beat()
    scene.pass_time(10)
    other.beat()
    assert other.indexes == [0, 1, 2, 3]


def test_two_that_run_under_one_instance_id_do_not_both_get_in(scene: Scene) -> None:
    scene.client("a", instance_id="i")
    refused = scene.refusal("b", 0, instance_id="i", **SUBSCRIBED)
    assert refused is ErrorCode.UNRELEASED_INSTANCE_ID
    assert scene.beat("a", 1, instance_id="i").error is ErrorCode.NONE


def test_a_static_member_that_restarts_under_its_own_member_id_continues(scene: Scene) -> None:
    client = scene.client("a", instance_id="i")
    before = client.owned
    client.leave(-2)
    client.join()
    assert client.owned == before


def test_what_a_static_member_that_is_away_is_not_to_have_is_free_at_once(scene: Scene) -> None:
    first = scene.client("a", instance_id="i")
    first.leave(-2)
    second = scene.client("b")
    scene.pass_time(1)
    second.beat()
    assert len(second.owned) == 2


def test_an_instance_id_that_nobody_has_is_unknown(scene: Scene) -> None:
    scene.client("a")
    assert scene.refusal("a", 1, instance_id="j") is ErrorCode.UNKNOWN_MEMBER_ID


# Subscriptions


def test_a_changed_subscription_is_assigned_anew() -> None:
    scene = Scene(t=2, u=2)
    client = scene.client("a")
    client.beat()
    scene.pass_time(1)
    client.beat(topics=("u",))
    client.beat()
    assert client.owned == {(b"u", 0), (b"u", 1)}


def test_a_topic_that_comes_grows_or_goes_is_assigned_anew(scene: Scene) -> None:
    client = scene.client("a", "t", "later")
    scene.settle(client)
    scene.change_topics(later=1)
    scene.settle(client)
    assert (b"later", 0) in client.owned
    scene.change_topics(later=2)
    scene.settle(client)
    assert (b"later", 1) in client.owned
    scene.change_topics(later=0)
    scene.settle(client)
    assert {topic for topic, _ in client.owned} == {b"t"}


def test_topics_that_nobody_reads_change_nothing(scene: Scene) -> None:
    scene.client("a")
    scene.change_topics(other=3)
    assert not scene.saved
    assert scene.group.epoch == 1


def test_a_pattern_matches_topics_that_come_later_too() -> None:
    scene = Scene(other=1)
    scene.change_topics(**{"orders-eu": 1})
    client = scene.client("a", topics=None, pattern="orders-.*")
    assert client.owned == {(b"orders-eu", 0)}
    scene.change_topics(**{"orders-us": 1})
    scene.settle(client)
    assert client.owned == {(b"orders-eu", 0), (b"orders-us", 0)}
    assert scene.group.is_subscribed("orders-us")
    assert not scene.group.is_subscribed("other")


class Sees(NamedTuple):
    """A client that may know of these topics alone."""

    topics: frozenset[str]

    def sees(self, topic: str, /) -> bool:
        return topic in self.topics


def test_a_pattern_matches_what_its_member_may_know_of() -> None:
    scene = Scene(ta=1, tb=1)
    sight = Sees(frozenset({"ta", "tc"}))
    client = scene.client("a", topics=None, pattern="t.", sight=sight)
    assert client.owned == {(b"ta", 0)}
    scene.change_topics(tc=1, td=1)
    scene.pass_time(1)
    for _ in range(3):
        client.beat(sight=sight)
    assert client.owned == {(b"ta", 0), (b"tc", 0)}


def test_what_a_member_may_not_know_of_any_more_is_taken_from_it() -> None:
    scene = Scene(ta=1, tb=1)
    client = scene.client("a", topics=None, pattern="t.")
    assert client.owned == {(b"ta", 0), (b"tb", 0)}
    sight = Sees(frozenset({"tb"}))
    scene.pass_time(1)
    for _ in range(3):
        client.beat(sight=sight)
    assert client.owned == {(b"tb", 0)}
    epoch = scene.group.epoch
    client.beat(sight=Sees(frozenset({"tb"})))  # the same rules
    assert scene.group.epoch == epoch


def test_names_and_a_pattern_add_up_and_an_empty_pattern_is_none() -> None:
    scene = Scene(t=1, u=1)
    client = scene.client("a", "t", pattern="u")
    assert client.owned == {(b"t", 0), (b"u", 0)}
    scene.pass_time(1)
    client.beat(pattern="")
    client.beat()
    assert client.owned == {(b"t", 0)}


def test_topics_that_a_pattern_matches_later_begin_one_epoch() -> None:
    """The names of new topics come first; what patterns match of them follows."""
    scene = Scene(ta=1)
    scene.client("a", topics=None, pattern="t.")
    scene.client("b", "tb")
    epoch = scene.group.epoch
    scene.topics.sizes["tb"] = 1
    scene.group.topics_changed((), scene.now)
    assert scene.group.epoch == epoch + 1
    scene.group.topics_changed((), scene.now)
    assert scene.group.epoch == epoch + 1


# Assignors


def test_the_assignor_is_the_one_that_most_members_ask_for() -> None:
    scene = Scene(t=4, u=4)
    assert scene.group.assignor == "uniform"
    clients = [
        scene.client(name, "t", "u", assignor=assignor)
        for name, assignor in (("a", "range"), ("b", "range"), ("c", None))
    ]
    assert scene.group.assignor == "range"
    scene.settle(*clients)
    for client in clients:
        of_t = {index for topic, index in client.owned if topic == b"t"}
        assert of_t == {index for topic, index in client.owned if topic == b"u"}


def test_an_assignor_that_the_broker_has_not_is_refused() -> None:
    scene = Scene(Settings(assignors=("uniform",)))
    refused = scene.refusal("a", 0, **SUBSCRIBED, assignor="range")
    assert refused is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert not scene.group.members


# Offsets


def test_only_members_in_their_epoch_commit_and_read_offsets(scene: Scene) -> None:
    admit, fetch = scene.group.admit_commit, scene.group.admit_fetch
    assert admit("", None, -1, scene.now) is ErrorCode.NONE
    scene.client("a", instance_id="i")
    assert admit("", None, -1, scene.now) is ErrorCode.UNKNOWN_MEMBER_ID
    assert admit("a", None, 1, scene.now) is ErrorCode.NONE
    assert admit("a", "i", 1, scene.now) is ErrorCode.NONE
    assert admit("b", "i", 1, scene.now) is ErrorCode.FENCED_INSTANCE_ID
    assert admit("a", None, 2, scene.now) is ErrorCode.STALE_MEMBER_EPOCH
    assert admit("b", None, 1, scene.now) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch(None, -1) is ErrorCode.NONE
    assert fetch("a", 1) is ErrorCode.NONE
    assert fetch("a", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("b", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_uses_offsets_in_the_epoch_that_it_knows_until_it_hears_of_the_next(
    scene: Scene,
) -> None:
    """One that leaves may never hear of it, and what it has read would be read again."""
    client = scene.client("a")
    scene.pass_time(1)
    scene.change_topics(t=6)
    missed = scene.beat("a", 1)
    admit, fetch = scene.group.admit_commit, scene.group.admit_fetch
    assert [admit("a", None, epoch, scene.now) for epoch in (1, missed.epoch)] == [0, 0]
    assert [fetch("a", epoch) for epoch in (1, missed.epoch)] == [0, 0]
    for wrong in (0, -1, missed.epoch + 1):
        assert admit("a", None, wrong, scene.now) is ErrorCode.STALE_MEMBER_EPOCH
        assert fetch("a", wrong) is ErrorCode.STALE_MEMBER_EPOCH
    client.epoch, client.owned = missed.epoch, missed.assignment or NOTHING
    other = scene.client("b")
    scene.settle(client, other)
    gave_up = client.epoch
    assert gave_up == missed.epoch + 1
    assert admit("a", None, gave_up, scene.now) is ErrorCode.NONE
    assert admit("a", None, missed.epoch, scene.now) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("a", missed.epoch) is ErrorCode.STALE_MEMBER_EPOCH


def test_a_member_comes_to_another_epoch_each_time_that_it_gives_something_up() -> None:
    """Otherwise a commit that is late would count though somebody else has what it is of."""
    scene = Scene(t=6)
    client = scene.client("a")
    scene.beat("b", 0, **SUBSCRIBED)
    scene.pass_time(1)
    client.beat()
    assert (client.epoch, len(client.owned)) == (1, 3)
    scene.beat("c", 0, **SUBSCRIBED)
    scene.pass_time(1)
    admit = scene.group.admit_commit
    for epoch, left in ((2, 2), (3, 2)):
        assert admit("a", None, epoch - 1, scene.now) is ErrorCode.NONE
        client.beat()
        assert (client.epoch, len(client.owned)) == (epoch, left)
        assert admit("a", None, epoch - 1, scene.now) is ErrorCode.STALE_MEMBER_EPOCH
    assert state_of(scene, "a") is MemberState.STABLE


@pytest.mark.parametrize("how", ["joins again", "leaves for a while", "is restored"])
def test_only_the_present_epoch_counts_of_a_member_that(how: str, scene: Scene) -> None:
    scene.client("a", instance_id="i")
    scene.pass_time(1)
    scene.change_topics(t=6)
    epoch = scene.beat("a", 1).epoch
    if how == "joins again":
        epoch = scene.client("a", "t", "u", instance_id="i").epoch
    elif how == "leaves for a while":
        scene.clients["a"].leave(-2)
    else:
        scene.restart()
    admit = scene.group.admit_commit
    assert admit("a", "i", 1, scene.now) is ErrorCode.STALE_MEMBER_EPOCH
    assert admit("a", "i", -1, scene.now) is ErrorCode.STALE_MEMBER_EPOCH
    if how != "leaves for a while":
        assert admit("a", "i", epoch, scene.now) is ErrorCode.NONE


# Restarts of the coordinator


def test_a_restart_changes_nothing_for_members(scene: Scene) -> None:
    first, second = scene.client("a", instance_id="i", rack="r"), scene.client("b", pattern="t.*")
    scene.settle(first, second)
    before = scene.group.nodes()
    scene.restart()
    assert scene.group.nodes() == before
    assert state(scene) is GroupState.STABLE
    assert first.beat().error is ErrorCode.NONE
    assert second.beat().error is ErrorCode.NONE
    assert not set(first.owned) & set(second.owned)


@pytest.mark.parametrize("said", [{}, {"topics": None, "pattern": "t.*"}])
def test_partitions_that_came_amid_a_restart_are_assigned_after_it(
    scene: Scene, said: dict[str, Any]
) -> None:
    client = scene.client("a", **said)
    scene.settle(client)
    assert client.indexes == [0, 1, 2, 3]
    scene.topics.sizes["t"] = 6  # and nobody is there to hear of it
    scene.restart()
    scene.pass_time(1)
    assert scene.saved
    client.beat()
    assert client.indexes == [0, 1, 2, 3, 4, 5]


def test_so_are_those_of_a_change_that_was_stored_in_part(scene: Scene) -> None:
    first, second = scene.client("a"), scene.client("b")
    scene.settle(first, second)
    before = dict(scene.group.nodes())
    scene.change_topics(t=8)
    nodes = {**before, "consumer": scene.group.nodes()["consumer"]}
    scene.group.nodes = lambda: nodes  # type: ignore[method-assign]
    scene.restart()
    scene.settle(first, second)
    assert sorted(first.indexes + second.indexes) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_what_is_not_given_up_yet_stays_with_whoever_has_it_after_a_restart(scene: Scene) -> None:
    first, second = scene.client("a"), scene.client("b")
    scene.pass_time(1)
    told = first.beat()
    scene.restart()
    assert not second.beat().assignment
    first.beat(owned=told.assignment)
    second.beat()
    assert len(second.owned) == 2
    scene.pass_time(46)
    assert not scene.group.members  # the sessions of those that died with it end


def test_half_of_a_change_leaves_no_partition_with_two_members(scene: Scene) -> None:
    """The store had taken what the second member got, and not what the first gave up."""
    first, second = scene.client("a"), scene.client("b")
    scene.settle(first)
    before = dict(scene.group.nodes())
    second.beat()
    mixed = {**before, "consumer/b": scene.group.nodes()["consumer/b"]}
    stale = {**scene.group.nodes(), "consumer/a": before["consumer/a"]}
    for nodes in (mixed, stale):
        scene.group.nodes = lambda nodes=nodes: nodes  # type: ignore[method-assign, misc]
        scene.restart()
        held = [partition for one in scene.group.members for partition in one.held]
        assert len(held) == len(set(held))


def test_a_dead_group_refuses_everything(scene: Scene) -> None:
    scene.client("a")
    scene.group.dissolve(ErrorCode.NOT_COORDINATOR)
    assert state(scene) is GroupState.DEAD
    assert scene.refusal("a", 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.group.tick(1e9) == []
    assert scene.group.topics_changed(["t"], 0) == []
    assert scene.group.admit_commit("a", None, 1, 0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
