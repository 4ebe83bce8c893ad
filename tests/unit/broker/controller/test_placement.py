"""Replicas are spread evenly, and explicit assignments are checked."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.controller.placement import check_assignment, place, room, sharing
from qbus.errors import ApiError, ErrorCode


@given(
    brokers=st.sets(st.integers(0, 1000), min_size=1, max_size=12),
    first=st.integers(0, 50),
    count=st.integers(1, 60),
    data=st.data(),
)
def test_every_partition_gets_different_brokers_and_every_broker_its_share(
    brokers: set[int], first: int, count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(dict.fromkeys(brokers), first, count, factor, Random(data.draw(st.integers())))
    assert list(placed) == list(range(first, first + count))
    for replicas in placed.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= brokers
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1


def test_all_replicas_follow_the_leader() -> None:
    placed = place(dict.fromkeys(range(5)), 0, 100, 2, Random(1))
    followers = {replicas[1] for replicas in placed.values() if replicas[0] == 3}
    assert followers == {0, 1, 2, 4}


def test_topics_do_not_all_begin_with_the_same_broker() -> None:
    random = Random(1)
    assert len({place(dict.fromkeys(range(5)), 0, 1, 1, random)[0] for _ in range(50)}) == 5


def test_more_replicas_than_brokers_cannot_be_placed() -> None:
    with pytest.raises(ApiError, match="3 replicas need as many brokers, there are 2") as refused:
        place(dict.fromkeys((1, 2)), 0, 1, 3, Random(1))
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@given(
    racks=st.dictionaries(st.integers(0, 30), st.sampled_from("abcd"), min_size=1, max_size=12),
    count=st.integers(1, 60),
    data=st.data(),
)
def test_as_many_racks_as_can_be_have_a_replica_and_leaders_are_even(
    racks: dict[int, str], count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    placed = place(dict(racks), 0, count, factor, Random(data.draw(st.integers())))
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        covered = {racks[broker] for broker in replicas}
        assert len(covered) == min(factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in racks) <= 1


def test_replicas_are_even_over_brokers_where_racks_are() -> None:
    racks: dict[int, str | None] = {broker: "abc"[broker % 3] for broker in range(6)}
    placed = place(racks, 0, 60, 3, Random(1))
    assert set(Counter(one for some in placed.values() for one in some).values()) == {30}
    followers = {one for some in placed.values() if some[0] == 0 for one in some[1:]}
    assert followers == {1, 2, 4, 5}, "of the other racks, each in turn"


def test_a_broker_without_a_rack_makes_racks_count_for_nothing() -> None:
    racks = {0: "a", 1: "a", 2: None}
    assert place(racks, 0, 6, 2, Random(3)) == place(dict.fromkeys(racks), 0, 6, 2, Random(3))


def test_more_partitions_go_on_where_the_others_ended() -> None:
    brokers = dict.fromkeys(range(4))
    before = place(brokers, 0, 3, 2, Random(1))
    leaders = [some[0] for some in before.values()]
    added = place(brokers, 3, 5, 2, Random(2), before[0])
    leaders += [some[0] for some in added.values()]
    assert Counter(leaders) == dict.fromkeys(range(4), 2)
    gone = place(brokers, 3, 5, 2, Random(2), (9, 1))
    assert len(gone) == 5, "whoever led the first one is not there any more"


def test_takes_an_assignment_in_order() -> None:
    wanted = {3: [2, 1], 2: [1, 2]}
    assert list(check_assignment(wanted, 2, {1, 2, 3}).items()) == [(2, (1, 2)), (3, (2, 1))]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({}, "at least one replica"),
        ({0: []}, "at least one replica"),
        ({1: [1]}, "numbered from 0 on"),
        ({0: [1], 2: [1]}, "without a gap"),
        ({-1: [1], 0: [1]}, "numbered from 0 on"),
        ({0: [1], 1: [1, 2]}, "as many replicas"),
        ({0: [1, 1]}, "a broker twice"),
        ({0: [1, 9]}, r"not there: \[9\]"),
        ({0: [-1]}, r"not there: \[-1\]"),
    ],
)
def test_refuses_an_assignment_that_cannot_be(wanted: dict[int, list[int]], why: str) -> None:
    with pytest.raises(ApiError, match=why) as refused:
        check_assignment(wanted, 0, {1, 2})
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


MACHINES = {1: "a", 2: "a", 3: "b", 4: "b"}


@given(
    machines=st.dictionaries(st.integers(0, 20), st.sampled_from("abcd"), max_size=10),
    others=st.sets(st.integers(21, 30), min_size=1, max_size=4),
    racks=st.data(),
)
def test_no_two_replicas_of_a_partition_share_a_machine(
    machines: dict[int, str], others: set[int], racks: st.DataObject
) -> None:
    brokers = [*machines, *others]
    places = len(set(machines.values())) + len(others)
    assert room(brokers, machines) == places
    factor = racks.draw(st.integers(1, places))
    known = {one: racks.draw(st.sampled_from(["x", "y", None])) for one in brokers}
    for replicas in place(known, 0, 30, factor, Random(1), machines=machines).values():
        assert len(set(replicas)) == factor
        assert sharing(replicas, machines) is None


def test_racks_count_where_machines_leave_a_choice() -> None:
    racks = {1: "x", 2: "x", 3: "y", 4: "y", 5: "x"}
    placed = place(dict(racks), 0, 20, 2, Random(1), machines=MACHINES)
    for replicas in placed.values():
        assert {racks[one] for one in replicas} == {"x", "y"}


def test_more_replicas_than_machines_cannot_be_placed() -> None:
    with pytest.raises(ApiError, match="3 replicas need as many machines, there are 2") as refused:
        place(dict.fromkeys(MACHINES), 0, 1, 3, Random(1), machines=MACHINES)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_an_assignment_to_one_machine_is_refused() -> None:
    assert check_assignment({0: [1, 3]}, 0, MACHINES, MACHINES) == {0: (1, 3)}
    with pytest.raises(ApiError, match=r"partition 1: brokers \[4, 3\] run on one machine"):
        check_assignment({0: [1, 3], 1: [4, 3]}, 0, MACHINES, MACHINES)
