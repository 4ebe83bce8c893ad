"""Sticky assignments: even, complete, and moved no more than that takes."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.clients.group.assignors import (
    Assignments,
    Assignor,
    CooperativeStickyAssignor,
    Previous,
    StickyAssignor,
)
from qbus.clients.types import TopicPartition
from tests.unit.clients.group.assignors.builders import (
    all_of,
    counts,
    member,
    member_names,
    members_of,
    rejoining,
    subscriptions,
    topics_of,
    wanted_of,
)

both = pytest.mark.parametrize("assignor", [StickyAssignor(), CooperativeStickyAssignor()])
names = st.sets(member_names, min_size=1, max_size=7)


def t(*indexes: int) -> list[TopicPartition]:
    return [TopicPartition("t", index) for index in indexes]


def settled(
    assignor: Assignor,
    wanted: Mapping[str, tuple[str, ...]],
    counts: Mapping[str, int],
    before: Assignments,
) -> Assignments:
    """What it comes to when members have let go what they had to: after two rebalances at most."""
    for generation in range(1, 4):
        members = rejoining(assignor, wanted, before, generation)
        found = assignor.assign(members, topics_of(counts))
        if not assignor.is_cooperative or all_of(found) == wanted_of(wanted, counts):
            return found
        before = found
    raise AssertionError(f"does not settle: {before}")


def chain_is_left(assigned: Assignments, wanted: Mapping[str, tuple[str, ...]], start: str) -> bool:
    """Whether moves from one member to the next could still even out ``start``'s load."""
    reached, waiting = {start}, [start]
    while waiting:
        giver = waiting.pop()
        topics = {partition.topic for partition in assigned[giver]}
        for name, theirs in wanted.items():
            if name not in reached and topics & set(theirs):
                reached.add(name)
                waiting.append(name)
    return any(len(assigned[name]) <= len(assigned[start]) - 2 for name in reached)


def check(
    assigned: Assignments, wanted: Mapping[str, tuple[str, ...]], counts: Mapping[str, int]
) -> None:
    assert all_of(assigned) == wanted_of(wanted, counts)
    for name, partitions in assigned.items():
        assert {partition.topic for partition in partitions} <= set(wanted[name])
        assert not chain_is_left(assigned, wanted, name)


@both
def test_the_first_assignment_is_dealt_out(assignor: Assignor) -> None:
    found = assignor.assign([member("b"), member("a")], topics_of({"t": 3}))
    assert found == {"a": t(0, 2), "b": t(1)}


@both
def test_a_member_that_joins_gets_its_share_and_nothing_else_moves(assignor: Assignor) -> None:
    wanted = {"a": ("t",), "b": ("t",), "c": ("t",)}
    found = settled(assignor, wanted, {"t": 6}, {"a": t(0, 2, 4), "b": t(1, 3, 5)})
    assert found == {"a": t(0, 2), "b": t(1, 3), "c": t(4, 5)}


@both
def test_what_a_member_leaves_goes_to_the_others(assignor: Assignor) -> None:
    found = settled(assignor, {"a": ("t",), "b": ("t",)}, {"t": 6}, {"a": t(0, 3), "b": t(1, 4)})
    assert found == {"a": t(0, 2, 3), "b": t(1, 4, 5)}


@both
def test_chains_of_moves_even_out_different_subscriptions(assignor: Assignor) -> None:
    wanted = {"a": ("x",), "b": ("x", "y"), "c": ("y",)}
    x, y = ([TopicPartition(name, i) for i in range(5)] for name in "xy")
    before = {"a": x[:3], "b": y[:2], "c": y[2:3]}
    found = settled(assignor, wanted, {"x": 3, "y": 3}, before)
    assert [len(found[name]) for name in "abc"] == [2, 2, 2]


@both
def test_of_several_what_nobody_had_before_moves(assignor: Assignor) -> None:
    wanted = {"a": ("x",), "b": ("x", "y"), "c": ("y",)}
    x, y = ([TopicPartition(name, i) for i in range(3)] for name in "xy")
    found = settled(assignor, wanted, {"x": 3, "y": 2}, {"a": x[2:], "b": y[:2], "c": []})
    assert x[2] in found["a"]
    assert [len(found[name]) for name in "abc"] == [2, 2, 1]


@both
@given(data=st.data())
def test_everything_is_shared_out_evenly(assignor: Assignor, data: st.DataObject) -> None:
    wanted = data.draw(subscriptions)
    sizes = data.draw(counts)
    check(assignor.assign(members_of(wanted), topics_of(sizes)), wanted, sizes)


@both
@given(data=st.data())
def test_it_stays_even_through_any_change(assignor: Assignor, data: st.DataObject) -> None:
    before_wanted, before_sizes = data.draw(subscriptions), data.draw(counts)
    before = assignor.assign(members_of(before_wanted), topics_of(before_sizes))
    wanted, sizes = data.draw(subscriptions), data.draw(counts)
    check(settled(assignor, wanted, sizes, before), wanted, sizes)


@both
@given(data=st.data())
def test_nothing_moves_without_a_change(assignor: Assignor, data: st.DataObject) -> None:
    wanted, sizes = data.draw(subscriptions), data.draw(counts)
    before = assignor.assign(members_of(wanted), topics_of(sizes))
    again = assignor.assign(rejoining(assignor, wanted, before), topics_of(sizes))
    assert again == before


@both
@given(before=names, after=names, size=st.integers(1, 30))
def test_with_equal_subscriptions_no_more_moves_than_balance_takes(
    assignor: Assignor, before: set[str], after: set[str], size: int
) -> None:
    held = assignor.assign(members_of(dict.fromkeys(before, ("t",))), topics_of({"t": size}))
    found = settled(assignor, dict.fromkeys(after, ("t",)), {"t": size}, held)
    kept = sum(len(set(held.get(name, ())) & set(found[name])) for name in after)
    least, larger = divmod(size, len(after))
    having = sorted((len(held.get(name, ())) for name in after), reverse=True)
    could_keep = sum(min(had, least + (n < larger)) for n, had in enumerate(having))
    assert kept == could_keep


def test_cooperative_partitions_wait_until_they_are_let_go() -> None:
    assignor = CooperativeStickyAssignor()
    members = [member("a", owned=t(0, 1), generation=1), member("b")]
    assert assignor.assign(members, topics_of({"t": 2})) == {"a": t(0), "b": []}
    members = [member("a", owned=t(0), generation=2), member("b", generation=2)]
    assert assignor.assign(members, topics_of({"t": 2})) == {"a": t(0), "b": t(1)}


@given(data=st.data())
def test_cooperative_members_are_given_nothing_that_another_says_it_has(
    data: st.DataObject,
) -> None:
    owned = st.lists(st.tuples(st.just("t"), st.integers(0, 9)), unique=True).map(
        lambda pairs: [TopicPartition(*pair) for pair in pairs]
    )
    claims = data.draw(st.dictionaries(member_names, st.tuples(owned, st.integers(-1, 3))))
    members = [
        member(name, owned=claimed, generation=generation)
        for name, (claimed, generation) in claims.items()
    ]
    found = CooperativeStickyAssignor().assign(members, topics_of({"t": 8}))
    for name, partitions in found.items():
        for other, (claimed, _) in claims.items():
            assert other == name or not set(partitions) & set(claimed)


def test_the_later_generation_owns_a_partition() -> None:
    data = StickyAssignor().user_data
    stale = member("a", user_data=data(Previous(tuple(t(0, 1, 2)), 1)))
    fresh = member("b", user_data=data(Previous(tuple(t(1, 2)), 2)))
    found = StickyAssignor().assign([stale, fresh], topics_of({"t": 3}))
    assert found == {"a": t(0), "b": t(1, 2)}


def test_two_owners_of_one_generation_count_as_none() -> None:
    members = [
        member("a", owned=t(0), generation=1),
        member("b", owned=t(0, 1), generation=1),
    ]
    assert CooperativeStickyAssignor().assign(members, topics_of({"t": 2})) == {"a": [], "b": t(1)}


def test_user_data_of_the_sticky_assignor_is_kafkas() -> None:
    data = StickyAssignor().user_data(Previous(tuple(t(3, 1)), 7))
    assert data == bytes.fromhex("00000001 0001 74 00000002 00000001 00000003 00000007")
    assert StickyAssignor().user_data(None) is None


def test_user_data_of_the_cooperative_assignor_is_its_generation() -> None:
    assert CooperativeStickyAssignor().user_data(Previous((), 7)) == b"\0\0\0\x07"
    assert CooperativeStickyAssignor().user_data(None) == b"\xff\xff\xff\xff"


def test_the_oldest_schema_has_no_generation() -> None:
    oldest = bytes.fromhex("00000001 0001 74 00000001 00000001")
    found = StickyAssignor().assign(
        [member("a"), member("b", user_data=oldest)], topics_of({"t": 2})
    )
    assert found == {"a": t(0), "b": t(1)}


@both
@given(rubbish=st.binary(max_size=20))
def test_user_data_that_makes_no_sense_is_nothing(assignor: Assignor, rubbish: bytes) -> None:
    found = assignor.assign([member("a", user_data=rubbish)], topics_of({"t": 2}))
    assert found == {"a": t(0, 1)}


@both
def test_partitions_go_to_members_beside_a_replica(assignor: Assignor) -> None:
    near = {"t": [frozenset({"r1"}), frozenset({"r1"}), frozenset({"r0"}), frozenset({"r0"})]}
    members = [member("a", rack="r0"), member("b", rack="r1")]
    assert assignor.assign(members, near) == {"a": t(2, 3), "b": t(0, 1)}


@both
def test_a_large_group_takes_no_long_time(assignor: Assignor) -> None:
    wanted = dict.fromkeys((f"member-{n:03}" for n in range(200)), ("t", "u"))
    before = assignor.assign(members_of(wanted), topics_of({"t": 1000, "u": 1000}))
    del wanted["member-007"]
    found = settled(assignor, wanted, {"t": 1000, "u": 1000}, before)
    assert {len(partitions) for partitions in found.values()} == {10, 11}
