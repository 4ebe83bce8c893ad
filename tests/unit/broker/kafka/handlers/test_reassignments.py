"""AlterPartitionReassignments and ListPartitionReassignments: moves begin, are seen, and end."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.controller import Growth, NewTopic
from qbus.broker.metadata.image import BrokerInfo
from qbus.errors import ErrorCode
from qbus.metadata import Set
from qbus.metadata.feed import announce
from qbus.metadata.znodes import ChangeNode, PartitionStateNode
from qbus.wire import ApiKey
from qbus.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from qbus.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane
from tests.support.waiting import eventually

OTHERS = tuple(BrokerInfo(number, f"b{number}", 9092) for number in (2, 3))


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path, others=OTHERS) as plane:
        await plane.controller.create_topics([NewTopic("t", assignment={0: [1, 2], 1: [2, 1]})])
        yield plane


async def alter(
    plane: MetadataPlane, *wanted: tuple[str, int, Sequence[int] | None], **options: Any
) -> dict[tuple[str, int], int]:
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(
                    partition_index=index, replicas=None if to is None else list(to)
                )
                for topic, index, to in wanted
                if topic == name
            ],
        )
        for name in dict.fromkeys(name for name, _, _ in wanted)
    ]
    request = AlterPartitionReassignmentsRequest(topics=topics, **options)
    version = 1 if options else 0
    response = await plane.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, request)
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.name, one.partition_index): one.error_code
        for topic in response.responses
        for one in topic.partitions
    }


async def moving(plane: MetadataPlane, **wanted: Sequence[int]) -> dict[tuple[str, int], list[Any]]:
    topics = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=list(some))
        for name, some in wanted.items()
    ]
    request = ListPartitionReassignmentsRequest(topics=topics or None)
    response = await plane.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request)
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.name, one.partition_index): [
            one.replicas,
            one.adding_replicas,
            one.removing_replicas,
        ]
        for topic in response.topics
        for one in topic.partitions
    }


async def in_sync(plane: MetadataPlane, *isr: int) -> None:
    """What the leader writes when others have caught up."""
    state = plane.metadata.topics["t"].partitions[0].state(1)._replace(isr=isr)
    await plane.store.transaction(
        [
            Set(PartitionStateNode.path("t", 0), state.encode()),
            announce(ChangeNode(states={"t": (0,)}).encode()),
        ]
    )


async def test_a_move_is_seen_until_it_is_completed(plane: MetadataPlane) -> None:
    assert await moving(plane) == {}
    assert await alter(plane, ("t", 0, [3, 2])) == {("t", 0): ErrorCode.NONE}
    expected = {("t", 0): [[3, 2, 1], [3], [1]]}
    assert await moving(plane) == await moving(plane, t=[0, 1, 5, 0], none=[0]) == expected
    assert await moving(plane, t=[1]) == {}
    await in_sync(plane, 1, 2, 3)
    await eventually(lambda: not plane.metadata.topics["t"].partitions[0].is_moving)
    partition = plane.metadata.topics["t"].partitions[0]
    assert (partition.replicas, partition.leader, partition.isr) == ((3, 2), 3, (2, 3))
    assert await moving(plane) == {}


async def test_a_move_is_cancelled(plane: MetadataPlane) -> None:
    await alter(plane, ("t", 0, [3, 2]))
    assert await alter(plane, ("t", 0, None), ("t", 1, None)) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    }
    assert await moving(plane) == {}
    assert set(plane.metadata.topics["t"].partitions[0].replicas) == {1, 2}


async def test_each_partition_is_refused_for_itself(plane: MetadataPlane) -> None:
    assert await alter(
        plane,
        ("t", 0, [3]),
        ("t", 1, [9]),
        ("t", 7, [1]),
        ("t", -1, [1]),
        ("none", 0, [1]),
    ) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_a_partition_that_comes_twice_moves_nowhere(plane: MetadataPlane) -> None:
    assert await alter(plane, ("t", 0, [3]), ("t", 0, [2]), ("t", 1, [3])) == {
        ("t", 0): ErrorCode.INVALID_REQUEST,
        ("t", 1): ErrorCode.NONE,
    }
    assert (await moving(plane)).keys() == {("t", 1)}


async def test_the_number_of_replicas_is_kept_where_that_is_asked_for(plane: MetadataPlane) -> None:
    outcome = await alter(plane, ("t", 0, [3]), allow_replication_factor_change=False)
    assert outcome == {("t", 0): ErrorCode.INVALID_REPLICATION_FACTOR}


async def test_a_topic_grows_while_its_partitions_move(plane: MetadataPlane) -> None:
    await alter(plane, ("t", 0, [3, 2]))
    assert await plane.controller.create_partitions([Growth("t", 3)]) == [None]
    assert (await moving(plane)).keys() == {("t", 0)}
    assert len(plane.metadata.topics["t"].partitions) == 3
