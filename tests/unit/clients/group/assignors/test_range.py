"""Ranges: every partition once, evenly, and to the same members as other clients say."""

from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from qbus.clients.group.assignors import Assignments, Candidate, RangeAssignor, Topics
from tests.unit.clients.group.assignors.builders import (
    all_of,
    counts,
    member,
    members_of,
    subscriptions,
    topics_of,
    wanted_of,
)

RACKS = ("r0", "r1", "r2")


def assign(members: list[Candidate], topics: Topics) -> Assignments:
    return RangeAssignor().assign(members, topics)


class AiokafkaCluster:
    """What aiokafka's assignors ask of a cluster."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._counts[topic])) if self._counts.get(topic) else None


def test_neighbours_and_the_first_get_one_more() -> None:
    assert assign([member("m1"), member("m0")], topics_of({"t": 5})) == {
        "m0": [("t", 0), ("t", 1), ("t", 2)],
        "m1": [("t", 3), ("t", 4)],
    }


def test_more_members_than_partitions() -> None:
    found = assign([member(name) for name in "abc"], topics_of({"t": 2}))
    assert found == {"a": [("t", 0)], "b": [("t", 1)], "c": []}


def test_static_members_come_first_in_order_of_their_instances() -> None:
    members = [member("a"), member("b", instance="2"), member("c", instance="1")]
    assert assign(members, topics_of({"t": 3})) == {
        "c": [("t", 0)],
        "b": [("t", 1)],
        "a": [("t", 2)],
    }


def test_names_are_in_the_order_of_java() -> None:
    beyond, below = "\U0001f600", "\uffee"  # as UTF-16 the first begins with 0xd83d
    assert assign([member(below), member(beyond)], topics_of({"t": 1}))[beyond] == [("t", 0)]


@given(subscriptions, counts)
def test_each_partition_that_someone_wants_goes_to_one_who_wants_it(
    wanted: dict[str, tuple[str, ...]], counts: dict[str, int]
) -> None:
    assigned = assign(members_of(wanted), topics_of(counts))
    assert all_of(assigned) == wanted_of(wanted, counts)
    for name, partitions in assigned.items():
        assert {partition.topic for partition in partitions} <= set(wanted[name])


@given(subscriptions, counts)
def test_as_aiokafka_assigns(wanted: dict[str, tuple[str, ...]], counts: dict[str, int]) -> None:
    theirs = RangePartitionAssignor.assign(
        AiokafkaCluster(counts),
        {
            name: ConsumerProtocolMemberMetadata(0, list(topics), b"")
            for name, topics in wanted.items()
        },
    )
    ours = assign(members_of(wanted), topics_of(counts))
    assert {name: sorted(found) for name, found in ours.items()} == {
        name: sorted(assignment.partitions()) for name, assignment in theirs.items()
    }


def racks(*of_partitions: str) -> list[frozenset[str]]:
    return [frozenset(part.split("+")) for part in of_partitions]


def test_partitions_go_to_members_beside_a_replica() -> None:
    members = [member("a", rack="r1"), member("b", rack="r0")]
    topics = {"t": racks("r0", "r0", "r1", "r1")}
    assert assign(members, topics) == {
        "a": [("t", 2), ("t", 3)],
        "b": [("t", 0), ("t", 1)],
    }


def test_balance_comes_before_nearness() -> None:
    members = [member("a", rack="r0"), member("b", rack="r1")]
    found = assign(members, {"t": racks("r0", "r0", "r0", "r1")})
    assert found == {"a": [("t", 0), ("t", 1)], "b": [("t", 2), ("t", 3)]}


def test_racks_do_not_matter_when_every_partition_is_in_all_of_them() -> None:
    members = [member("a", rack="r1"), member("b", rack="r0")]
    found = assign(members, {"t": racks("r0+r1", "r0+r1")})
    assert found == {"a": [("t", 0)], "b": [("t", 1)]}


def test_topics_of_one_size_stay_parted_alike() -> None:
    members = [member("a", ["t", "u"], rack="r1"), member("b", ["t", "u"], rack="r0")]
    topics = {"t": racks("r0", "r1"), "u": racks("r0+r1", "r0+r1")}
    assert assign(members, topics) == {
        "a": [("t", 1), ("u", 1)],
        "b": [("t", 0), ("u", 0)],
    }


@given(
    st.lists(st.sampled_from([None, *RACKS]), min_size=1, max_size=5),
    st.lists(
        st.lists(st.sets(st.sampled_from(RACKS), min_size=1).map(frozenset), max_size=8),
        max_size=4,
    ),
)
def test_with_racks_sizes_are_those_without(
    of_members: list[str | None], of_topics: list[list[frozenset[str]]]
) -> None:
    names = [f"t{number}" for number in range(len(of_topics))]
    topics = dict(zip(names, of_topics, strict=True))
    near = [member(str(n), names, rack=rack) for n, rack in enumerate(of_members)]
    found = assign(near, topics)
    assert all_of(found) == sorted(
        (name, index) for name, parts in topics.items() for index in range(len(parts))
    )
    for name, parts in topics.items():
        sizes = [sum(p.topic == name for p in partitions) for partitions in found.values()]
        assert max(sizes) - min(sizes) <= 1
        assert sum(sizes) == len(parts)
