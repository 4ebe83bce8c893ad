"""Round robin: every partition once, in turn, and to the same members as other clients say."""

from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given

from qbus.clients.group.assignors import RoundRobinAssignor
from tests.unit.clients.group.assignors.builders import (
    all_of,
    counts,
    member,
    members_of,
    subscriptions,
    topics_of,
    wanted_of,
)
from tests.unit.clients.group.assignors.test_range import AiokafkaCluster


def test_partitions_in_turn() -> None:
    found = RoundRobinAssignor().assign([member("b"), member("a")], topics_of({"t": 3}))
    assert found == {"a": [("t", 0), ("t", 2)], "b": [("t", 1)]}


def test_members_are_passed_over_for_what_they_do_not_want() -> None:
    members = [member("a", ["t"]), member("b", ["t", "u"]), member("c", ["u"])]
    found = RoundRobinAssignor().assign(members, topics_of({"t": 2, "u": 3}))
    assert found == {
        "a": [("t", 0)],
        "b": [("t", 1), ("u", 1)],
        "c": [("u", 0), ("u", 2)],
    }


def test_static_members_come_first() -> None:
    members = [member("a"), member("z", instance="i")]
    assert RoundRobinAssignor().assign(members, topics_of({"t": 1}))["z"] == [("t", 0)]


@given(subscriptions, counts)
def test_each_partition_once_as_aiokafka_assigns(
    wanted: dict[str, tuple[str, ...]], counts: dict[str, int]
) -> None:
    ours = RoundRobinAssignor().assign(members_of(wanted), topics_of(counts))
    assert all_of(ours) == wanted_of(wanted, counts)
    theirs = RoundRobinPartitionAssignor.assign(
        AiokafkaCluster(counts),
        {
            name: ConsumerProtocolMemberMetadata(0, list(topics), b"")
            for name, topics in wanted.items()
        },
    )
    assert {name: sorted(found) for name, found in ours.items()} == {
        name: sorted(assignment.partitions()) for name, assignment in theirs.items()
    }
