"""A producer's batch that comes again: stored once, whatever became of it the first time."""

from pathlib import Path
from typing import Any, cast

import pytest

from qbus.broker.delay.incoming import PartitionIntake
from qbus.broker.delay.intake import OrdersStored, StoredMeanwhileError
from qbus.broker.log import AppendInfo
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


def append(line: Line, *items: Item, **fields: Any) -> tuple[AppendInfo, OrdersStored]:
    """Append a batch, as a request does."""
    intake = taken_in(line, *items, **fields)
    if intake.needs_thread:
        intake.read()
    return intake.append()


def append_read(line: Line, intake: PartitionIntake) -> tuple[AppendInfo, OrdersStored]:
    """What a request does once a thread has read for it."""
    try:
        return intake.append()
    except StoredMeanwhileError as changed:
        batch = memoryview(bytearray(changed.batch))
    again = line.service.intake(cast("Partition", line), batch, ACKS_ALL)
    assert again is not None
    again.read()
    return again.append()


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
    first, second = (append_read(line, copy) for copy in copies)
    assert (first[0].first_offset, first[0].last_offset) == (0, 5)
    assert (second[0].first_offset, second[0].last_offset) == (0, 5)
    assert second[0].duplicate
    assert second[1].late == first[1].late
    assert values(line) == VISIBLE
    assert sorted(cast("list[bytes]", await held_values(line, clock))) == sorted(HELD)


def parts_of(line: Line) -> list[bytes]:
    """The batches that the log has."""
    with cast("Any", line.log.read(0, 1 << 20, wait=True)) as records:
        return [bytes(batch) for _, batch in iter_batches(records.read())]


def with_a_beginning(
    tmp_path: Path, clock: WallClock, parts: int, items: list[Item] = MIXED, *before: Item
) -> Line:
    """A leader that has only the first ``parts`` of a batch that was stored in parts.

    ``before``: what another producer sent before, of which each is one part.
    """
    former = Line(tmp_path / "former", clock)
    for item in before:
        former.produce(item)
    former.produce(*items, producer_id=7, base_sequence=0)
    line = Line(tmp_path / "t-0", clock)
    for part in parts_of(former)[: len(before) + parts]:
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
        assert info.first_offset == -1  # there is no place that all the others follow from
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
    assert (orders.late, orders.done, line.fold.pending) == ([], 1, 1)


async def test_an_order_finds_what_was_carried_while_a_thread_read(
    line: Line, clock: WallClock
) -> None:
    offset = line.send(key=b"key", delay="30d")
    line.send(reschedule=str(offset), delay="40d")
    other = line.send(key=b"other", delay="30d")
    line.send(reschedule=str(other), delay="40d")
    orders = [
        taken_in(line, (key, None, {"qbus-cancel": target}), (None, b"v", LATER))
        for key, target in ((b"key", str(offset)), (b"other", "key"))
    ]
    for order in orders:
        order.read()
    await line.delayed.carrying.carry_all_before(line.log.log_end_offset)
    assert line.fold.pending == 2
    for order in orders:
        assert order.append()[1] == ([], 1)
    assert line.fold.pending == 2  # of those that came with the orders


async def test_a_batch_is_taken_in_anew_if_its_producer_was_forgotten_while_a_thread_read(
    tmp_path: Path, clock: WallClock
) -> None:
    line = with_a_beginning(tmp_path, clock, 3)
    intake = taken_in(line, *MIXED, producer_id=7, base_sequence=0)
    intake.read()
    line.log.producers.expire(clock.time_ms(), 0)
    end = line.log.log_end_offset
    with pytest.raises(StoredMeanwhileError):
        intake.append()
    assert line.log.log_end_offset == end
    info, orders = append_read(line, intake)
    assert (info.first_offset, info.last_offset) == (end, end + 5)
    assert orders.late == [4]


@pytest.mark.parametrize("times", [1, 2])
async def test_nothing_is_appended_where_somebody_else_leads_by_now(line: Line, times: int) -> None:
    for _ in range(times - 1):
        append(line, *MIXED, producer_id=7, base_sequence=0)
    intake = taken_in(line, *MIXED, producer_id=7, base_sequence=0)
    intake.read()
    line.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError) as refused:
        intake.append()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.sources
@pytest.mark.parametrize("times", [1, 2])
async def test_a_disk_that_cannot_be_read_refuses_one_batch(
    line: Line, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    line.send(key=b"e", delay="1h")
    for _ in range(times - 1):
        append(line, *MIXED, producer_id=7, base_sequence=0)
    intake = taken_in(line, *MIXED, producer_id=7, base_sequence=0)

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(line.log, "read_batch", fail)
    with pytest.raises(ApiError) as refused:
        intake.read()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


# Orders of a batch of which a beginning is stored


HELD_BEFORE: Item = (b"k", b"before", LATER)  # at offset 0


async def test_what_orders_in_the_beginning_did_is_said_again(
    tmp_path: Path, clock: WallClock
) -> None:
    items: list[Item] = [(b"k", None, {"qbus-cancel": "0"}), (b"a", b"v", {})]
    line = with_a_beginning(tmp_path, clock, 1, items, HELD_BEFORE)
    assert line.fold.pending == 0
    for _ in range(2):
        assert append(line, *items, producer_id=7, base_sequence=0)[1] == ([], 1)


async def test_a_note_about_the_beginning_is_said_again(tmp_path: Path, clock: WallClock) -> None:
    items: list[Item] = [
        (b"k", None, {"qbus-cancel": "7777"}),
        (b"a", b"v", {}),
        (b"k", None, {"qbus-cancel": "0"}),
    ]
    line = with_a_beginning(tmp_path, clock, 1, items, HELD_BEFORE)
    for _ in range(2):
        _, orders = append(line, *items, producer_id=7, base_sequence=0)
        assert (orders.late, orders.done) == ([0], 1)


@pytest.mark.parametrize("base_sequence", [0, 2**31 - 2])
async def test_orders_of_others_between_the_parts_are_not_its_own(
    tmp_path: Path, clock: WallClock, base_sequence: int
) -> None:
    items: list[Item] = [
        (b"a", b"v", {}),
        (b"k", None, {"qbus-cancel": "8888"}),
        (b"a", b"v", {}),
        (b"k", None, {"qbus-cancel": "7777"}),
    ]
    former = Line(tmp_path / "former", clock)
    former.produce(HELD_BEFORE)
    former.produce(*items, producer_id=7, base_sequence=base_sequence)
    line = Line(tmp_path / "t-0", clock)
    for part in parts_of(former)[:3]:
        line.log.append_as_follower(memoryview(bytearray(part)))
    line.lead()
    others: list[Item] = [(b"k", None, {"qbus-cancel": target}) for target in ("0", "55555")]
    append(line, *others, producer_id=8, base_sequence=base_sequence)
    for _ in range(2):
        _, orders = append(line, *items, producer_id=7, base_sequence=base_sequence)
        assert (orders.late, orders.done) == ([1, 3], 0)


async def test_orders_of_the_same_producer_before_and_behind_a_batch_are_not_its_own(
    line: Line,
) -> None:
    for number in range(3):
        append(line, (b"k", None, {"qbus-cancel": "7777"}), producer_id=7, base_sequence=number)
    _, orders = append(line, (b"k", None, {"qbus-cancel": "7777"}), producer_id=7, base_sequence=1)
    assert orders.late == [0]


async def test_a_batch_that_lies_apart_does_not_tell_the_place_of_anothers(
    tmp_path: Path, clock: WallClock
) -> None:
    items: list[Item] = [(b"a", b"v", {}), (b"k", b"mine", LATER)]
    line = with_a_beginning(tmp_path, clock, 1, items)
    assert line.send(b"another's", delay="1h") == 1
    for _ in range(2):
        info, _ = append(line, *items, producer_id=7, base_sequence=0)
        assert (info.first_offset, info.last_offset) == (-1, 2)


# Orders about what is held back of their own batch


async def test_an_order_finds_what_came_before_it_in_its_batch(
    line: Line, clock: WallClock
) -> None:
    line.produce(HELD_BEFORE)
    _, orders = append(
        line,
        (b"k", b"first", LATER),
        (b"other", b"others", LATER),
        (b"k", None, {"qbus-cancel": "key"}),
        (b"k", b"last", LATER),
    )
    assert orders == ([], 1)
    assert await held_values(line, clock) == [b"others", b"last"]


async def test_an_order_without_a_key_finds_what_has_none(line: Line, clock: WallClock) -> None:
    cancel: Item = (None, None, {"qbus-cancel": "key"})
    _, orders = append(line, (None, b"none", LATER), (b"", b"empty", LATER), cancel)
    assert orders == ([], 1)
    assert await held_values(line, clock) == [b"empty"]


async def test_what_is_cancelled_twice_in_a_batch_was_cancelled_once(line: Line) -> None:
    before = line.send(key=b"k", delay="1h")
    cancel: Item = (b"k", None, {"qbus-cancel": "key"})
    by_offset: Item = (b"k", None, {"qbus-cancel": str(before)})
    _, orders = append(line, (b"k", b"v", LATER), cancel, cancel, by_offset)
    assert (orders.late, orders.done) == ([2, 3], 1)
    assert (line.fold.pending, line.fold.cancelled) == (0, 2)


@pytest.mark.parametrize("before", [0, 1])
async def test_a_batch_may_reschedule_what_it_then_cancels(line: Line, before: int) -> None:
    for _ in range(before):
        line.produce(HELD_BEFORE)
    _, orders = append(
        line,
        (b"k", b"new", LATER),
        (b"k", None, {"qbus-reschedule": "0", "qbus-delay": "90m"}),
        (b"k", None, {"qbus-cancel": "key"}),
    )
    assert (orders, line.fold.pending) == (([], 2), 0)


async def test_a_batch_may_reschedule_its_own_record(line: Line, clock: WallClock) -> None:
    line.send(b"visible")
    _, orders = append(
        line,
        (b"k", b"later", LATER),
        (b"k", b"last", LATER),
        (b"k", None, {"qbus-reschedule": "1", "qbus-delay": "2h"}),
        (b"k", None, {"qbus-reschedule": "3", "qbus-delay": "2h"}),
    )
    assert (orders.late, orders.done) == ([3], 1)
    assert line.fold.rescheduled == {1: clock.time_ms() + 2 * HOUR}
    clock.advance(HOUR)
    await line.deliver()
    assert values(line) == [b"visible", b"last"]


async def test_an_order_in_the_rest_of_a_batch_finds_what_came_in_the_beginning_and_the_rest(
    tmp_path: Path, clock: WallClock
) -> None:
    items: list[Item] = [
        (b"k", b"beginning", LATER),
        (b"a", b"v", {}),
        (b"k", b"rest", LATER),
        (b"k", None, {"qbus-cancel": "2"}),
        (b"k", None, {"qbus-cancel": "key"}),
    ]
    line = with_a_beginning(tmp_path, clock, 2, items)
    _, orders = append(line, *items, producer_id=7, base_sequence=0)
    assert (orders, line.fold.pending) == (([], 2), 0)


# Delays that were switched off


@pytest.mark.parametrize(
    ("parts", "visible"),
    [
        (2, [b"v0", b"v3", None, b"h5"]),
        (3, [b"v0", b"v3", None, b"h5"]),
        (4, [b"v0", b"v3", b"h5"]),
        (5, [b"v0", b"v3"]),
    ],
)
async def test_what_is_missing_of_a_batch_is_visible_where_delays_were_switched_off(
    tmp_path: Path, clock: WallClock, parts: int, visible: list[bytes | None]
) -> None:
    line = with_a_beginning(tmp_path, clock, parts)
    line.configure(qbus_delay_enable=False)
    before = line.fold.pending
    for _ in range(2):
        info, _ = append(line, *MIXED, producer_id=7, base_sequence=0)
        assert (info.first_offset, info.last_offset) == (0, 5)
    assert line.fold.pending == before
    assert values(line) == visible
    assert line.produce((b"k", b"next", LATER), producer_id=7, base_sequence=6)[0].first_offset == 6
    assert values(line) == [*visible, b"next"]


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
    assert (said.done, said.late) == (1, [0, 2])
