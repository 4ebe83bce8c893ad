"""Records that are due soon are read before, each batch once, whatever the order of their times."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any, cast

import pytest

from qbus.broker.delay.delayed_partition import DelayedPartition, Lateness
from qbus.broker.delay.held import HeldCache, HeldRecords, NearRecords
from qbus.broker.log import Log
from qbus.broker.partition.partition import Partition
from qbus.errors import ApiError, ErrorCode
from qbus.records.header import hide_delayed
from tests.support.waiting import eventually

from .conftest import NewLine
from .delays import NOW, Item, Line, WallClock, encoded

pytestmark = pytest.mark.sources  # the log's reading is watched


class Reads:
    """Counts the batches that a log reads; ``error`` is raised instead."""

    def __init__(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.error: OSError | None = None
        read_batch = type(line.log).read_batch

        def counted(log: Log, offset: int, *, wait: bool = False) -> Any:
            self.count += 1
            if self.error is not None:
                raise self.error
            return read_batch(log, offset, wait=wait)

        monkeypatch.setattr(type(line.log), "read_batch", counted)


def fill(line: Line, batches: int, each: int, ahead_ms: Iterator[int]) -> None:
    """Have records held back; their values are their due times."""
    for _ in range(batches):
        dues = [NOW + next(ahead_ms) for _ in range(each)]
        items: list[Item] = [(None, b"%d" % due, {"qbus-deliver-at": str(due)}) for due in dues]
        line.produce(*items)


def at_random(up_to_ms: int) -> Iterator[int]:
    numbers = random.Random(7)
    while True:
        yield numbers.randrange(1, up_to_ms)


async def test_each_batch_is_read_once_whatever_the_order(
    line: Line, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(line, batches=40, each=50, ahead_ms=at_random(9_000))
    reads = Reads(line, monkeypatch)
    await line.read_ahead()
    assert reads.count == 40
    while line.fold.pending:
        clock.advance(5)
        line.delayed.deliver()
    assert reads.count == 40
    values = [int(record.value or b"") for record in line.visible()]
    assert len(values) == 2_000
    assert values == sorted(values)


async def test_what_comes_while_others_are_kept_is_kept_too(
    line: Line, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(line, batches=1, each=1, ahead_ms=at_random(5_000))
    await line.read_ahead()
    reads = Reads(line, monkeypatch)
    fill(line, batches=10, each=10, ahead_ms=at_random(8_000))
    clock.advance(8_000)
    assert line.delayed.deliver() == 101
    assert reads.count == 0


async def test_what_comes_while_others_are_being_read_is_kept_too(
    line: Line, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(line, batches=40, each=50, ahead_ms=at_random(9_000))
    line.delayed.look()
    await asyncio.sleep(0)  # which records are read is decided, and a thread reads them
    fill(line, batches=10, each=50, ahead_ms=at_random(9_000))
    await eventually(lambda: not line.delayed.read_ahead.is_under_way)
    reads = Reads(line, monkeypatch)
    clock.advance(9_000)
    while line.fold.pending:
        line.delayed.deliver()
    assert reads.count == 0
    assert len(list(line.visible())) == 2_500
    line.delayed.look()
    assert (line.cache.near_bytes, line.cache.near_owners) == (0, 0)


async def test_what_is_far_is_not_read(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(line, batches=5, each=5, ahead_ms=iter(range(3_600_000, 7_200_000, 1_000)))
    reads = Reads(line, monkeypatch)
    await line.read_ahead()
    assert reads.count == 0


async def test_a_small_room_is_shared_and_never_overrun(
    new_line: NewLine, clock: WallClock
) -> None:
    line = new_line(cache_bytes=(32_000_000, 200_000))
    fill(line, batches=20, each=100, ahead_ms=at_random(9_000))
    most = 0
    while line.fold.pending:
        await line.read_ahead()
        most = max(most, line.cache.near_bytes)
        clock.advance(100)
        await line.deliver()
    assert 0 < most <= 200_000
    values = [int(record.value or b"") for record in line.visible()]
    assert values == sorted(values)
    line.delayed.look()
    assert (line.cache.near_bytes, line.cache.near_owners) == (0, 0)


async def test_large_records_do_not_take_more_than_the_room(
    new_line: NewLine, clock: WallClock
) -> None:
    line = new_line(cache_bytes=(1_000_000, 1_000_000))
    for number in range(60):
        line.send(b"%d " % number + bytes(100_000), deliver_at=str(NOW + 5_000 - number))
    most = 0
    while line.fold.pending:
        await line.read_ahead()
        clock.advance(100)
        await line.deliver()
        most = max(most, line.cache.near_bytes)
        assert line.cache.batch_bytes <= 1_000_000
    assert 0 < most <= 2_200_000
    values = [int((record.value or b"").split()[0]) for record in line.visible()]
    assert values == list(range(59, -1, -1))


async def test_what_was_due_long_ago_is_read_batch_by_batch_too(
    line: Line, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(line, batches=30, each=100, ahead_ms=at_random(3_000_000))
    clock.advance(4_000_000)
    line.reopen()
    reads = Reads(line, monkeypatch)
    line.delayed.look()
    await eventually(lambda: line.fold.pending == 0)
    assert reads.count <= 70  # ahead, and by who did not wait for that


async def test_cancelled_and_rescheduled_ones_are_not_delivered_from_what_was_read(
    line: Line, clock: WallClock
) -> None:
    first, second = line.send(b"a", delay="1s"), line.send(b"b", delay="1s")
    await line.read_ahead()
    line.send(cancel=str(first))
    line.send(reschedule=str(second), delay="2s")
    clock.advance(1_500)
    assert await line.deliver() == 0
    clock.advance(1_000)
    assert await line.deliver() == 1
    (record,) = line.visible()
    assert (record.value, record.timestamp) == (b"b", NOW + 2_000)


async def test_what_was_read_of_a_log_that_was_truncated_counts_no_more(
    line: Line, clock: WallClock
) -> None:
    line.send(b"old", delay="1s")
    await line.read_ahead()
    line.log.truncate_to(0)
    line.lead()
    line.send(b"new", delay="1s")
    clock.advance(1_000)
    await line.deliver()
    assert [record.value for record in line.visible()] == [b"new"]


async def test_a_window_is_evicted_when_nothing_of_its_time_is_left(line: Line) -> None:
    cache = HeldCache()
    held = HeldRecords(line.log, cache)
    for number in range(3):
        line.send(b"%d" % number, delay="1s")
    sizes = 0
    for offset, end in ((0, 30), (1, 10), (2, 20)):
        near = NearRecords(end)
        assert held.gather([offset], 0, near) == 1
        held.keep(near)
        sizes += near.size
    assert (cache.near_bytes, cache.near_owners) == (sizes, 1)
    held.evict_before(20)
    assert (cache.near_bytes, cache.near_owners) == (sizes // 3, 1)
    held.evict_before(None)
    assert (cache.near_bytes, cache.near_owners) == (0, 0)


async def test_what_waits_does_not_keep_what_was_read_in_memory(
    new_line: NewLine, clock: WallClock
) -> None:
    line = new_line(qbus_delay_dead_letter_topic="dead")
    line.dead_letter_error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "dead is missing")
    line.send(b"late", deliver_at=str(NOW + 10), ttl="0")
    fill(line, batches=60, each=100, ahead_ms=iter(range(2_000, 62_000, 10)))
    clock.advance(1_000)
    await line.deliver()
    assert len(line.delayed.dead_lettering) == 1
    most = 0
    while line.fold.pending > 1:
        clock.advance(500)
        await line.read_ahead()
        await line.deliver()
        most = max(most, line.cache.near_bytes)
    clock.advance(10_000)
    await line.read_ahead()
    assert 0 < most < 3 * 1_000 * 300, "three windows of ten seconds"
    assert line.cache.near_bytes == 0
    assert [record.value for record in line.visible()] == [
        b"%d" % (NOW + ms) for ms in range(2_000, 62_000, 10)
    ]


async def test_a_disk_that_fails_is_read_ahead_of_with_pauses_and_one_line(
    line: Line, clock: WallClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(line, batches=10, each=5, ahead_ms=iter(range(4_000, 9_000, 100)))
    reads = Reads(line, monkeypatch)
    reads.error = OSError("the disk fails")
    for _ in range(60):
        await line.read_ahead()
        clock.advance(10)
    assert reads.count == 1
    assert caplog.text.count("t-0: delayed records are not read ahead: the disk fails") == 1
    for _ in range(200):
        await line.read_ahead()
        clock.advance(10)
    assert reads.count in (2, 3)
    assert caplog.text.count("are not read ahead") == 1


async def test_what_is_due_does_not_wait_for_another_partition_that_reads_ahead(
    line: Line, clock: WallClock
) -> None:
    line.service.stop()
    turn = asyncio.Lock()
    mine = DelayedPartition(cast("Partition", line), clock, Lateness(), HeldCache(), turn, line)
    line.delayed = mine
    line.log.append_own(hidden(b"due", NOW + 1_000), 0)
    async with turn:
        mine.look()
        assert mine.read_ahead.is_under_way
        clock.advance(1_000)
        async with asyncio.timeout(20):
            await mine.deliver_from_disk()
    mine.stop()
    assert [record.value for record in line.visible()] == [b"due"]


def hidden(value: bytes, due: int) -> bytearray:
    """A batch of one record that is held back until ``due``."""
    batch = encoded((None, value, {"qbus-deliver-at": str(due)}))
    hide_delayed(batch, NOW)
    return batch
