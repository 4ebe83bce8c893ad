"""Who is in a group: an instance id has one member, and so has a partition."""

import pytest

from qbus.broker.consumer_group import Member, Partitions
from qbus.broker.consumer_group.roster import Roster
from qbus.errors import ApiError, ErrorCode

from .scene import NOTHING, Topics

P0, P1, P2 = ((b"t", index) for index in range(3))
NO_TOPIC: frozenset[str] = frozenset()


def of(*partitions: tuple[bytes, int]) -> Partitions:
    return frozenset(partitions)


@pytest.fixture
def roster() -> Roster:
    return Roster("g", Topics(t=3, ta=1))


def enter(roster: Roster, member_id: str, instance_id: str | None = None) -> Member:
    member = Member(member_id, instance_id, topics=frozenset({"t"}))
    roster.enter(member)
    return member


def refused(roster: Roster, member_id: str, instance_id: str | None = None) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        roster.get(member_id, instance_id)
    return caught.value.code


def test_a_member_is_found_by_its_id_and_by_that_of_its_instance(roster: Roster) -> None:
    member = enter(roster, "a", "i")
    other = enter(roster, "b")
    assert [*roster.members] == [member, other]
    assert (roster.find("a"), roster.find("c")) == (member, None)
    assert (roster.of_instance("i"), roster.of_instance("j")) == (member, None)
    assert roster.of_instance(None) is None
    assert roster.get("a", None) is roster.get("a", "i") is member


def test_whoever_is_none_or_not_the_one_of_the_instance_is_refused(roster: Roster) -> None:
    enter(roster, "a", "i")
    enter(roster, "b")
    assert refused(roster, "c") is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(roster, "a", "j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(roster, "b", "i") is ErrorCode.FENCED_INSTANCE_ID


def test_there_is_room_for_so_many(roster: Roster) -> None:
    enter(roster, "a")
    roster.check_room(2)
    with pytest.raises(ApiError, match="has 1 members") as caught:
        roster.check_room(1)
    assert caught.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_partition_is_free_for_whoever_holds_it_and_for_others_when_nobody_does(
    roster: Roster,
) -> None:
    first, second = enter(roster, "a"), enter(roster, "b")
    roster.set_held(first, of(P0), of(P1))
    for partition, is_free in ((P0, False), (P1, False), (P2, True)):
        assert roster.is_free(first, partition)
        assert roster.is_free(second, partition) is is_free
    roster.set_held(first, of(P0), NOTHING)
    assert roster.is_free(second, P1)
    roster.remove(first)
    assert roster.is_free(second, P0)
    assert roster.of_instance("i") is None


def test_two_do_not_hold_the_same(roster: Roster) -> None:
    first, second = enter(roster, "a"), enter(roster, "b")
    roster.set_held(first, of(P0), NOTHING)
    with pytest.raises(AssertionError):
        roster.set_held(second, of(P0), NOTHING)


def test_of_two_that_were_stored_with_the_same_the_later_has_it(roster: Roster) -> None:
    first = Member("a", assigned=of(P0, P1), revoking=of(P2))
    second = Member("b", assigned=of(P1, P2))
    roster.restore(first)
    roster.restore(second)
    assert (first.held, second.held) == (of(P0), of(P1, P2))
    assert not roster.is_free(first, P1)


def test_a_successor_has_the_place_and_the_partitions_under_another_id(roster: Roster) -> None:
    former = enter(roster, "a", "i")
    former.target = of(P0, P2)
    roster.set_held(former, of(P0), of(P1))
    member = roster.succeed(former, "b")
    assert [*roster.members] == [member]
    assert roster.of_instance("i") is member
    assert (member.member_id, member.target) == ("b", of(P0, P2))
    assert member.topics == {"t"}
    assert (member.assigned, member.revoking) == (of(P0, P1), NOTHING)
    other = enter(roster, "c")
    assert not roster.is_free(other, P1)


def test_what_is_to_be_stored_anew_is_noted(roster: Roster) -> None:
    member = enter(roster, "a")
    assert roster.has_changed
    for change in (
        lambda: roster.touch(member),
        lambda: roster.set_held(member, of(P0), NOTHING),
        lambda: roster.remove(member),
    ):
        roster.has_changed = False
        member.encoded = b"stored"
        change()
        assert roster.has_changed
    assert member.path


def test_a_pattern_adds_topics_to_a_subscription(roster: Roster) -> None:
    member = enter(roster, "a")
    member.pattern = "t."
    roster.match(member)
    assert member.matching == {"ta"}
    assert roster.subscription == {"t", "ta"}
    member.pattern = "("  # of another version, which understood it
    roster.match(member)
    assert (member.matching, roster.subscription) == (NO_TOPIC, {"t"})


def test_partitions_that_are_nobodys_target_are_left_out(roster: Roster) -> None:
    assert not roster.leaves_partitions_out()
    member = enter(roster, "a")
    assert roster.leaves_partitions_out()
    member.target = of(P0, P1, P2)
    assert not roster.leaves_partitions_out()
    member.topics = frozenset({"t", "gone"})
    assert not roster.leaves_partitions_out()
