"""Every partition is read, every member busy, and nothing moves without need."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.share.assignor import Partitions, assign, least_read

A, B = b"a" * 16, b"b" * 16


def partitions(topic: bytes, *indexes: int) -> Partitions:
    return frozenset((topic, index) for index in indexes)


def test_one_member_reads_all() -> None:
    assert assign({"m": [A, B]}, {A: 2, B: 1}, {}) == {"m": partitions(A, 0, 1) | partitions(B, 0)}


def test_partitions_are_spread_over_members() -> None:
    assigned = assign({"m": [A], "n": [A]}, {A: 5}, {})
    assert sorted(map(len, assigned.values())) == [2, 3]
    assert frozenset.union(*assigned.values()) == partitions(A, 0, 1, 2, 3, 4)


def test_members_beyond_the_partitions_share_them_evenly() -> None:
    assigned = assign({f"m{i}": [A] for i in range(10)}, {A: 3}, {})
    assert all(len(some) == 1 for some in assigned.values())
    readers = Counter(one for some in assigned.values() for one in some)
    assert sorted(readers.values()) == [3, 3, 4]


def test_a_member_reads_only_topics_that_it_subscribes_to() -> None:
    assigned = assign({"m": [A], "n": [B]}, {A: 2, B: 2}, {})
    assert assigned == {"m": partitions(A, 0, 1), "n": partitions(B, 0, 1)}


def test_a_topic_that_does_not_exist_gives_nothing() -> None:
    assert assign({"m": [A]}, {}, {}) == {"m": frozenset()}


def test_a_member_that_joins_takes_no_more_than_its_share() -> None:
    before = {"m": partitions(A, 0, 1, 2, 3)}
    assigned = assign({"m": [A], "a": [A]}, {A: 4}, before)
    assert assigned["m"] < before["m"]
    assert len(assigned["a"]) == 2


def test_a_member_that_leaves_changes_only_who_reads_in_its_place() -> None:
    before = {"m": partitions(A, 0), "n": partitions(A, 1), "o": partitions(A, 2)}
    assigned = assign({"n": [A], "o": [A]}, {A: 3}, before)
    assert before["n"] <= assigned["n"]
    assert before["o"] <= assigned["o"]


def test_those_who_share_keep_what_they_share() -> None:
    members = {f"m{i}": [A] for i in range(6)}
    before = assign(members, {A: 2}, {})
    assert assign(members, {A: 2}, before) == before


@given(
    subscribed=st.dictionaries(
        st.sampled_from("klmnopq"), st.sets(st.sampled_from([A, B])), min_size=1
    ),
    sizes=st.fixed_dictionaries({A: st.integers(1, 9), B: st.integers(1, 9)}),
    others=st.sets(st.sampled_from("klmnopq")),
)
def test_whatever_the_members(
    subscribed: dict[str, set[bytes]], sizes: dict[bytes, int], others: set[str]
) -> None:
    before = assign({key: [A] for key in others}, sizes, {}) if others else {}
    assigned = assign(subscribed, sizes, before)
    for member, some in assigned.items():
        assert {topic for topic, _ in some} <= subscribed[member]
        assert some or not subscribed[member]
    for topic, size in sizes.items():
        if any(topic in topics for topics in subscribed.values()):
            read = {index for some in assigned.values() for name, index in some if name == topic}
            assert read == set(range(size))
    assert assign(subscribed, sizes, before) == assigned


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ([], (A, 0)),
        ([partitions(A, 0)], (A, 1)),
        ([partitions(A, 0, 1), partitions(B, 0)], (A, 0)),
    ],
)
def test_the_partition_with_the_fewest_readers(
    read: list[Partitions], expected: tuple[bytes, int]
) -> None:
    assert least_read([A, B], {A: 2, B: 1}, [*read, partitions(B, 0)]) == expected


def test_no_partition_has_the_fewest_readers_where_there_is_none() -> None:
    assert least_read([A], {}, []) is None
