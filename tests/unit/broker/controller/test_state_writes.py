"""States of many partitions fit into transactions, whatever their topics are called."""

from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.broker.controller.elections import StateChange
from qbus.broker.controller.state_writes import MAX_BYTES, batches, change_of
from qbus.metadata import Op, Set
from qbus.metadata.feed import announce
from qbus.metadata.znodes import ChangeNode, PartitionStateNode
from qbus.metadata.zookeeper.plan import MAX_BYTES as TAKEN
from qbus.metadata.zookeeper.plan import plan, size


def change(topic: str, partition: int, replicas: int = 3) -> StateChange:
    state = PartitionStateNode(1, 4, tuple(range(replicas)), 7, tuple(range(replicas)))
    return StateChange(topic, partition, state, 3)


@settings(max_examples=25)
@given(
    name=st.integers(1, 249),
    count=st.integers(0, 2500),
    replicas=st.integers(1, 20),
    most=st.integers(1, 5000),
)
def test_each_part_is_what_zookeeper_takes(name: int, count: int, replicas: int, most: int) -> None:
    changes = [change(f"{number:x<{name}}", number, replicas) for number in range(count)]
    parts = list(batches(changes, most))
    assert [one for part in parts for one in part] == changes
    for part in parts:
        assert 0 < len(part) <= most
        sets: list[Op] = [
            Set(PartitionStateNode.path(one.topic, one.partition), one.state.encode(), one.version)
            for one in part
        ]
        ops = [*sets, announce(change_of(part).encode())]
        assert size(plan(ops, set()), prefix=60, acl=200) <= TAKEN


def test_few_are_written_together() -> None:
    changes = [change("t", number) for number in range(500)]
    assert list(batches(changes, 1000)) == [changes]
    assert MAX_BYTES < TAKEN


def test_the_feed_says_which_partitions_of_which_topics() -> None:
    changes = [change("t", 0), change("u", 5), change("t", 2)]
    assert change_of(changes) == ChangeNode(states={"t": (0, 2), "u": (5,)})
