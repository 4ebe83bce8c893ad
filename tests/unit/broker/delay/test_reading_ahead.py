"""Records that are due soon are read before, each batch once, whatever the order of their times."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from qbus.broker.delay import held as held_module
from qbus.broker.delay.held import HeldCache, HeldRecords, NearRecords
from qbus.broker.log import Log
from tests.support.waiting import eventually

from .conftest import NewLine
from .delays import NOW, Item, Line, WallClock

pytestmark = pytest.mark.sources  # the log's reading is watched


class Reads:
    """Counts the batches that a log reads."""

    def __init__(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read_batch = type(line.log).read_batch

        def counted(log: Log, offset: int, *, wait: bool = False) -> Any:
            self.count += 1
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


async def read_ahead(line: Line) -> None:
    """Let the partition look at the time, and read what it reads."""
    line.delayed._look()
    await eventually(lambda: line.delayed._reading_ahead is None)


async def test_each_batch_is_read_once_whatever_the_order(
    line: Line, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(line, batches=40, each=50, ahead_ms=at_random(9_000))
    reads = Reads(line, monkeypatch)
    await read_ahead(line)
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
    await read_ahead(line)
    reads = Reads(line, monkeypatch)
    fill(line, batches=10, each=10, ahead_ms=at_random(8_000))
    clock.advance(8_000)
    assert line.delayed.deliver() == 101
    assert reads.count == 0


async def test_what_is_far_is_not_read(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(line, batches=5, each=5, ahead_ms=iter(range(3_600_000, 7_200_000, 1_000)))
    reads = Reads(line, monkeypatch)
    await read_ahead(line)
    assert reads.count == 0


async def test_a_small_room_is_shared_and_never_overrun(
    new_line: NewLine, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_module, "_NEAR_BYTES", 200_000)
    line = new_line()
    fill(line, batches=20, each=100, ahead_ms=at_random(9_000))
    most = 0
    while line.fold.pending:
        await read_ahead(line)
        most = max(most, line.service._cache.near_bytes)
        clock.advance(100)
        await line.deliver()
    assert 0 < most <= 200_000
    values = [int(record.value or b"") for record in line.visible()]
    assert values == sorted(values)
    line.delayed._look()
    assert line.service._cache.near_bytes == 0
    assert line.service._cache.near_owners == 0


async def test_large_records_do_not_take_more_than_the_room(
    line: Line, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_module, "_NEAR_BYTES", 1_000_000)
    monkeypatch.setattr(held_module, "_BROUGHT_BYTES", 1_000_000)
    monkeypatch.setattr(held_module, "_CACHED_BYTES", 1_000_000)
    for number in range(60):
        line.send(b"%d " % number + bytes(100_000), deliver_at=str(NOW + 5_000 - number))
    most = 0
    while line.fold.pending:
        await read_ahead(line)
        clock.advance(100)
        await line.deliver()
        most = max(most, line.service._cache.near_bytes)
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
    line.delayed._look()
    await eventually(lambda: line.fold.pending == 0)
    assert reads.count <= 70  # ahead, and by who did not wait for that


async def test_cancelled_and_rescheduled_ones_are_not_delivered_from_what_was_read(
    line: Line, clock: WallClock
) -> None:
    first, second = line.send(b"a", delay="1s"), line.send(b"b", delay="1s")
    await read_ahead(line)
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
    await read_ahead(line)
    line.log.truncate_to(0)
    line.lead()
    line.send(b"new", delay="1s")
    clock.advance(1_000)
    await line.deliver()
    assert [record.value for record in line.visible()] == [b"new"]


def test_a_window_passes_when_nothing_of_its_time_is_left(line_of_held: HeldRecords) -> None:
    cache = line_of_held._cache
    for end in (30, 10, 20):
        near = NearRecords(end)
        near.size = 7
        line_of_held.keep(near)
    assert (cache.near_bytes, cache.near_owners) == (21, 1)
    line_of_held.pass_by(20)
    assert (cache.near_bytes, cache.near_owners) == (7, 1)
    line_of_held.pass_by(None)
    assert (cache.near_bytes, cache.near_owners) == (0, 0)


@pytest.fixture
async def line_of_held(line: Line) -> HeldRecords:
    await asyncio.sleep(0)
    return HeldRecords(line.log, HeldCache())
