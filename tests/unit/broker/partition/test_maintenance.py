"""What logs need from time to time."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.partition.maintenance import SCRUB_ROUND_S, LogMaintenance
from qbus.errors import ErrorCode
from tests.support.data_plane import DataPlane
from tests.support.logs import batch
from tests.support.waiting import eventually


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(tmp_path)
    await plane.start()
    yield plane
    await plane.stop()


def maintenance(plane: DataPlane) -> LogMaintenance:
    return plane.replicas.maintenance


class TestRetention:
    async def test_old_segments_go(self, plane: DataPlane) -> None:
        partition = await plane.create(
            "orders", qbus_durability="memory", retention_ms=60_000, segment_bytes=1024
        )
        for _ in range(10):
            partition.append(batch(b"x" * 600), 1)
        assert partition.log.segment_count == 10
        plane.clock.advance(120)
        partition.append(batch(b"new", timestamp=plane.clock.time_ms()), 1)
        maintenance(plane).apply_retention()
        assert partition.log.log_start_offset == 9  # the last segment has the new record, too
        assert partition.log.segment_count == 1

    async def test_nothing_goes_that_is_not_acknowledged(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", retention_ms=60_000, segment_bytes=1024)
        plane.disk.hold_syncs()
        for _ in range(3):
            partition.append(batch(b"x" * 600), 1)
        plane.clock.advance(120)
        assert partition.high_watermark == 0
        retention = asyncio.get_running_loop().run_in_executor(
            None, maintenance(plane).apply_retention
        )
        await asyncio.sleep(0.02)
        assert partition.log.log_start_offset == 0
        plane.disk.release_syncs()
        await retention
        assert partition.log.log_start_offset == 0

    async def test_a_segment_is_closed_by_age(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", qbus_durability="memory", segment_ms=1000)
        partition.append(batch(b"a"), 1)
        plane.clock.advance(2)
        maintenance(plane).apply_retention()
        assert partition.log.segment_count == 2

    async def test_idle_producers_are_forgotten(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", qbus_durability="memory", retention_ms=-1)
        partition.append(batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0), 1)
        maintenance(plane).apply_retention()
        assert len(partition.log.producers) == 1
        plane.clock.advance(25 * 60 * 60)
        maintenance(plane).apply_retention()
        assert len(partition.log.producers) == 0

    @pytest.mark.sources
    async def test_the_trouble_of_one_partition_is_no_others(
        self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = await plane.create("a-first", qbus_durability="memory", segment_ms=1000)
        second = await plane.create("second", qbus_durability="memory", segment_ms=1000)

        def defect() -> bool:
            raise ValueError("a defect")

        monkeypatch.setattr(first.log, "roll_if_due", defect)
        second.append(batch(b"a"), 1)
        plane.clock.advance(2)
        maintenance(plane).apply_retention()
        assert second.log.segment_count == 2


class TestFlushing:
    async def test_flush_ms_flushes_what_is_in_memory(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", qbus_durability="memory", flush_ms=5_000)
        partition.append(batch(b"a"), 1)
        maintenance(plane).flush()
        assert partition.log.flushed_offset == 0
        plane.clock.advance(6)
        maintenance(plane).flush()
        await eventually(lambda: partition.log.flushed_offset == 1)

    async def test_without_it_the_system_decides_when(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", qbus_durability="memory")
        partition.append(batch(b"a"), 1)
        plane.clock.advance(10**6)
        maintenance(plane).flush()
        await asyncio.sleep(0.02)
        assert plane.disk.syncs == 0

    async def test_a_finished_segment_is_flushed(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", qbus_durability="memory", segment_bytes=1024)
        for _ in range(2):
            partition.append(batch(b"x" * 600), 1)
        maintenance(plane).flush()
        await eventually(lambda: partition.log.flushed_offset == 2)

    async def test_a_partition_that_is_refused_is_left_alone(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", qbus_durability="memory", flush_ms=0)
        partition.append(batch(b"a"), 1)
        partition.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        maintenance(plane).flush()
        await asyncio.sleep(0.02)
        assert plane.disk.syncs == 0


class TestScrubbing:
    async def test_damage_is_found_before_anybody_reads_it(
        self, plane: DataPlane, tmp_path: Path
    ) -> None:
        await plane.create("other")
        partition = await plane.create("orders", qbus_durability="memory")
        partition.append(batch(b"a" * 100), 1)
        await plane.stop()
        segment = tmp_path / "logs" / "orders-0" / f"{0:020}.log"
        damaged = bytearray(segment.read_bytes())
        damaged[100] ^= 4
        segment.write_bytes(damaged)
        await plane.start()
        for _ in range(4):
            maintenance(plane).scrub()
        assert len(plane.partition("orders").log.corruptions) == 1

    async def test_large_batches_are_no_more_bytes_at_a_time_than_small_ones(
        self, plane: DataPlane
    ) -> None:
        partition = await plane.create("orders", qbus_durability="memory")
        for _ in range(10):
            partition.append(batch(b"a" * 400_000), 1)
        maintenance(plane).scrub()
        assert 1_200_000 < partition.log.scrubbed_bytes < 1_210_000

    @pytest.mark.sources
    async def test_once_all_is_checked_there_is_a_pause(
        self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        partition = await plane.create("orders", qbus_durability="memory")
        partition.append(batch(b"a"), 1)
        steps = 0

        def count(_: int) -> bool:
            nonlocal steps
            steps += 1
            return True

        monkeypatch.setattr(partition.log, "scrub", count)
        for _ in range(5):
            maintenance(plane).scrub()
        assert steps == 1
        plane.clock.advance(SCRUB_ROUND_S)
        maintenance(plane).scrub()
        assert steps == 2

    @pytest.mark.sources
    async def test_trouble_with_one_partition_does_not_end_it(
        self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = await plane.create("a-first")
        second = await plane.create("second")

        def fail(_: int) -> bool:
            raise OSError(errno.EIO, "Input/output error")

        checked: list[int] = []

        def succeed(size: int) -> bool:
            checked.append(size)
            return True

        monkeypatch.setattr(first.log, "scrub", fail)
        monkeypatch.setattr(second.log, "scrub", succeed)
        for _ in range(2):
            maintenance(plane).scrub()
        assert len(checked) == 1


async def test_checkpoints_and_new_segments_do_not_get_in_each_others_way(
    plane: DataPlane,
) -> None:
    partition = await plane.create("orders", qbus_durability="memory", segment_bytes=1024)
    done = threading.Event()

    def checkpoint() -> None:
        while not done.is_set():
            plane.logs.checkpoint()

    checkpointing = asyncio.create_task(asyncio.to_thread(checkpoint))
    try:
        for sequence in range(300):
            data = batch(b"x" * 600, producer_id=1, producer_epoch=0, base_sequence=sequence)
            partition.append(data, 1)
            partition.flush()
            await asyncio.sleep(0)
    finally:
        done.set()
        await checkpointing
    assert not plane.logs.directories[0].offline
    assert partition.log.segment_count == 300


async def test_it_runs_by_itself_and_survives_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = DataPlane(
        tmp_path, log_retention_check_interval_ms=1, log_flush_offset_checkpoint_interval_ms=1
    )
    calls = {"retention": 0, "checkpoint": 0}

    def retention(self: LogMaintenance) -> None:
        calls["retention"] += 1
        raise ValueError("a defect")

    monkeypatch.setattr(LogMaintenance, "apply_retention", retention)
    await plane.start()
    checkpoint = plane.directory / "logs" / "recovery-point-offset-checkpoint"
    partition = await plane.create("orders")
    partition.append(batch(b"a"), 1)
    await eventually(lambda: checkpoint.exists() and "orders 0 1" in checkpoint.read_text())
    await eventually(lambda: calls["retention"] > 2)
    await plane.stop()
    after = calls["retention"]
    await asyncio.sleep(0.02)
    assert calls["retention"] == after
