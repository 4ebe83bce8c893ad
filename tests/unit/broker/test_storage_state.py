"""A broker without room for more records says so, and says when it has room again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.controller import NewTopic
from qbus.broker.log import Log, LogConfig, LogManager
from qbus.broker.metadata.image import BrokerInfo
from qbus.broker.storage_state import StorageState
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.names import TopicPartition
from tests.support.logs import ControlledFiles, DiskControl, batch
from tests.support.metadata_plane import HERE, MetadataPlane, metadata_plane
from tests.support.waiting import eventually


class Bench:
    """A broker among others, with a disk under control."""

    def __init__(self, plane: MetadataPlane, directory: Path) -> None:
        self.plane = plane
        self.disk = DiskControl()
        self.logs = LogManager.open(
            [str(directory)],
            lambda _: LogConfig(),
            ManualClock(),
            ControlledFiles(self.disk, (".log", ".room")),
            node_id=HERE.id,
            cluster_id="test",
        )
        self.log: Log = self.logs.create("t", 0, bytes(16), LogConfig(), is_new=True)
        metadata = plane.metadata
        epoch = metadata.brokers[HERE.id].epoch
        directories = self.logs.directories
        self.offline: frozenset[TopicPartition] = frozenset()
        self.watch = StorageState(
            plane.store, metadata, directories, lambda: self.offline, HERE.id, epoch
        )

    @property
    def is_full(self) -> bool:
        """What the cluster knows."""
        return self.plane.metadata.brokers[HERE.id].is_full

    def fill(self) -> None:
        """Have the disk full, and a write refused for that."""
        self.disk.fill()
        with pytest.raises(ApiError) as refused:
            self.log.append(batch(b"a"), 0)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    others = (BrokerInfo(2, "b2", 9092), BrokerInfo(3, "b3", 9092))
    async with metadata_plane(tmp_path, others=others) as plane:
        bench = Bench(plane, tmp_path / "logs")
        yield bench
        bench.disk.empty()
        await asyncio.to_thread(bench.logs.close)


async def test_others_lead_while_there_is_no_room(bench: Bench) -> None:
    topics = bench.plane.metadata.topics
    await bench.plane.controller.create_topics([NewTopic("t", assignment={0: [1, 2, 3]})])
    bench.fill()
    await bench.watch.check()
    await eventually(lambda: topics["t"].partitions[0].leader == 2)
    assert bench.is_full
    assert topics["t"].partitions[0].isr == (2, 3)
    bench.disk.empty()
    await bench.watch.check()
    await eventually(lambda: not bench.is_full)
    assert topics["t"].partitions[0].leader == 2, "until its preferred leader is elected"


async def test_who_leads_alone_goes_on(bench: Bench) -> None:
    await bench.plane.controller.create_topics([NewTopic("t", assignment={0: [1]})])
    bench.fill()
    await bench.watch.check()
    await eventually(lambda: bench.is_full)
    assert bench.plane.metadata.topics["t"].partitions[0].leader == 1


async def test_room_that_is_there_already_is_not_talked_about(bench: Bench) -> None:
    bench.fill()
    bench.disk.empty()
    version = await registration_version(bench)
    await bench.watch.check()
    assert not bench.logs.directories[0].is_full
    assert await registration_version(bench) == version


async def test_a_look_leaves_nothing_behind(bench: Bench, tmp_path: Path) -> None:
    before = sorted((tmp_path / "logs").iterdir())
    bench.fill()
    await bench.watch.check()
    bench.disk.empty()
    await bench.watch.check()
    assert sorted((tmp_path / "logs").iterdir()) == before


async def test_replicas_that_cannot_be_used_are_announced(bench: Bench) -> None:
    metadata = bench.plane.metadata
    bench.offline = frozenset({TopicPartition("t", 0)})
    await bench.watch.check()
    await eventually(lambda: metadata.brokers[HERE.id].offline == bench.offline)
    version = await registration_version(bench)
    await bench.watch.check()
    assert await registration_version(bench) == version, "once"
    bench.offline = frozenset()
    await bench.watch.check()
    await eventually(lambda: not metadata.brokers[HERE.id].offline)


async def test_a_broker_alone_announces_them_too(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        bench = Bench(plane, tmp_path / "logs")
        bench.offline = frozenset({TopicPartition("t", 0)})
        bench.fill()
        await bench.watch.check()
        await eventually(lambda: plane.metadata.brokers[HERE.id].offline == bench.offline)
        assert not bench.is_full, "which decides nothing where there is no other"
        bench.disk.empty()
        await asyncio.to_thread(bench.logs.close)


async def test_a_store_that_fails_is_told_later(bench: Bench) -> None:
    bench.fill()
    store = bench.plane.store
    await store.close()
    await bench.watch.check()
    assert not bench.is_full


async def registration_version(bench: Bench) -> int:
    node = await bench.plane.store.get(f"/brokers/ids/{HERE.id}")
    assert node is not None
    return node.version
