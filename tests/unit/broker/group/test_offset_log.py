"""Offsets in a log that real partitions keep: what is told of them, and when."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from qbus.broker.group import Offset
from qbus.broker.group.leadership import Leadership
from qbus.broker.group.offset_log import OffsetLog
from qbus.broker.group.offset_machine import OffsetsMachine
from qbus.broker.internal_logs import InternalLog, InternalTopic, LogParts
from qbus.broker.metadata.image import PartitionInfo
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore
from qbus.names import OFFSETS_TOPIC
from tests.support.data_plane import DataPlane
from tests.support.waiting import eventually
from tests.unit.broker.internal_logs.counter import Controller

from .shell import DirectStore

PLACE = ("t", 0)


class World:
    """A data plane that leads the one partition of ``__consumer_offsets``."""

    def __init__(self, directory: Path) -> None:
        self.plane = DataPlane(directory)

    async def start(self) -> None:
        await self.plane.start(before_partitions=self._follow)
        await self.internal.coordinator("g")
        await eventually(lambda: any(self.internal.shards()))

    def _follow(self) -> None:
        plane = self.plane
        parts = LogParts(plane.clock, plane.metadata, Controller(plane), plane.replicas.tasks)
        topic = InternalTopic(OFFSETS_TOPIC, 1, 1, 1, 1 << 20)
        self.internal: InternalLog[OffsetsMachine] = InternalLog(
            parts, lambda: topic, OffsetsMachine
        )
        plane.replicas.events.subscribe(self.internal)
        self.log = OffsetLog(self.internal, plane.metadata.topics)

    async def stop(self) -> None:
        await self.internal.stop()
        await self.plane.stop()

    async def save(self, offset: int) -> ErrorCode:
        return await self.log.save("g", {PLACE: Offset(offset)})

    async def read(self) -> int:
        return (await self.log.read("g")).offsets["t"][0].offset

    async def put(self, info: PartitionInfo) -> None:
        """Let the partition be in that state."""
        topic = self.plane.metadata.topics[OFFSETS_TOPIC]
        await self.plane.metadata.put(replace(topic, partitions=(info,)))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.start()
    yield made
    await made.stop()


async def test_what_is_acknowledged_is_told_at_once(world: World) -> None:
    await world.save(5)
    reading = world.read()
    with pytest.raises(StopIteration) as told:
        reading.send(None)
    assert told.value.value == 5


async def test_what_may_be_lost_is_not_told_before_it_is_acknowledged(world: World) -> None:
    await world.save(5)
    world.plane.disk.hold_syncs()
    saving = asyncio.ensure_future(world.save(6))
    await eventually(lambda: world.log.offsets("g")["t"][0].offset == 6)
    reading = asyncio.ensure_future(world.read())
    await asyncio.sleep(0.05)
    assert not reading.done()
    world.plane.disk.release_syncs()
    assert await reading == 6
    assert await saving is ErrorCode.NONE


async def test_what_another_leader_never_had_is_not_told(world: World) -> None:
    await world.save(5)
    world.plane.disk.hold_syncs()
    saving = asyncio.ensure_future(world.save(6))
    await eventually(lambda: world.log.offsets("g")["t"][0].offset == 6)
    reading = asyncio.ensure_future(world.read())
    await asyncio.sleep(0.01)
    await world.put(PartitionInfo(2, 1, (1, 2), (2,)))
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await reading
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await world.read()
    assert await saving is ErrorCode.NOT_COORDINATOR
    world.plane.disk.release_syncs()


async def test_a_leader_is_certain_while_no_other_replica_may_be_elected(world: World) -> None:
    store: MetadataStore = DirectStore()
    leadership = Leadership(store, world.internal, 1)
    assert leadership.is_certain("g")
    for epoch, isr in ((5, (1, 2)), (6, (1,))):
        await world.put(PartitionInfo(1, epoch, (1, 2), isr))
        await eventually(lambda: any(world.internal.shards()))
        assert leadership.is_certain("g") is (isr == (1,))
    await world.put(PartitionInfo(2, 7, (1, 2), (1, 2)))
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        leadership.is_certain("g")
