"""The differences between two versions of a topic."""

from dataclasses import replace

import pytest

from qbus.broker.metadata.image import (
    Event,
    PartitionInfo,
    PartitionsChanged,
    Topic,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    differences,
    read_topic,
)
from qbus.metadata import Node
from qbus.metadata.errors import MalformedNode
from qbus.metadata.znodes import NO_LEADER, ConfigNode, PartitionStateNode, TopicNode

LED = PartitionInfo(1, 0, (1, 2), (1, 2))
TOPIC = Topic("t", b"1" * 16, (LED,))
GROWN = replace(TOPIC, partitions=(LED, LED), version=1)
SHRUNK_ISR = replace(TOPIC, partitions=(replace(LED, isr=(1,), version=1),))
CONFIGURED = replace(TOPIC, config={"flush.ms": "1"}, config_version=0)
RECREATED = replace(TOPIC, id=b"2" * 16)


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        (None, None, []),
        (TOPIC, TOPIC, []),
        (None, TOPIC, [TopicCreated(TOPIC)]),
        (TOPIC, None, [TopicDeleted(TOPIC)]),
        (TOPIC, RECREATED, [TopicDeleted(TOPIC), TopicCreated(RECREATED)]),
        (TOPIC, GROWN, [PartitionsChanged(GROWN, TOPIC)]),
        (TOPIC, SHRUNK_ISR, [PartitionsChanged(SHRUNK_ISR, TOPIC)]),
        (TOPIC, CONFIGURED, [TopicConfigChanged(CONFIGURED)]),
        (CONFIGURED, GROWN, [PartitionsChanged(GROWN, CONFIGURED), TopicConfigChanged(GROWN)]),
        (TOPIC, replace(TOPIC, version=9), []),
    ],
)
def test_differences_of_topics(
    before: Topic | None, after: Topic | None, events: list[Event]
) -> None:
    assert list(differences(before, after)) == events


def nodes(name: str = "t") -> dict[str, Node]:
    state = PartitionStateNode(2, 5, (2,), 1)
    return {
        TopicNode.path(name): Node(TopicNode(b"1" * 16, {0: (1, 2), 1: (2, 1)}).encode(), 3),
        f"{TopicNode.path(name)}/partitions": Node(b"", 0),
        PartitionStateNode.path(name, 0): Node(state.encode(), 7),
    }


def test_reads_a_topic_with_the_versions_of_its_nodes() -> None:
    config = Node(ConfigNode({"flush.ms": "1"}).encode(), 4)
    assert read_topic("t", nodes(), config) == Topic(
        "t",
        b"1" * 16,
        (
            PartitionInfo(2, 5, (1, 2), (2,), 7),
            PartitionInfo(NO_LEADER, -1, (2, 1), (), -1),
        ),
        {"flush.ms": "1"},
        3,
        4,
    )


def test_without_its_node_there_is_no_topic() -> None:
    assert read_topic("t", {}, None) is None
    assert read_topic("other", nodes(), None) is None


def test_a_malformed_topic_is_refused() -> None:
    bad = {TopicNode.path("bad"): Node(b"?", 0)}
    with pytest.raises(MalformedNode):
        read_topic("bad", bad, None)
