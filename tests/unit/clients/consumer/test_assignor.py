"""Ranges: every partition once, evenly, and to the same members as other clients say."""

from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from qbus.clients.consumer.assignor import Candidate, assign_ranges
from qbus.clients.types import TopicPartition

topics = st.sampled_from(["a", "b", "c"])
members = st.dictionaries(
    st.text("mnopq", min_size=1, max_size=3),
    st.sets(topics, max_size=3).map(sorted).map(tuple),
    min_size=1,
    max_size=6,
)
counts = st.dictionaries(topics, st.integers(0, 9), max_size=3)


class _AiokafkaCluster:
    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._counts[topic])) if self._counts.get(topic) else None


def assign(
    members: dict[str, tuple[str, ...]], counts: dict[str, int]
) -> dict[str, list[TopicPartition]]:
    return assign_ranges(
        [Candidate(name, None, wanted) for name, wanted in members.items()], counts
    )


def test_neighbours_and_the_first_get_one_more() -> None:
    assigned = assign({"m1": ("t",), "m0": ("t",)}, {"t": 5})
    assert assigned == {
        "m0": [("t", 0), ("t", 1), ("t", 2)],
        "m1": [("t", 3), ("t", 4)],
    }


def test_more_members_than_partitions() -> None:
    assert assign({"a": ("t",), "b": ("t",), "c": ("t",)}, {"t": 2}) == {
        "a": [("t", 0)],
        "b": [("t", 1)],
        "c": [],
    }


def test_static_members_come_first_in_order_of_their_instances() -> None:
    members = [
        Candidate("a", None, ("t",)),
        Candidate("b", "2", ("t",)),
        Candidate("c", "1", ("t",)),
    ]
    assert assign_ranges(members, {"t": 3}) == {"c": [("t", 0)], "b": [("t", 1)], "a": [("t", 2)]}


@given(members, counts)
def test_each_partition_that_someone_wants_goes_to_one_who_wants_it(
    members: dict[str, tuple[str, ...]], counts: dict[str, int]
) -> None:
    assigned = assign(members, counts)
    wanted = {topic for topics in members.values() for topic in topics}
    everything = [partition for partitions in assigned.values() for partition in partitions]
    assert sorted(everything) == sorted(
        TopicPartition(topic, index)
        for topic, count in counts.items()
        for index in range(count)
        if topic in wanted
    )
    for member, partitions in assigned.items():
        assert {partition.topic for partition in partitions} <= set(members[member])


@given(members, counts)
def test_as_aiokafka_assigns(members: dict[str, tuple[str, ...]], counts: dict[str, int]) -> None:
    theirs = RangePartitionAssignor.assign(
        _AiokafkaCluster(counts),
        {
            name: ConsumerProtocolMemberMetadata(0, list(wanted), b"")
            for name, wanted in members.items()
        },
    )
    assert {name: sorted(partitions) for name, partitions in assign(members, counts).items()} == {
        name: sorted(TopicPartition(*p) for p in assignment.partitions())
        for name, assignment in theirs.items()
    }
