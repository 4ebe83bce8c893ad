"""A producer's batch that comes again: stored once, whatever became of it the first time."""

from pathlib import Path
from typing import Any, cast

import pytest

from qbus.broker.delay.incoming import PartitionIntake
from qbus.broker.partition.partition import ACKS_ALL, Partition
from qbus.errors import ApiError, ErrorCode
from qbus.records import iter_batches, read_header

from .delays import HOUR, Item, Line, WallClock, encoded

LATER = {"qbus-delay": "1h"}
MIXED: list[Item] = [
    (b"a", b"v0", {}),
    (b"b", b"h1", LATER),
    (b"c", b"h2", LATER),
    (b"d", b"v3", {}),
    (b"e", None, {"qbus-cancel": "key"}),
    (b"f", b"h5", LATER),
]
VISIBLE = [b"v0", b"v3"]
HELD = {b"h1", b"h2", b"h5"}


@pytest.fixture
def clock() -> WallClock:
    return WallClock()


@pytest.fixture
async def line(tmp_path: Path, clock: WallClock) -> Line:
    return Line(tmp_path / "t-0", clock)


def taken_in(line: Line, *items: Item, **fields: Any) -> PartitionIntake:
    """What a request does before a thread reads for it."""
    batch = encoded(*items, timestamp=line.clock.time_ms(), **fields)
    intake = line.service.intake(cast("Partition", line), memoryview(batch), ACKS_ALL)
    assert intake is not None
    return intake


def values(line: Line) -> list[bytes | None]:
    return [record.value for record in line.visible()]


async def held_values(line: Line, clock: WallClock) -> list[bytes | None]:
    """Deliver all that is held back; the values that were."""
    before = len(line.visible())
    clock.advance(2 * HOUR)
    await line.deliver()
    return values(line)[before:]


async def test_a_batch_that_comes_twice_while_threads_read_for_it_is_stored_once(
    line: Line, clock: WallClock
) -> None:
    copies = [taken_in(line, *MIXED, producer_id=7, base_sequence=0) for _ in range(2)]
    assert all(copy.needs_thread for copy in copies)
    for copy in copies:
        copy.read()
    first, second = (copy.append() for copy in copies)
    assert (first[0].first_offset, first[0].last_offset) == (0, 5)
    assert (second[0].first_offset, second[0].last_offset) == (0, 5)
    assert [number for number, _ in second[1].notes] == [number for number, _ in first[1].notes]
    assert values(line) == VISIBLE
    assert sorted(cast("list[bytes]", await held_values(line, clock))) == sorted(HELD)


def parts_of(line: Line) -> list[bytes]:
    """The batches that the log has."""
    with cast("Any", line.log.read(0, 1 << 20, wait=True)) as records:
        return [bytes(batch) for _, batch in iter_batches(records.read())]


def with_a_beginning(tmp_path: Path, clock: WallClock, parts: int) -> Line:
    """A leader that has only the first ``parts`` of a batch that was stored in parts."""
    former = Line(tmp_path / "former", clock)
    former.produce(*MIXED, producer_id=7, base_sequence=0)
    line = Line(tmp_path / "t-0", clock)
    for part in parts_of(former)[:parts]:
        line.log.append_as_follower(memoryview(bytearray(part)))
    line.lead()
    return line


async def test_a_mixed_batch_is_stored_in_five_parts(line: Line) -> None:
    line.produce(*MIXED, producer_id=7, base_sequence=0)
    assert [read_header(part).records_count for part in parts_of(line)] == [1, 2, 1, 1, 1]


@pytest.mark.parametrize("parts", range(6))
async def test_what_was_lost_of_a_batch_is_taken_when_it_comes_again(
    tmp_path: Path, clock: WallClock, parts: int
) -> None:
    line = with_a_beginning(tmp_path, clock, parts)
    for _ in range(2):
        info, _ = line.produce(*MIXED, producer_id=7, base_sequence=0)
        assert (info.first_offset, info.last_offset) == (0, 5)
    line.reopen(clean=False)
    info, _ = line.produce(*MIXED, producer_id=7, base_sequence=0)
    assert info.duplicate
    assert line.produce((b"k", b"next", {}), producer_id=7, base_sequence=6)[0].first_offset == 6
    assert values(line) == [*VISIBLE, b"next"]
    assert sorted(cast("list[bytes]", await held_values(line, clock))) == sorted(HELD)


@pytest.mark.parametrize("parts", range(1, 5))
async def test_others_may_have_written_before_the_rest_comes(
    tmp_path: Path, clock: WallClock, parts: int
) -> None:
    line = with_a_beginning(tmp_path, clock, parts)
    line.send(b"other")
    for _ in range(3):
        info, _ = line.produce(*MIXED, producer_id=7, base_sequence=0)
        assert info.first_offset == 0
        assert info.last_offset == line.log.log_end_offset - 1
    assert sorted(cast("list[bytes]", values(line))) == sorted([*VISIBLE, b"other"])
    assert sorted(cast("list[bytes]", await held_values(line, clock))) == sorted(HELD)


async def test_what_was_to_be_held_back_is_visible_if_its_time_has_come_meanwhile(
    tmp_path: Path, clock: WallClock
) -> None:
    line = with_a_beginning(tmp_path, clock, 1)
    due = [(key, value, {"qbus-deliver-at": "5"} if at else at) for key, value, at in MIXED[:4]]
    line.produce(*due, producer_id=7, base_sequence=0)
    assert values(line) == [b"v0", b"h1", b"h2", b"v3"]


@pytest.mark.parametrize("base_sequence", [8, 20, 2**31 - 7])
async def test_what_follows_nothing_is_refused(line: Line, base_sequence: int) -> None:
    line.produce(*MIXED, producer_id=7, base_sequence=0)
    line.produce((b"k", b"v", {}), producer_id=7, base_sequence=6)
    with pytest.raises(ApiError) as refused:
        line.produce(*MIXED, producer_id=7, base_sequence=base_sequence)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# Orders, while what they are about changes


async def test_an_order_finds_what_was_rescheduled_while_a_thread_read(line: Line) -> None:
    offset = line.send(delay="1h")
    cancel = taken_in(line, (b"k", None, {"qbus-cancel": str(offset)}), (None, b"v", LATER))
    cancel.read()
    line.send(reschedule=str(offset), delay="2h")
    _, orders = cancel.append()
    assert (orders.notes, orders.done, line.fold.pending) == ([], 1, 1)


async def test_an_order_finds_what_was_carried_while_a_thread_read(
    line: Line, clock: WallClock
) -> None:
    offset = line.send(key=b"key", delay="30d")
    line.send(reschedule=str(offset), delay="40d")
    orders = [
        taken_in(line, (b"key", None, {"qbus-cancel": target}), (None, b"v", LATER))
        for target in (str(offset), "key")
    ]
    for order in orders:
        order.read()
    await line.delayed.carrying.carry_all_before(line.log.log_end_offset)
    assert line.fold.pending == 1
    for order, found in zip(orders, (1, 0), strict=True):
        assert order.append()[1].done == found
    assert line.fold.pending == 2  # of those that came with the orders


async def test_how_many_orders_found_something_is_said(line: Line) -> None:
    offset = line.send(key=b"key", delay="1h")
    orders = taken_in(
        line,
        (b"other", None, {"qbus-cancel": "key"}),
        (b"key", None, {"qbus-cancel": str(offset)}),
        (b"key", None, {"qbus-cancel": "77"}),
    )
    if orders.needs_thread:
        orders.read()
    _, said = orders.append()
    assert (said.done, [number for number, _ in said.notes]) == (1, [0, 2])
