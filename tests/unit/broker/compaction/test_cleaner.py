"""The compaction of a broker's logs: which one is next, at what rate, and what stops it."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.compaction.cleaning import CleaningResult, clean
from qbus.broker.compaction.metrics import register_metrics
from qbus.broker.compaction.plan import Dirt
from qbus.broker.log import Log, OsFiles
from qbus.broker.log.checkpoints import read_offsets
from qbus.broker.log.scan import BadBatch
from qbus.broker.partition.partition import Partition
from qbus.records import build_batch, iter_batches, iter_records
from qbus.wire import ApiKey
from qbus.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.support.data_plane import DataPlane
from tests.support.waiting import eventually


class Plane(DataPlane):
    """Partitions, and what compacts them."""

    async def new(self, name: str, **config: Any) -> Partition:
        """A compacted topic; its partition."""
        defaults: Any = {"cleanup_policy": "compact", "segment_bytes": 2000}
        return await self.create(name, **{**defaults, **config})

    async def fill(self, partition: Partition, *keys: bytes, size: int = 300) -> None:
        """Append a record for each key, each in a segment of its own, and make them stable."""
        for key in keys:
            made = build_batch([(key, b"v" * size, (), self.clock.time_ms())])
            partition.append(memoryview(made), 1)
            partition.log.roll()
        await eventually(lambda: partition.high_watermark == partition.log.log_end_offset)

    async def clean(self) -> bool:
        return await asyncio.to_thread(self.cleaner.clean_next)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    plane = Plane(tmp_path)
    await plane.start()
    yield plane
    plane.cleaner.stop()
    await plane.stop()


def offsets(partition: Partition) -> list[int]:
    """Of all records that are left."""
    found: list[int] = []
    offset = partition.log.log_start_offset
    while (part := partition.log.read(offset, 1 << 20, wait=True)) is not None:
        with part:
            for _, batch in iter_batches(part.read()):
                found += [record.offset for record in iter_records(batch)]
        offset = part.next_offset
    return found


def flipped(path: Path) -> bytes:
    """What is in a file, with its last bit changed."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    return bytes(data)


def flip(path: Path) -> None:
    """Change the last bit of a file."""
    path.write_bytes(flipped(path))


async def test_the_log_with_the_largest_share_of_dirt_is_next(plane: Plane) -> None:
    first, second = await plane.new("a"), await plane.new("b")
    await plane.fill(first, b"1", b"2")
    assert await plane.clean()
    await plane.fill(first, b"1", b"2", b"1")
    await plane.fill(second, b"1", b"1")
    assert await plane.clean()
    assert (offsets(second), offsets(first)) == ([1], [0, 1, 2, 3, 4])
    assert await plane.clean()
    assert offsets(first) == [3, 4]
    assert not await plane.clean()
    statistics = plane.cleaner.statistics
    assert (statistics.compactions, statistics.records_removed) == (3, 4)
    assert statistics.bytes_written < statistics.bytes_read


async def test_a_log_waits_until_enough_of_it_is_dirty(plane: Plane) -> None:
    partition = await plane.new("a", min_cleanable_dirty_ratio="0.6")
    await plane.fill(partition, b"1", b"2", b"3")
    assert await plane.clean()
    await plane.fill(partition, b"1", b"1", b"1")
    assert not await plane.clean()
    await plane.fill(partition, b"1", b"1")
    assert await plane.clean()


async def test_or_until_its_records_are_too_old(plane: Plane) -> None:
    partition = await plane.new("a", min_cleanable_dirty_ratio="1", max_compaction_lag_ms="1000")
    await plane.fill(partition, b"1", b"1")
    assert not await plane.clean()
    plane.clock.advance(1.1)
    assert await plane.clean()
    assert offsets(partition) == [1]


async def test_other_topics_are_left_alone(plane: Plane) -> None:
    await plane.fill(await plane.create("a"), b"1", b"1")
    await plane.fill(await plane.create("b", qbus_compacted="true"), b"1", b"1")
    assert not await plane.clean()


async def test_compact_and_delete_do_both(plane: Plane) -> None:
    partition = await plane.new("a", cleanup_policy="compact,delete", retention_ms="5000")
    await plane.fill(partition, b"1", b"1", b"2")
    assert await plane.clean()
    assert offsets(partition) == [1, 2]
    plane.clock.advance(6)
    assert partition.log.apply_retention(partition.high_watermark)
    assert offsets(partition) == []
    assert partition.log.log_start_offset == 3


async def test_without_delete_nothing_is_too_old(plane: Plane) -> None:
    partition = await plane.new("a", retention_ms="5000", retention_bytes="0")
    await plane.fill(partition, b"1", b"2")
    plane.clock.advance(6)
    assert not partition.log.apply_retention(partition.high_watermark)


async def test_what_is_not_acknowledged_is_not_touched(plane: Plane) -> None:
    partition = await plane.new("a", min_cleanable_dirty_ratio="0")
    await plane.fill(partition, b"1", b"1")
    partition.high_watermark = 1
    assert await plane.clean()
    assert offsets(partition) == [0, 1]
    partition.high_watermark = 2
    assert await plane.clean()
    assert offsets(partition) == [1]


async def test_where_it_ended_survives_a_restart(plane: Plane) -> None:
    partition = await plane.new("a")
    await plane.fill(partition, b"1", b"1")
    assert await plane.clean()
    await plane.stop()
    await plane.start()
    assert not await plane.clean()
    assert plane.logs.cleaned_before("a", 0) == 2
    (directory,) = plane.logs.directories
    known = read_offsets(OsFiles(), f"{directory.path}/cleaner-offset-checkpoint")
    assert known == {("a", 0): 2}


async def test_a_log_that_was_compacted_opens_whatever_its_policy_is_now(plane: Plane) -> None:
    partition = await plane.new("a")
    await plane.fill(partition, b"1", b"1", b"2", b"1")
    assert await plane.clean()
    await plane.metadata.put(replace(plane.metadata.topics["a"], config={}))
    await plane.stop()
    await plane.start()
    partition = plane.partition("a")
    while not partition.log.scrub():
        pass
    assert (partition.log.corruptions, offsets(partition)) == ((), [2, 3])


async def test_records_that_are_cut_off_are_dirty_when_they_are_written_anew(plane: Plane) -> None:
    partition = await plane.new("a")
    await plane.fill(partition, b"1", b"2", b"1")
    assert await plane.clean()
    await asyncio.to_thread(plane.logs.truncate, "a", 0, 2)
    assert plane.logs.cleaned_before("a", 0) == 2
    await plane.fill(partition, b"2", b"2")
    assert await plane.clean()
    assert offsets(partition) == [3]


class TestTrouble:
    async def damage(self, plane: Plane, partition: Partition) -> Path:
        await plane.fill(partition, b"1", b"1")
        path = Path(partition.log.directory, "00000000000000000001.log")
        flip(path)
        return path

    async def test_a_damaged_log_stops_itself_alone(
        self, plane: Plane, caplog: pytest.LogCaptureFixture
    ) -> None:
        bad, good = await plane.new("bad"), await plane.new("good")
        await self.damage(plane, bad)
        await plane.fill(good, b"1", b"1")
        while await plane.clean():
            pass
        assert offsets(good) == [1]
        (reason,) = plane.cleaner.troubles().values()
        assert reason.startswith("at offset 1: CRC")
        assert "bad-0 is damaged, and not compacted until that is repaired" in caplog.text
        assert plane.cleaner.statistics.failures == 1
        assert len(bad.log.corruptions) == 1
        request = DescribeLogDirsRequest(topics=None)
        answer = await plane.call(ApiKey.DESCRIBE_LOG_DIRS, 4, request)
        said = {
            topic.name: topic.partitions[0].compaction_problem for topic in answer.results[0].topics
        }
        assert said == {"bad": reason, "good": ""}

    @pytest.mark.parametrize("error", [OSError(28, "no space"), RuntimeError("unforeseen")])
    async def test_one_that_fails_keeps_no_other_from_being_compacted(
        self, plane: Plane, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        bad, good = await plane.new("bad"), await plane.new("good")
        await plane.fill(bad, b"1", b"1", b"1")
        await plane.fill(good, b"2", b"1", b"1")
        attempts = 0

        def failing(log: Log, *args: Any, **kwargs: Any) -> CleaningResult:
            nonlocal attempts
            if log is not bad.log:
                return clean(log, *args, **kwargs)
            attempts += 1
            raise error

        monkeypatch.setattr("qbus.broker.compaction.cleaner.clean", failing)
        while await plane.clean():
            pass
        assert (offsets(good), attempts) == ([0, 2], 1)
        assert plane.cleaner.statistics.failures == 1
        monkeypatch.undo()
        while await plane.clean():
            pass
        assert offsets(bad) == [2]

    async def test_until_it_is_repaired(self, plane: Plane) -> None:
        partition = await plane.new("a")
        path = await self.damage(plane, partition)
        assert await plane.clean()
        assert not await plane.clean()
        data = flipped(path)
        (corruption,) = partition.log.corruptions
        damage = partition.log.find_damage(corruption)
        assert damage is not None
        partition.log.repair(damage, data)
        assert await plane.clean()
        assert plane.cleaner.troubles() == {}
        assert offsets(partition) == [1]

    @pytest.mark.parametrize(
        "found", [BadBatch(0, 2, "of a file that is gone"), OSError(2, "gone")]
    )
    async def test_records_that_were_cut_off_while_it_looked_are_none(
        self,
        plane: Plane,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        found: Exception,
    ) -> None:
        partition = await plane.new("a")
        await plane.fill(partition, b"1", b"1", b"2")

        def overtaken(*_: Any, **__: Any) -> Dirt:
            plane.logs.truncate("a", 0, 2)
            raise found

        monkeypatch.setattr("qbus.broker.compaction.cleaner.find_dirt", overtaken)
        assert not await plane.clean()
        assert plane.cleaner.troubles() == {}
        assert "not compacted" not in caplog.text
        monkeypatch.undo()
        await plane.fill(partition, b"3", b"3")
        assert await plane.clean()
        assert offsets(partition) == [1, 3]

    async def test_a_deleted_topic_is_none(self, plane: Plane) -> None:
        partition = await plane.new("a")
        await self.damage(plane, partition)
        await plane.clean()
        await plane.metadata.remove("a")
        assert plane.cleaner.troubles() == {}


class TestThreads:
    async def test_they_compact_by_themselves_and_end_at_once(self, tmp_path: Path) -> None:
        plane = Plane(tmp_path, log_cleaner_threads=2, log_cleaner_backoff_ms=10)
        await plane.start()
        partitions = [await plane.new(name) for name in "abcd"]
        for partition in partitions:
            await plane.fill(partition, b"1", b"1")
        plane.cleaner.start()
        await eventually(lambda: all(offsets(one) == [1] for one in partitions))
        begun = time.monotonic()
        await asyncio.to_thread(plane.cleaner.stop)
        assert time.monotonic() - begun < 5
        assert not [one for one in threading.enumerate() if one.name.startswith("qbus-compact")]
        await plane.stop()

    async def test_none_run_where_compaction_is_switched_off(self, tmp_path: Path) -> None:
        plane = Plane(tmp_path, log_cleaner_enable=False)
        await plane.start()
        plane.cleaner.start()
        assert not [one for one in threading.enumerate() if one.name.startswith("qbus-compact")]
        await plane.stop()

    async def test_they_are_stopped_amid_a_wait_for_the_rate(self, tmp_path: Path) -> None:
        plane = Plane(tmp_path, log_cleaner_io_max_bytes_per_second=1, log_cleaner_backoff_ms=10)
        await plane.start()
        partition = await plane.new("a")
        await plane.fill(partition, b"1", b"1")
        plane.cleaner.start()
        await asyncio.sleep(0.3)
        assert offsets(partition) == [0, 1]
        begun = time.monotonic()
        await asyncio.to_thread(plane.cleaner.stop)
        assert time.monotonic() - begun < 5
        await plane.stop()


async def test_the_metrics_tell_of_all_this(plane: Plane) -> None:
    known: dict[str, Any] = {}

    class Register:
        def gauge(self, name: str, _: str, read: Any) -> None:
            known[name] = read

        counter = gauge

        def gauges_by(self, _: Any, name: str, __: str, read: Any) -> None:
            known[name] = read

    register: Any = Register()
    register_metrics(register, plane.cleaner)
    partition = await plane.new("a")
    await plane.fill(partition, b"1", b"1")
    assert known["compaction_dirty_ratio"]() == [(("a", "0"), 1.0)]
    await plane.clean()
    assert known["compaction_dirty_ratio"]() == [(("a", "0"), 0.0)]
    assert known["compaction_dirty_bytes"]() == [(("a", "0"), 0)]
    assert (known["compactions"](), known["compaction_removed_records"]()) == (1, 1)
    assert known["compaction_uncleanable_partitions"]() == 0
