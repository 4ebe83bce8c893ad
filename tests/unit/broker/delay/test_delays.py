"""Delayed records of one partition: held back, delivered once, cancelled, carried."""

import asyncio
import logging
import random

import pytest

from qbus.broker.delay import DelayFold
from qbus.broker.log import RecordsRefusedError
from qbus.errors import ApiError, CorruptBatch, ErrorCode
from qbus.records import Compression, iter_batches, read_header
from qbus.records.header import HEADER_SIZE, LENGTH_PREFIX, write_header
from tests.support.waiting import eventually

from .conftest import NewLine
from .delays import DAY, HOUR, NOW, Item, Line, WallClock, copy_log, encoded, state


def values(line: Line) -> list[bytes | None]:
    return [record.value for record in line.visible()]


async def test_a_record_is_visible_when_it_is_due_and_not_before(
    line: Line, clock: WallClock
) -> None:
    offset = line.send(b"later", b"k", delay="90s")
    assert (values(line), line.fold.pending) == ([], 1)
    clock.advance(89_999)
    assert await line.deliver() == 0
    clock.advance(1)
    assert await line.deliver() == 1
    (record,) = line.visible()
    assert (record.key, record.value, record.timestamp) == (b"k", b"later", NOW + 90_000)
    assert record.headers == (
        ("qbus-delay", b"90s"),
        ("qbus-delayed-offset", b"%d" % offset),
    )
    assert (line.fold.pending, await line.deliver()) == (0, 0)


async def test_a_time_that_has_passed_delivers_at_once(line: Line) -> None:
    line.send(b"a", deliver_at=str(NOW))
    line.send(b"b", deliver_at="0")
    line.send(b"c", delay="0")
    assert values(line) == [b"a", b"b", b"c"]
    assert not line.log.has_hidden


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("value", [b"qbus-delay", b"sequence"])
async def test_what_has_other_headers_or_none_is_stored_as_it_came(
    line: Line, compression: Compression, value: bytes
) -> None:
    items: tuple[Item, ...] = (b"k", b"v" * 99, {"a": "b"}), (None, value, {})
    batch = encoded(*items, compression=compression)
    assert line.service.may_hold(memoryview(batch)) is False
    info, late = line.produce(*items, compression=compression)
    assert (info.first_offset, info.last_offset, late) == (0, 1, [])
    (stored,) = iter_batches((line.log.read(0, 1000) or pytest.fail("nothing")).read())
    assert bytes(stored[1])[21:] == bytes(batch)[21:]


async def test_a_mixed_batch_keeps_its_offsets(line: Line, clock: WallClock) -> None:
    delay = {"qbus-delay": "1s"}
    info, _ = line.produce(
        (None, b"0", {}), (None, b"1", delay), (None, b"2", delay), (None, b"3", {})
    )
    assert (info.first_offset, info.last_offset) == (0, 3)
    assert [(record.offset, record.value) for record in line.visible()] == [(0, b"0"), (3, b"3")]
    clock.advance(1000)
    await line.deliver()
    assert [record.offset for record in line.visible()] == [0, 3, 5, 6]
    assert values(line) == [b"0", b"3", b"1", b"2"]


@pytest.mark.parametrize("compression", list(Compression))
async def test_compressed_batches(line: Line, clock: WallClock, compression: Compression) -> None:
    delay = {"qbus-delay": "1s"}
    line.produce((None, b"held" * 100, delay), (None, b"x", {}), compression=compression)
    line.produce((None, b"all" * 100, delay), compression=compression)
    clock.advance(1000)
    await line.deliver()
    assert values(line) == [b"x", b"held" * 100, b"all" * 100]


async def test_what_is_sent_again_is_stored_once(line: Line, clock: WallClock) -> None:
    delay = {"qbus-delay": "1s"}
    mixed: tuple[Item, ...] = ((None, b"0", {}), (None, b"1", delay), (None, b"2", {}))
    held = ((None, b"3", delay),)
    first, _ = line.produce(*mixed, producer_id=7, base_sequence=0)
    second, _ = line.produce(*held, producer_id=7, base_sequence=3)
    for reopened in (None, False, True):
        if reopened is not None:
            line.reopen(clean=reopened)
        again, _ = line.produce(*mixed, producer_id=7, base_sequence=0)
        assert (again.duplicate, again[:2]) == (True, first[:2])
        again, _ = line.produce(*held, producer_id=7, base_sequence=3)
        assert (again.duplicate, again[:2]) == (True, second[:2])
    with pytest.raises(ApiError) as refused:
        line.produce(*mixed, producer_id=7, base_sequence=5)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    clock.advance(1000)
    await line.deliver()
    assert values(line) == [b"0", b"2", b"1", b"3"]


async def test_orders_of_idempotent_producers_are_carried_out_once(line: Line) -> None:
    target = line.send(delay="1h")
    cancel = (None, None, {"qbus-cancel": str(target)})
    first, late = line.produce(cancel, producer_id=7, base_sequence=0)
    assert late == []
    again, late = line.produce(cancel, producer_id=7, base_sequence=0)
    assert (again.duplicate, again.first_offset, late) == (True, first.first_offset, [])
    assert line.fold.cancelled == 1


async def test_what_is_said_of_an_order_is_said_again_when_it_is_sent_again(line: Line) -> None:
    offset = line.send(delay="1h")
    orders: tuple[Item, ...] = (
        (None, b"visible", {}),
        (None, None, {"qbus-cancel": "7"}),
        (None, None, {"qbus-cancel": str(offset)}),
        (None, None, {"qbus-reschedule": "8", "qbus-delay": "1s"}),
    )
    first, late = line.produce(*orders, producer_id=7, base_sequence=0)
    again, known = line.produce(*orders, producer_id=7, base_sequence=0)
    assert (again.first_offset, again.duplicate) == (first.first_offset, True)
    assert late == known == [1, 3]


async def test_cancelled_by_offset(line: Line, clock: WallClock) -> None:
    keep, drop = line.send(b"keep", delay="1s"), line.send(b"drop", delay="1s")
    _, late = line.produce((None, None, {"qbus-cancel": str(drop)}))
    assert late == []
    clock.advance(1000)
    await line.deliver()
    assert values(line) == [b"keep"]
    assert (line.fold.cancelled, line.fold.pending) == (1, 0)
    _, late = line.produce((None, None, {"qbus-cancel": str(keep)}))
    assert late == [0]


@pytest.mark.parametrize("target", [0, 1, 2, 3, 99, 2**63 - 1])
async def test_cancelling_what_is_not_delayed_is_said(line: Line, target: int) -> None:
    line.send(b"plain")
    cancelled = line.send(delay="1s")
    line.produce((None, None, {"qbus-cancel": str(cancelled)}))
    _, late = line.produce((None, b"x", {}), (None, None, {"qbus-cancel": str(target)}))
    assert late == [1]


async def test_cancelled_by_key(line: Line, clock: WallClock) -> None:
    for number in range(20):
        line.send(b"%d" % number, b"k%d" % (number % 2), delay="1s")
    line.produce((b"k1", None, {"qbus-cancel": "key"}))
    clock.advance(1000)
    await line.deliver()
    assert values(line) == [b"%d" % number for number in range(0, 20, 2)]
    _, late = line.produce((b"k1", None, {"qbus-cancel": "key"}))
    assert late == [0]


async def test_rescheduled_earlier_later_and_again(line: Line, clock: WallClock) -> None:
    offset = line.send(b"v", delay="1h")
    line.produce((None, None, {"qbus-reschedule": str(offset), "qbus-delay": "2h"}))
    line.reopen()
    clock.advance(HOUR)
    assert await line.deliver() == 0
    line.produce((None, None, {"qbus-reschedule": str(offset), "qbus-delay": "5s"}))
    line.reopen(clean=False)
    clock.advance(5_000)
    assert await line.deliver() == 1
    (record,) = line.visible()
    assert record.timestamp == NOW + HOUR + 5_000
    _, late = line.produce((None, None, {"qbus-reschedule": str(offset), "qbus-delay": "1"}))
    assert len(late) == 1


async def test_a_rescheduled_record_is_cancelled_as_any(line: Line) -> None:
    offset = line.send(delay="1h")
    line.produce((None, None, {"qbus-reschedule": str(offset), "qbus-delay": "2h"}))
    line.produce((None, None, {"qbus-cancel": str(offset)}))
    assert (line.fold.pending, line.fold.rescheduled) == (0, {})


async def test_what_comes_too_late_for_its_ttl_is_given_up(
    line: Line, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    line.send(b"fresh", delay="1s", ttl="1h")
    line.send(b"stale", delay="1s", ttl="1s")
    clock.advance(2_001)
    await line.deliver()
    assert values(line) == [b"fresh"]
    assert (line.fold.expired, line.fold.pending) == (1, 0)
    assert "1 delayed records were due too long ago" in caplog.text


async def test_log_append_time_is_the_time_of_delivery(new_line: NewLine, clock: WallClock) -> None:
    line = new_line(message_timestamp_type="LogAppendTime")
    line.produce((None, b"a", {}), (None, b"b", {"qbus-delay": "1s"}))
    clock.advance(5_000)
    await line.deliver()
    assert [record.timestamp for record in line.visible()] == [NOW, NOW + 5_000]


# Refused


async def test_the_record_that_is_to_blame_is_named(line: Line) -> None:
    with pytest.raises(RecordsRefusedError, match="record 1 of the batch: qbus-delay: 'x'") as no:
        line.produce((None, b"a", {}), (None, b"b", {"qbus-delay": "x"}))
    assert no.value.code is ErrorCode.INVALID_RECORD
    assert [number for number, _ in no.value.errors] == [1]
    assert line.log.log_end_offset == 0


async def test_too_far_ahead(new_line: NewLine) -> None:
    line = new_line(qbus_delay_max_ms=1000)
    line.send(delay="1s")
    why = r"in 1001ms, and qbus\.delay\.max\.ms \(1000\) allows 1s"
    with pytest.raises(RecordsRefusedError, match=why):
        line.send(delay="1001")
    with pytest.raises(RecordsRefusedError, match=r"qbus\.delay\.max\.ms"):
        line.send(deliver_at=str(2**63 - 1))
    offset = line.log.log_end_offset - 1
    with pytest.raises(RecordsRefusedError, match=r"qbus\.delay\.max\.ms"):
        line.send(reschedule=str(offset), delay="2s")


async def test_too_many(new_line: NewLine) -> None:
    line = new_line(qbus_delay_max_pending=2)
    line.send(delay="1s")
    delay = {"qbus-delay": "1s"}
    with pytest.raises(RecordsRefusedError, match=r"record 2.*holds 1 delayed records"):
        line.produce((None, b"", {}), (None, b"", delay), (None, b"", delay))
    line.send(delay="1s")
    with pytest.raises(RecordsRefusedError, match="record 0"):
        line.send(delay="1s")


async def test_damaged_batches_are_refused_as_anywhere(line: Line) -> None:
    batch = encoded((None, b"v", {"qbus-delay": "1s"}))
    batch[-1] ^= 1
    with pytest.raises(ApiError) as refused:
        line.service.intake(line, memoryview(batch), -1)  # type: ignore[arg-type]
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("compression", [one for one in Compression if one])
async def test_what_nobody_can_decompress_is_refused(line: Line, compression: Compression) -> None:
    batch = encoded((None, b"some value" * 9, {}), compression=compression)
    content = bytes(batch[HEADER_SIZE:])
    for damaged in (content[:-9], content[:4] + b"?" * len(content)):
        cut = batch[:HEADER_SIZE] + damaged
        write_header(cut, read_header(batch)._replace(batch_length=len(cut) - LENGTH_PREFIX))
        assert line.service.may_hold(memoryview(cut))
        with pytest.raises(CorruptBatch):
            line.service.intake(line, memoryview(cut), -1)  # type: ignore[arg-type]


# The clock


async def test_a_clock_set_back_delays_and_one_set_forward_delivers_and_both_are_said(
    line: Line, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    line.send(b"v", delay="30m")
    clock.set(NOW - HOUR)
    line.service.watch_clock()
    assert "the clock was set back by 3600.0 s: 1 delayed records" in caplog.text
    clock.advance(HOUR)
    assert await line.deliver() == 0
    clock.set(NOW + HOUR)
    line.service.watch_clock()
    assert "the clock was set forward by 3600.0 s" in caplog.text
    assert await line.deliver() == 1


@pytest.mark.parametrize("year", [2038, 2100])
async def test_other_centuries(new_line: NewLine, clock: WallClock, year: int) -> None:
    clock.set((year - 1970) * 365 * DAY + 25 * DAY)
    line = new_line()
    line.send(b"v", delay="700d")
    line.reopen()
    clock.advance(700 * DAY - 1)
    assert await line.deliver() == 0
    clock.advance(1)
    assert await line.deliver() == 1


async def test_the_timer_delivers_by_itself(line: Line, clock: WallClock) -> None:
    line.send(b"v", delay="1s")
    clock.advance(1000)
    line.delayed.wake()
    await eventually(line.visible)


async def test_waking_it_again_and_again_does_not_put_off_what_is_due(
    line: Line, clock: WallClock
) -> None:
    offset = line.send(b"v", delay="1s")
    assert line.delayed.held.read(offset, wait=True) is not None  # so that it is in memory
    clock.advance(1000)
    line.delayed.wake()
    loop = asyncio.get_running_loop()
    end = loop.time() + 0.05
    while loop.time() < end:
        line.delayed.wake()
    await asyncio.sleep(0)  # the loop runs what its timers are due for
    await asyncio.sleep(0)
    assert values(line) == [b"v"]


async def test_what_cannot_be_appended_waits_and_says_so(
    line: Line, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    line.send(b"v", delay="1s")
    clock.advance(1000)
    line.refusal = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "1 in-sync replica, 2 needed")
    line.delayed.look()
    said = "t-0: 1 delayed records are due, and wait: 1 in-sync replica"
    await eventually(lambda: said in caplog.text)
    line.refusal = None
    assert await line.deliver() == 1


async def test_nothing_is_delivered_where_another_broker_leads(
    line: Line, clock: WallClock
) -> None:
    line.send(b"v", delay="1s")
    clock.advance(1000)
    line.service.stepping_down(line, ErrorCode.NOT_LEADER_OR_FOLLOWER)  # type: ignore[arg-type]
    await asyncio.sleep(0.02)
    assert values(line) == []
    line.lead()
    assert await line.deliver() == 1


# Carried


async def test_retention_carries_what_is_not_due(new_line: NewLine, clock: WallClock) -> None:
    line = new_line(retention_ms=DAY)
    offset = line.send(b"far", b"k", delay="30d", ttl="1h")
    line.send(b"plain")
    for _ in range(30):
        line.log.roll()
        line.log.flush()
        clock.advance(DAY - 1000)
        line.send(b"plain")
        await line.carry()
        line.log.apply_retention()
        line.reopen()
    assert line.log.first_segment_offset > offset
    assert line.log.segment_count < 5
    clock.set(NOW + 30 * DAY)
    assert await line.deliver() == 1
    record = next(record for record in line.visible() if record.value == b"far")
    assert record.timestamp == NOW + 30 * DAY
    assert record.headers[-1] == ("qbus-delayed-offset", b"%d" % offset)


async def test_carried_records_are_cancelled_and_rescheduled_by_their_first_offset(
    new_line: NewLine, clock: WallClock
) -> None:
    line = new_line(retention_ms=DAY)
    offsets = [line.send(b"%d" % number, b"k", delay="30d") for number in range(4)]
    for _ in range(2):
        line.log.roll()
        line.log.flush()
        clock.advance(2 * DAY)
        await line.carry()
        assert line.log.apply_retention() > 0
    line.produce((None, None, {"qbus-cancel": str(offsets[0])}))
    line.produce((None, None, {"qbus-reschedule": str(offsets[1]), "qbus-delay": "1s"}))
    assert line.fold.pending == 3
    clock.advance(1000)
    await line.deliver()
    assert values(line) == [b"1"]
    line.produce((b"k", None, {"qbus-cancel": "key"}))
    assert line.fold.pending == 0


async def test_deleting_all_that_is_visible_deletes_nothing_that_is_not(
    line: Line, clock: WallClock
) -> None:
    line.send(b"plain")
    line.send(b"later", delay="1h")
    end = line.log.log_end_offset
    line.log.roll()
    await line.service.clear_before(line, end)  # type: ignore[arg-type]
    line.log.delete_records_before(end)
    line.log.roll()
    line.log.flush()
    assert line.log.apply_retention() == 1
    line.reopen(clean=False)
    clock.advance(HOUR)
    assert await line.deliver() == 1
    assert values(line) == [b"later"]


async def test_what_lies_before_the_start_of_the_log_is_read(line: Line, clock: WallClock) -> None:
    line.send(b"later", delay="1h")
    line.log.delete_records_before(1)
    clock.advance(HOUR)
    assert await line.deliver() == 1


async def test_what_is_too_much_is_carried_unless_most_of_it_is_held_back(
    new_line: NewLine,
) -> None:
    line = new_line(retention_bytes=0, retention_ms=-1)
    for _ in range(3):
        line.send(b"held", delay="1h")
        line.send(b"plain")
        line.send(b"plain")
    line.log.roll()
    line.log.flush()
    before = line.log.log_end_offset
    await line.carry()
    assert line.fold.needed_from == before
    line.log.roll()
    line.log.flush()
    await line.carry()
    assert line.fold.needed_from == before, "held back alone, it would be written again and again"


async def test_one_that_moves_while_others_are_carried_is_carried_too(
    new_line: NewLine, clock: WallClock
) -> None:
    line = new_line(retention_ms=DAY)
    offsets = [line.send(b"%d" % number, delay=f"{number + 1}d") for number in range(50)]
    line.log.roll()
    line.log.flush()
    clock.advance(2 * DAY)
    await line.deliver()
    carrying = asyncio.ensure_future(
        line.delayed.carrying.carry_all_before(line.log.log_end_offset)
    )
    for offset in offsets[5:]:
        await asyncio.sleep(0)
        line.produce((None, None, {"qbus-reschedule": str(offset), "qbus-delay": "100d"}))
    await carrying
    assert line.fold.pending == 48
    assert all(
        held.offset >= line.fold.bound for slot in line.fold.schedule.slots() for held in slot
    )


async def test_two_years_of_hours(new_line: NewLine, clock: WallClock) -> None:
    """Segments roll every twelve hours and live for a week: the disk holds what is pending."""
    line = new_line(retention_ms=7 * DAY, segment_ms=12 * HOUR)
    rng = random.Random(5)
    expected = {}
    for number in range(200):
        due = NOW + rng.randint(1, 729) * DAY
        line.send(b"%d" % number, deliver_at=str(due))
        expected[number] = due
    delivered: dict[int, int] = {}
    seen = 0
    for _ in range(730 * 2):
        clock.advance(12 * HOUR)
        await line.deliver()
        line.send(b"")
        for record in line.visible():
            if record.offset >= seen and record.value:
                number = int(record.value)
                assert number not in delivered
                delivered[number] = clock.time_ms()
        seen = line.log.log_end_offset
        line.log.roll_if_due()
        line.log.flush()
        await line.carry()
        line.log.apply_retention()
        assert line.log.segment_count <= 20
        assert line.log.size < 200 * 600 * 3
    assert delivered.keys() == expected.keys()
    assert all(0 <= delivered[number] - expected[number] < DAY for number in expected)


# Random lives


@pytest.mark.parametrize("seed", range(25))
async def test_exactly_once_whatever_happens(  # noqa: C901 - a life
    new_line: NewLine, clock: WallClock, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    rng = random.Random(seed)
    line = new_line(segment_bytes=rng.choice([2_000, 1 << 30]), retention_ms=-1)
    due: dict[int, int] = {}  # by the offset that the producer was told
    for _ in range(150):
        deed = rng.random()
        if deed < 0.5:
            delays = [rng.choice([None, rng.randint(1, 5_000)]) for _ in range(rng.randint(1, 4))]
            info, _ = line.produce(
                *((b"k", b"v", {} if d is None else {"qbus-delay": str(d)}) for d in delays)
            )
            for number, delay in enumerate(delays):
                if delay is not None:
                    due[info.first_offset + number] = clock.time_ms() + delay
        elif deed < 0.6 and due:
            target = rng.choice(sorted(due))
            _, late = line.produce((None, None, {"qbus-cancel": str(target)}))
            assert not late
            del due[target]
        elif deed < 0.7 and due:
            target, delay = rng.choice(sorted(due)), rng.randint(1, 5_000)
            line.produce((None, None, {"qbus-reschedule": str(target), "qbus-delay": str(delay)}))
            due[target] = clock.time_ms() + delay
        elif deed < 0.75:
            line.reopen(clean=rng.random() < 0.5)
        elif deed < 0.8:
            line.log.roll()
        elif deed < 0.85:
            end = line.log.log_end_offset
            line.log.roll()
            await line.service.clear_before(line, end)  # type: ignore[arg-type]
            line.log.delete_records_before(end)
            line.log.flush()
            line.log.apply_retention()
        else:
            clock.advance(rng.randint(0, 1000))
            before = len(line.visible())
            await line.deliver()
            new = line.visible()[before:]
            expected = sorted(
                (time, offset) for offset, time in due.items() if time <= clock.time_ms()
            )
            # In which order those of one time come is open: some may have been carried.
            assert (
                sorted((record.timestamp, int(record.headers[-1][1] or b"")) for record in new)
                == expected
            )
            assert [record.timestamp for record in new] == [time for time, _ in expected]
            for _, offset in expected:
                del due[offset]
        assert line.fold.pending == len(due)
    for snapshot in line.directory.glob("*.control"):
        snapshot.unlink()
    known = state(line.fold)
    line.reopen(clean=False)
    assert state(line.fold) == known
    follower = new_line()
    copy_log(line, follower)
    assert state(follower.fold)[0] == known[0]
    assert follower.fold.needed_from is None or all(
        held.offset >= follower.fold.needed_from for held in state(follower.fold)[0]
    )


async def test_a_torn_append_delivers_all_or_nothing(new_line: NewLine, clock: WallClock) -> None:
    """Cut at every byte of the append that delivers, the record is held back, or visible."""
    line = new_line()
    line.send(b"once", delay="1s")
    held = line.log.size
    clock.advance(1000)
    await line.deliver()
    whole = next(line.directory.glob("*.log")).read_bytes()
    outcomes = set()
    for size in range(held, len(whole) + 1):
        torn = new_line()
        torn.service.stop()
        torn.log.close()
        for leftover in torn.directory.iterdir():
            leftover.unlink()
        (torn.directory / f"{0:020d}.log").write_bytes(whole[:size])
        torn.log = torn._open(clean=False, recovery_point=0)
        torn.lead()
        outcome = (torn.fold.pending, len(torn.visible()))
        outcomes.add(outcome)
        assert sum(outcome) == 1
        await torn.deliver()
        assert values(torn) == [b"once"]
    assert outcomes == {(1, 0), (0, 1)}


async def test_a_truncation_between_the_accounting_and_its_records(
    line: Line, clock: WallClock
) -> None:
    line.send(b"once", delay="1s")
    clock.advance(1000)
    await line.deliver()
    assert line.log.log_end_offset == 3
    line.log.truncate_to(2)
    assert line.fold.pending == 1
    line.send(b"other")
    assert line.fold.pending == 1
    await line.deliver()
    assert values(line) == [b"other", b"once"]


async def test_a_snapshot_that_makes_no_sense_is_refused() -> None:
    fold = DelayFold()
    for content in (b"", b"x", b"\0" * 19, b"\0" * 21, b"\xff" * 20):
        with pytest.raises(ValueError, match="snapshot"):
            fold.restore(content)
