"""What a restarted broker resigns before it registers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from qbus.broker.controller import NewTopic, resign
from qbus.broker.metadata.image import BrokerInfo, PartitionInfo
from qbus.metadata import Op, Result, Set
from qbus.metadata.feed import decide
from qbus.metadata.znodes import ChangeNode, PartitionStateNode
from tests.support.metadata_plane import MetadataPlane, metadata_plane

OTHERS = (BrokerInfo(2, "b2", 9092), BrokerInfo(3, "b3", 9092))


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path, others=OTHERS) as plane:
        await plane.controller.create_topics(
            [NewTopic("t", assignment={0: [1, 2], 1: [2, 1], 2: [2, 3], 3: [1, 2]})]
        )
        await plane.controller.stop()  # so that nobody elects
        yield plane


def states(plane: MetadataPlane) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    partitions = plane.metadata.topics["t"].partitions
    return [(one.leader, one.isr, one.elr) for one in partitions]


def partition(plane: MetadataPlane, index: int = 0) -> PartitionInfo:
    return plane.metadata.topics["t"].partitions[index]


async def test_a_restarted_broker_resigns_and_stays_in_sync(plane: MetadataPlane) -> None:
    assert await resign(plane.store, plane.metadata, 1, lambda _, __: False) == 2
    assert states(plane) == [
        (-1, (1, 2), ()),
        (2, (2, 1), ()),
        (2, (2, 3), ()),
        (-1, (1, 2), ()),
    ]
    assert partition(plane).leader_epoch == 1
    assert await resign(plane.store, plane.metadata, 1, lambda _, __: False) == 0


async def test_a_replica_that_may_have_lost_records_leaves_the_isr(plane: MetadataPlane) -> None:
    lost = {0, 1, 2}
    await resign(plane.store, plane.metadata, 1, lambda _, index: index in lost)
    assert states(plane) == [
        (-1, (2,), ()),
        (2, (2,), ()),
        (2, (2, 3), ()),
        (-1, (1, 2), ()),
    ]


async def test_the_last_replica_in_sync_is_recorded(plane: MetadataPlane) -> None:
    await _write(plane, PartitionStateNode(1, 4, (1,), 1))
    await resign(plane.store, plane.metadata, 1, lambda _, __: True)
    assert states(plane)[0] == (-1, (), ())
    assert partition(plane).last_in_sync == 1


async def test_a_single_broker_is_elected_again_at_once(plane: MetadataPlane) -> None:
    await resign(plane.store, plane.metadata, 1, lambda _, i: i == 3, is_alone=True)
    assert [leader for leader, _, _ in states(plane)] == [1, 2, 2, -1]
    assert partition(plane).leader_epoch == 2


async def test_a_concurrent_change_is_respected(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = plane.store.transaction

    async def overtaken(ops: Sequence[Op]) -> list[Result]:
        monkeypatch.undo()
        await _write(plane, PartitionStateNode(1, 0, (1,), 1))
        return await transaction(ops)

    monkeypatch.setattr(plane.store, "transaction", overtaken)
    await resign(plane.store, plane.metadata, 1, lambda _, __: False)
    assert states(plane)[0] == (-1, (1,), ())
    assert states(plane)[3] == (-1, (1, 2), ())


async def test_a_state_that_cannot_be_written_does_not_block_others(plane: MetadataPlane) -> None:
    path = PartitionStateNode.path("t", 0)
    await plane.store.transaction([Set(path, b"?")])
    await asyncio.wait_for(resign(plane.store, plane.metadata, 1, lambda _, __: False), 30)
    assert states(plane)[3] == (-1, (1, 2), ())


async def _write(plane: MetadataPlane, state: PartitionStateNode) -> None:
    write = Set(PartitionStateNode.path("t", 0), state.encode())
    written = await decide(plane.store, [], [write], ChangeNode(states={"t": (0,)}))
    await asyncio.wait_for(plane.metadata.applied(written), 10)
