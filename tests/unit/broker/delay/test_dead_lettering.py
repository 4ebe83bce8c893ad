"""Records that are due too late for their ``qbus-ttl``, where there is a topic for them."""

import asyncio
import logging
import random
import tracemalloc

import pytest

from qbus.errors import ApiError, ErrorCode
from qbus.records import Compression
from tests.support.waiting import eventually

from .conftest import NewLine
from .delays import NOW, Line, WallClock

MISSING = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "dead is missing")


def values(line: Line) -> list[bytes | None]:
    """What came into the dead letter topics."""
    return [record.value for _, record in line.dead_letters]


async def test_of_records_that_wait_only_their_places_are_in_memory(
    new_line: NewLine, clock: WallClock
) -> None:
    line = new_line(cache_bytes=(1_000_000, 1_000_000), qbus_delay_dead_letter_topic="dead")
    line.dead_letter_error = MISSING
    for _ in range(40):
        line.send(bytes(900_000), delay="1s", ttl="0")
    clock.advance(5_000)
    tracemalloc.start()
    try:
        while len(line.delayed.dead_lettering) < 40:
            await line.deliver()
        await asyncio.sleep(0)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 10_000_000
    line.dead_letter_error = None
    await eventually(lambda: line.fold.pending == 0)
    assert len(line.dead_letters) == line.fold.expired == 40


async def test_no_batch_of_them_is_larger_than_its_records_make_necessary(
    new_line: NewLine, clock: WallClock
) -> None:
    line = new_line(qbus_delay_dead_letter_topic="dead")
    line.most_dead_letter_bytes = 1_048_588
    sizes = (500_000, 900_000, 10_000, 500_000, 20_000)
    for size in sizes:
        line.send(bytes(size), delay="1s", ttl="0")
    clock.advance(5_000)
    await line.deliver()
    await eventually(lambda: line.fold.pending == 0)
    assert [len(value or b"") for value in values(line)] == list(sizes)
    assert len(line.dead_letter_sizes) == 4
    assert max(line.dead_letter_sizes) < 901_000


async def test_what_is_too_large_together_is_moved_one_by_one(
    new_line: NewLine, clock: WallClock
) -> None:
    line = new_line(qbus_delay_dead_letter_topic="dead")
    line.most_dead_letter_bytes = 1_500
    for number in range(10):
        line.send(b"%d" % number + bytes(1_000), delay="1s", ttl="0")
    clock.advance(5_000)
    await line.deliver()
    await eventually(lambda: line.fold.pending == 0)
    assert [(value or b"")[:1] for value in values(line)] == [b"%d" % n for n in range(10)]
    assert line.fold.expired == 10


async def test_what_is_too_large_as_it_is_is_compressed_and_else_dropped_and_that_is_said(
    new_line: NewLine, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    line = new_line(qbus_delay_dead_letter_topic="dead")
    line.most_dead_letter_bytes = 10_000
    headers = {"qbus-delay": "1s", "qbus-ttl": "0"}
    grown = b"compressed" * 100_000
    line.produce((None, grown, headers), compression=Compression.GZIP)
    hopeless = line.produce((None, random.Random(1).randbytes(20_000), headers))[0].first_offset
    line.send(b"small", delay="1s", ttl="0")
    clock.advance(5_000)
    await line.deliver()
    await eventually(lambda: line.fold.pending == 0)
    assert values(line) == [grown, b"small"]
    assert line.fold.expired == 3
    (said,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert f"offset {hopeless} " in said
    assert "dead letter topic dead" in said


async def test_the_topic_is_the_one_that_is_configured_now(
    new_line: NewLine, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    line = new_line(qbus_delay_dead_letter_topic="missing")
    line.dead_letter_error = MISSING
    line.send(delay="1s", ttl="0")
    clock.advance(5_000)
    await line.deliver()
    await eventually(lambda: "wait for their dead letter topic missing" in caplog.text)
    line.configure(qbus_delay_dead_letter_topic="other")
    line.dead_letter_error = None
    await eventually(lambda: line.fold.pending == 0)
    assert [topic for topic, _ in line.dead_letters] == ["other"]


async def test_what_waits_is_dropped_when_no_topic_is_configured_any_more(
    new_line: NewLine, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    line = new_line(qbus_delay_dead_letter_topic="missing")
    line.dead_letter_error = MISSING
    line.send(delay="1s", ttl="0")
    clock.advance(5_000)
    await line.deliver()
    await eventually(lambda: "wait for their dead letter topic missing" in caplog.text)
    line.configure(qbus_delay_dead_letter_topic="")
    await eventually(lambda: line.fold.pending == 0)
    assert (line.fold.expired, line.dead_letters) == (1, [])
    assert "1 delayed records were due too long ago, and are dropped" in caplog.text


async def test_what_is_rescheduled_while_it_waits_is_delivered(
    new_line: NewLine, clock: WallClock
) -> None:
    line = new_line(qbus_delay_dead_letter_topic="dead")
    line.dead_letter_error = MISSING
    offset = line.send(b"late", delay="1s", ttl="0")
    clock.advance(5_000)
    await line.deliver()
    assert len(line.delayed.dead_lettering) == 1
    line.send(reschedule=str(offset), delay="1s")
    clock.advance(1_000)
    assert await line.deliver() == 1
    line.dead_letter_error = None
    await eventually(lambda: not line.delayed.dead_lettering)
    assert (line.dead_letters, line.fold.expired) == ([], 0)


async def test_as_many_wait_as_the_documentation_says(new_line: NewLine, clock: WallClock) -> None:
    line = new_line(qbus_delay_dead_letter_topic="dead")
    line.dead_letter_error = MISSING
    for _ in range(10):
        line.produce(*[(None, b"", {"qbus-delay": "1s", "qbus-ttl": "0"})] * 999)
    line.send(b"behind", delay="1500")
    clock.advance(5_000)
    while len(line.delayed.dead_lettering) < 9_990:
        await line.deliver()
    await line.deliver()
    assert [record.value for record in line.visible()] == [b"behind"]
    for _ in range(2):
        line.produce(*[(None, b"", {"qbus-delay": "1s", "qbus-ttl": "0"})] * 999)
    line.send(b"waits", delay="1500")
    clock.advance(5_000)
    while len(line.delayed.dead_lettering) < 10_000:
        await line.deliver()
    assert await line.deliver() == 0


async def test_what_cannot_be_given_up_at_once_is_not_stored_again_and_again(
    new_line: NewLine, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    line = new_line(qbus_delay_dead_letter_topic="dead")
    line.send(b"0", delay="1s", ttl="0")
    clock.advance(2_000)
    line.refusal = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    await line.deliver()
    await eventually(lambda: "wait for their dead letter topic" in caplog.text)
    await asyncio.sleep(1.5)
    line.refusal = None
    await eventually(lambda: line.fold.pending == 0)
    assert values(line) == [b"0"], "stored once, though it was given up only later"
    assert line.fold.expired == 1


async def test_nothing_is_moved_any_more_where_another_broker_leads(
    new_line: NewLine, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    line = new_line(qbus_delay_dead_letter_topic="dead")
    line.dead_letter_error = MISSING
    line.send(delay="1s", ttl="0")
    clock.advance(5_000)
    await line.deliver()
    await eventually(lambda: "wait for their dead letter topic" in caplog.text)
    line.service.stepping_down(line, ErrorCode.NOT_LEADER_OR_FOLLOWER)  # type: ignore[arg-type]
    line.dead_letter_error = None
    await asyncio.sleep(1.5)
    assert (line.dead_letters, line.fold.pending) == ([], 1)


async def test_what_comes_too_late_goes_to_the_dead_letter_topic(
    new_line: NewLine, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    line = new_line(qbus_delay_dead_letter_topic="dead")
    line.produce((b"k", b"stale", {"qbus-delay": "1s", "qbus-ttl": "1s", "mine": "x"}))
    line.send(b"fresh", delay="1s")
    clock.advance(2_001)
    await line.deliver()
    assert [record.value for record in line.visible()] == [b"fresh"]
    await eventually(lambda: line.fold.pending == 0)
    ((topic, record),) = line.dead_letters
    assert (topic, record.key, record.value) == ("dead", b"k", b"stale")
    assert dict(record.headers) == {
        "mine": b"x",
        "__dlq.errors.topic": b"t",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"0",
        "__dlq.errors.message": b"due at %d, qbus-ttl 1000 ms" % (NOW + 1000),
    }
    assert line.fold.expired == 1
    assert "t-0: 1 delayed records were due too long ago: now in dead" in caplog.text


async def test_others_do_not_wait_for_a_dead_letter_topic_that_is_missing(
    new_line: NewLine, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    line = new_line(qbus_delay_dead_letter_topic="dead")
    line.dead_letter_error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "dead is missing")
    for number in range(100):
        line.send(b"%d" % number, delay="1s", ttl="1s")
    clock.advance(3_000)
    assert await line.deliver() == 0
    said = "100 delayed records were due too long ago, and wait for their dead letter topic dead"
    await eventually(lambda: said in caplog.text)
    line.send(b"fresh", delay="1s")
    clock.advance(1_000)
    assert await line.deliver() == 1
    assert (line.fold.pending, line.fold.expired) == (100, 0)
    line.send(cancel="0")
    line.dead_letter_error = None
    await eventually(lambda: line.fold.pending == 0)
    assert {record.value for _, record in line.dead_letters} == {b"%d" % n for n in range(1, 100)}
