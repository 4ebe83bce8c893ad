"""States of many partitions fit into transactions, whatever the lengths of topic names."""

from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.broker.controller.elections import StateChange
from qbus.broker.controller.state_writer import MAX_BYTES, batches, change_of, operations_of
from qbus.broker.metadata.image import Topic
from qbus.metadata import Check, Set
from qbus.metadata.feed import announce
from qbus.metadata.znodes import ChangeNode, PartitionStateNode
from qbus.metadata.zookeeper.transactions import MAX_BYTES as TAKEN
from qbus.metadata.zookeeper.transactions import Multi, plan


def change(name: str, partition: int, replicas: int = 3) -> StateChange:
    state = PartitionStateNode(1, 4, tuple(range(replicas)), 7, tuple(range(replicas)))
    topic = Topic(name, name.rjust(16).encode()[-16:], (), has_identity=True)
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
        ops = [*operations_of(part), announce(change_of(part).encode())]
        assert Multi(plan(ops, set()), "/" + "c" * 59, bytes(200)).size <= TAKEN


def test_few_are_written_together() -> None:
    changes = [change("t", number) for number in range(500)]
    assert list(batches(changes, 1000)) == [changes]
    assert MAX_BYTES < TAKEN


def test_each_topic_is_checked_once_and_before_its_states() -> None:
    changes = [change("t", 0), change("u", 5), change("t", 2)]
    operations = operations_of(changes)
    assert [type(one) for one in operations] == [Check, Check, Set, Set, Set]
    assert [one.path for one in operations[2:]] == [one.path for one in changes]


def test_the_feed_says_which_partitions_of_which_topics() -> None:
    changes = [change("t", 0), change("u", 5), change("t", 2)]
    assert change_of(changes) == ChangeNode(states={"t": (0, 2), "u": (5,)})
