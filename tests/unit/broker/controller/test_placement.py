"""Replicas are spread evenly, and explicit assignments are checked."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.controller.placement import check_assignment, place
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
    placed = place(brokers, first, count, factor, Random(data.draw(st.integers())))
    assert list(placed) == list(range(first, first + count))
    for replicas in placed.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= brokers
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1


def test_what_one_broker_leads_is_followed_by_all_the_others() -> None:
    placed = place(range(5), 0, 100, 2, Random(1))
    followers = {replicas[1] for replicas in placed.values() if replicas[0] == 3}
    assert followers == {0, 1, 2, 4}


def test_topics_do_not_all_begin_with_the_same_broker() -> None:
    random = Random(1)
    assert len({place(range(5), 0, 1, 1, random)[0] for _ in range(50)}) == 5


def test_more_replicas_than_brokers_cannot_be_placed() -> None:
    with pytest.raises(ApiError, match="3 replicas need as many brokers, there are 2") as refused:
        place({1, 2}, 0, 1, 3, Random(1))
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


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
