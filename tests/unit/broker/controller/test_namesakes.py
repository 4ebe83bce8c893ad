"""A topic that was deleted and created again: a decision about the first never reaches the second.

Their nodes have the same paths and the same versions, and whoever decides has heard of nothing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qbus.broker.controller import (
    ConfigChange,
    Edit,
    EditKind,
    Growth,
    NewTopic,
    Reassignment,
    edit,
)
from qbus.broker.controller.elections import StateChange
from qbus.broker.controller.state_writer import StateWriter
from qbus.broker.metadata.image import BrokerInfo, Topic
from qbus.broker.partition.followers import Followers, Proposal
from qbus.broker.partition.isr_writing import Change, write
from qbus.broker.partition.partition import Partition
from qbus.config import TopicConfig
from qbus.metadata import Create, Delete, Node, Op
from qbus.metadata.znodes import TOPICS, ConfigNode, PartitionStateNode, TopicNode
from tests.support.metadata_plane import MetadataPlane, metadata_plane

OTHERS = (BrokerInfo(2, "b2", 9092), BrokerInfo(3, "b3", 9092))
STALE = PartitionStateNode(3, 7, (3,), 1)

Decide = Callable[[MetadataPlane], Awaitable[object]]


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    """A cache with an outdated topic ``t``."""
    async with metadata_plane(tmp_path, others=OTHERS) as plane:
        config = {"flush.ms": "1"}
        await plane.controller.create_topics([NewTopic("t", assignment={0: [1, 2]}, config=config)])
        await create_anew(plane)
        yield plane


async def create_anew(plane: MetadataPlane) -> None:
    """Transactions of other brokers, unknown to the cache."""
    nodes = await plane.store.tree(TopicNode.path("t"))
    deleted = [Delete(path) for path in sorted(nodes, key=len, reverse=True)]
    topic = TopicNode(b"another topic :)", {0: (1, 2)}, has_identity=True)
    state = PartitionStateNode(1, 0, (1, 2), 1)
    created: list[Op] = [
        Create(TopicNode.path("t"), topic.encode()),
        Create(TopicNode.identity_path("t", topic.topic_id)),
        Create(PartitionStateNode.path("t", 0), state.encode()),
    ]
    await plane.store.transaction([*deleted, *created])


async def all_nodes(plane: MetadataPlane) -> dict[str, Node]:
    config = await plane.store.get(ConfigNode.topic_path("t"))
    assert config is not None
    return {**await plane.store.tree(TOPICS), "config": config}


async def elect(plane: MetadataPlane) -> None:
    decided = [[StateChange(known(plane), 0, STALE, 0)]]
    writer = StateWriter(plane.store, plane.metadata)
    written = await writer.write_due(
        lambda: decided.pop() if decided else [], lambda: [plane.metadata.fence()]
    )
    assert written == 0


async def change_the_isr(plane: MetadataPlane) -> None:
    partition = cast("Partition", SimpleNamespace(topic="t", index=0))
    followers = cast("Followers", None)
    change = Change(known(plane), partition, followers, Proposal(STALE, 0, {}))
    outcome = await write(plane.store, [change], plane.metadata.fence(), 1)
    assert outcome == ([], [])  # nobody knows yet: whoever waits hears of it with the deletion


async def move(plane: MetadataPlane) -> None:
    await plane.controller.reassign([Reassignment("t", {0: [3, 1]})])


async def grow(plane: MetadataPlane) -> None:
    await plane.controller.create_partitions([Growth("t", 2)])


async def configure(plane: MetadataPlane) -> None:
    settings = [Edit("flush.ms", EditKind.SET, "2")]

    def edited(current: Any) -> dict[str, str]:
        return edit(TopicConfig, current, settings)

    await plane.controller.alter_topic_configs([ConfigChange("t", edited)])


async def delete(plane: MetadataPlane) -> None:
    await plane.controller.delete_topics(["t"])


@pytest.mark.parametrize("decide", [elect, change_the_isr, move, grow, configure, delete])
async def test_a_decision_about_a_deleted_topic_is_not_written_to_its_successor(
    plane: MetadataPlane, decide: Decide
) -> None:
    before = await all_nodes(plane)
    await decide(plane)
    assert await all_nodes(plane) == before


async def test_those_that_are_older_than_that_are_written_all_the_same(tmp_path: Path) -> None:
    """Topics of Kafka and topics made by hand have no identity."""
    async with metadata_plane(tmp_path) as plane:
        topic = TopicNode(b"kafka's own one.", {0: (1,)})
        state = PartitionStateNode(1, 0, (1,), 1)
        await plane.store.transaction(
            [
                Create(TopicNode.path("old"), topic.encode()),
                Create(PartitionStateNode.path("old", 0), state.encode()),
            ]
        )
    async with metadata_plane(tmp_path) as plane:
        assert await plane.controller.create_partitions([Growth("old", 2)]) == [None]
        (outcome,) = await plane.controller.delete_topics(["old"])
        assert isinstance(outcome, Topic)
        assert await plane.store.tree(TopicNode.path("old")) == {}


def known(plane: MetadataPlane) -> Topic:
    return plane.metadata.topics["t"]
