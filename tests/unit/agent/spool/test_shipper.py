"""A spool is emptied in order; batches are removed once stored; no failure loses any."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qbus.agent.quarantine import Quarantine
from qbus.agent.spool import SpoolShipper
from qbus.agent.spool import shipper as module
from qbus.clients.errors import ConnectionFailed
from qbus.clients.spool import QueueName, SpoolWriter
from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, build_batch, iter_records
from qbus.service.lock import DirectoryLock
from tests.support.waiting import eventually


def batch(*values: bytes) -> bytearray:
    return build_batch([(None, value, (), 1_700_000_000_000) for value in values])


class Sender:
    """Stores batches; fails as it is told, per value or for everything."""

    def __init__(self) -> None:
        self.stored: list[tuple[QueueName, bytes]] = []
        self.failures: dict[bytes, list[Exception]] = {}
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def send(self, queue: QueueName, header: BatchHeader, data: bytes) -> None:
        await self.is_open.wait()
        (first, *rest) = [record.value or b"" for record in iter_records(memoryview(data))]
        if self.failures.get(first):
            raise self.failures[first].pop(0)
        self.stored += [(queue, value) for value in (first, *rest)]

    def values(self, partition: int | None = 0) -> list[bytes]:
        return [value for queue, value in self.stored if queue.partition == partition]


class Scene:
    def __init__(self, directory: Path) -> None:
        self.spool = directory / "spool"
        self.data = directory / "data"
        self.sender = Sender()
        self.shipper = self.make()

    def make(self) -> SpoolShipper:
        return SpoolShipper(self.spool, self.sender, Quarantine(self.data), 0.01)  # type: ignore[arg-type]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.shipper.run())
        try:
            yield
        finally:
            self.shipper.stop()
            async with asyncio.timeout(10):
                await task

    async def has_stored(self, *values: bytes, partition: int | None = 0) -> None:
        await eventually(lambda: len(self.sender.values(partition)) >= len(values))
        assert self.sender.values(partition) == list(values)

    def left(self) -> list[str]:
        """Segments; unlike ``rglob``, the walk does not mind folders that go meanwhile."""
        found = [Path(folder, name) for folder, _, names in os.walk(self.spool) for name in names]
        return [str(path) for path in found if path.suffix == ".log"]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(module, "_LONGEST_PAUSE_S", 0.01)
    return Scene(tmp_path)


async def test_batches_are_delivered_in_order_and_removed(scene: Scene) -> None:
    with SpoolWriter(scene.spool) as writer:
        writer.append("t", 0, batch(b"a", b"b"))
        writer.append("t", 0, batch(b"c"))
        writer.append("t", None, batch(b"any"))
    async with scene.running():
        await scene.has_stored(b"a", b"b", b"c")
        await scene.has_stored(b"any", partition=None)
        await eventually(lambda: not list(scene.spool.glob("*/*")))
    assert scene.shipper.status.delivered_records == 4


async def test_the_batches_of_a_live_writer_are_delivered_as_they_come(scene: Scene) -> None:
    with SpoolWriter(scene.spool) as writer:
        async with scene.running():
            writer.append("t", 0, batch(b"a"))
            await scene.has_stored(b"a")
            writer.append("t", 0, batch(b"b"))
            await scene.has_stored(b"a", b"b")
            await eventually(lambda: scene.shipper.status.waiting_bytes == 0)


async def test_a_missing_spool_is_waited_for(scene: Scene) -> None:
    async with scene.running():
        await asyncio.sleep(0)
        with SpoolWriter(scene.spool) as writer:
            writer.append("t", 0, batch(b"a"))
            await scene.has_stored(b"a")


async def test_earlier_writers_go_first(scene: Scene) -> None:
    with SpoolWriter(scene.spool) as first, SpoolWriter(scene.spool) as second:
        first.append("t", 0, batch(b"1"))
        second.append("t", 0, batch(b"2"))
        first.append("t", 0, batch(b"1 again"))
    async with scene.running():
        await scene.has_stored(b"1", b"1 again", b"2")


async def test_a_failure_holds_up_only_its_partition(scene: Scene) -> None:
    scene.sender.failures[b"a"] = [ConnectionFailed("away")] * 1_000_000
    with SpoolWriter(scene.spool) as writer:
        writer.append("t", 0, batch(b"a"))
        writer.append("t", 0, batch(b"b"))
        writer.append("t", 1, batch(b"c"))
    async with scene.running():
        await scene.has_stored(b"c", partition=1)
        await eventually(lambda: scene.shipper.status.error == "away")
        assert scene.sender.values(0) == []
        scene.sender.failures.clear()
        await scene.has_stored(b"a", b"b")
        await eventually(lambda: scene.shipper.status.error is None)


async def test_acknowledged_batches_are_not_delivered_by_the_next_agent(scene: Scene) -> None:
    with SpoolWriter(scene.spool) as writer:
        writer.append("t", 0, batch(b"a"))
        writer.append("t", 0, batch(b"b"))
        scene.sender.failures[b"b"] = [ConnectionFailed("away")] * 1_000_000
        async with scene.running():
            await eventually(lambda: scene.shipper.status.error is not None)
        scene.sender.failures.clear()
        scene.shipper = scene.make()
        async with scene.running():
            await scene.has_stored(b"a", b"b")


async def test_an_agent_that_dies_before_the_acknowledgement_repeats_one_batch(
    scene: Scene,
) -> None:
    with SpoolWriter(scene.spool) as writer:
        for value in (b"a", b"b"):
            writer.append("t", 0, batch(value))
    scene.sender.is_open.clear()
    task = asyncio.create_task(scene.shipper.run())
    await eventually(lambda: scene.shipper.status.queues == 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert scene.left()
    scene.sender.is_open.set()
    scene.shipper = scene.make()
    async with scene.running():
        await scene.has_stored(b"a", b"b")


async def test_damaged_segments_are_quarantined_and_whole_batches_delivered(scene: Scene) -> None:
    with SpoolWriter(scene.spool) as writer:
        for value in (b"a", b"b", b"c"):
            writer.append("t", 0, batch(value))
    (segment,) = scene.spool.rglob("*.log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 3 + 25] ^= 0xFF
    segment.write_bytes(content)
    async with scene.running():
        await scene.has_stored(b"a", b"c")
        await eventually(lambda: not scene.left())
        await eventually(lambda: scene.shipper.status.damaged == 1)
    (kept,) = (scene.data / "damaged").iterdir()
    assert kept.read_bytes() == content


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP])
async def test_batches_refused_for_good_are_quarantined(scene: Scene, code: ErrorCode) -> None:
    scene.sender.failures[b"a"] = [ApiError(code, "no")]
    refused = batch(b"a")
    with SpoolWriter(scene.spool) as writer:
        writer.append("t", 0, refused)
        writer.append("t", 0, batch(b"b"))
    async with scene.running():
        await scene.has_stored(b"b")
        await eventually(lambda: scene.shipper.status.damaged == 1)
    (kept,) = (scene.data / "damaged").iterdir()
    assert kept.read_bytes()[16:] == refused[16:]  # all but its place in the spool


async def test_batches_refused_for_now_are_kept(scene: Scene) -> None:
    scene.sender.failures[b"a"] = [ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")] * 3
    with SpoolWriter(scene.spool) as writer:
        writer.append("t", 0, batch(b"a"))
    async with scene.running():
        await scene.has_stored(b"a")
    assert scene.shipper.status.damaged == 0


async def test_a_spool_is_for_one_agent_at_a_time(scene: Scene) -> None:
    scene.spool.mkdir()
    lock = DirectoryLock(scene.spool / "agent.lock")
    lock.acquire()
    with SpoolWriter(scene.spool) as writer:
        writer.append("t", 0, batch(b"a"))
    async with scene.running():
        await eventually(lambda: "another agent" in str(scene.shipper.status.error))
        assert scene.sender.stored == []
        lock.release()
        await scene.has_stored(b"a")


async def test_a_spool_that_is_no_directory_is_an_error_in_the_status(scene: Scene) -> None:
    scene.spool.write_text("no directory")
    async with scene.running():
        await eventually(lambda: scene.shipper.status.error is not None)
