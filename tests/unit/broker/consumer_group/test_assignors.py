"""The assignors: all partitions, once each, evenly, and with few moves."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.consumer_group.assignors import (
    ASSIGNORS,
    Assignor,
    Partitions,
    Reader,
    range_,
    uniform,
)

NOTHING: Partitions = frozenset()


def reader(name: str, topics: str, current: Partitions = NOTHING) -> Reader:
    return Reader(name, None, frozenset(topic.encode() for topic in topics), current)


def sizes(**counts: int) -> dict[bytes, int]:
    return {name.encode(): count for name, count in counts.items()}


def indexes(partitions: Partitions, topic: str) -> list[int]:
    return sorted(index for name, index in partitions if name == topic.encode())


def groups() -> st.SearchStrategy[tuple[dict[str, str], dict[bytes, int]]]:
    subscriptions = st.dictionaries(
        st.sampled_from([f"m{n}" for n in range(8)]),
        st.sets(st.sampled_from("abcd")).map(lambda topics: "".join(sorted(topics))),
        min_size=1,
    )
    counts = st.dictionaries(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(1, 9))
    return st.tuples(subscriptions, counts)


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(groups())
def test_each_partition_goes_to_one_member_that_reads_its_topic(
    assign: Assignor, group: tuple[dict[str, str], dict[bytes, int]]
) -> None:
    subscriptions, counts = group
    assigned = assign([reader(name, topics) for name, topics in subscriptions.items()], counts)
    assert assigned.keys() == subscriptions.keys()
    given_out = Counter(one for partitions in assigned.values() for one in partitions)
    assert set(given_out.values()) <= {1}
    assert set(given_out) == {
        (topic, index)
        for topic, count in counts.items()
        if any(topic.decode() in topics for topics in subscriptions.values())
        for index in range(count)
    }
    for name, partitions in assigned.items():
        assert {topic.decode() for topic, _ in partitions} <= set(subscriptions[name])


@given(groups())
def test_uniform_no_partition_could_go_to_a_member_with_two_fewer(
    group: tuple[dict[str, str], dict[bytes, int]],
) -> None:
    subscriptions, counts = group
    assigned = uniform([reader(name, topics) for name, topics in subscriptions.items()], counts)
    for partitions in assigned.values():
        for topic, _ in partitions:
            least = min(
                len(assigned[name])
                for name, topics in subscriptions.items()
                if topic.decode() in topics
            )
            assert len(partitions) - least < 2


@given(groups())
def test_uniform_nothing_moves_without_a_change(
    group: tuple[dict[str, str], dict[bytes, int]],
) -> None:
    subscriptions, counts = group
    first = uniform([reader(name, topics) for name, topics in subscriptions.items()], counts)
    readers = [reader(name, topics, first[name]) for name, topics in subscriptions.items()]
    assert uniform(readers, counts) == first


def moved(before: Mapping[str, Partitions], after: Mapping[str, Partitions]) -> int:
    return sum(len(partitions - before.get(name, NOTHING)) for name, partitions in after.items())


def test_uniform_a_new_member_gets_its_share_and_nothing_else_moves() -> None:
    counts = sizes(t=100)
    before = uniform([reader(f"m{n}", "t") for n in range(4)], counts)
    readers = [reader(f"m{n}", "t", before[f"m{n}"]) for n in range(4)]
    after = uniform([*readers, reader("new", "t")], counts)
    assert sorted(map(len, after.values())) == [20] * 5
    assert moved(before, after) == 20


def test_uniform_only_what_a_member_had_moves_when_it_leaves() -> None:
    counts = sizes(t=10, u=10)
    before = uniform([reader(f"m{n}", "tu") for n in range(5)], counts)
    after = uniform([reader(f"m{n}", "tu", before[f"m{n}"]) for n in range(4)], counts)
    assert sorted(map(len, after.values())) == [5] * 4
    assert moved(before, after) == 4


def test_uniform_a_topic_that_grows_takes_nothing_away() -> None:
    before = uniform([reader("a", "t"), reader("b", "t")], sizes(t=4))
    readers = [reader("a", "t", before["a"]), reader("b", "t", before["b"])]
    after = uniform(readers, sizes(t=6))
    assert all(before[name] <= after[name] for name in before)


def test_uniform_a_thousand_members_of_ten_thousand_partitions_take_little_time() -> None:
    counts = {b"%d" % n: 10 for n in range(1000)}
    topics = frozenset(counts)
    members = [Reader(f"m{n}", None, topics, NOTHING) for n in range(999)]
    members.append(Reader("other", None, topics - {b"0"}, NOTHING))
    assigned = uniform(members, counts)
    assert {len(partitions) for partitions in assigned.values()} <= {9, 10, 11}


def test_range_gives_runs_and_the_first_members_one_more() -> None:
    assigned = range_([reader(name, "t") for name in ("c", "a", "b")], sizes(t=8))
    assert [indexes(assigned[name], "t") for name in "abc"] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_range_gives_the_same_runs_of_all_topics() -> None:
    assigned = range_([reader(name, "tu") for name in "ab"], sizes(t=4, u=4))
    for name in "ab":
        assert indexes(assigned[name], "t") == indexes(assigned[name], "u")


def test_range_orders_static_members_by_their_instance() -> None:
    topics = frozenset({b"t"})
    readers = [Reader("z", "1", topics, NOTHING), Reader("a", "2", topics, NOTHING)]
    assigned = range_(readers, sizes(t=2))
    assert indexes(assigned["z"], "t") == [0]
    restarted = [Reader("b", "1", topics, NOTHING), readers[1]]
    assert indexes(range_(restarted, sizes(t=2))["b"], "t") == [0]


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_without_members_or_topics_there_is_nothing_to_assign(assign: Assignor) -> None:
    assert assign([], sizes(t=3)) == {}
    assert assign([reader("a", "t")], {}) == {"a": NOTHING}
    assert assign([reader("a", "")], sizes(t=3)) == {"a": NOTHING}
