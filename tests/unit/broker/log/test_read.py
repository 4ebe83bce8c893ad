"""Reading: whole batches by offset, limits, slices, damage."""

import os
import random
from pathlib import Path

import pytest

from qbus.broker.log import Corruption, Log, LogSlice
from qbus.errors import ApiError, ErrorCode
from qbus.records import CorruptBatch, iter_batches, iter_records
from tests.support.logs import batch

from .conftest import OpenLog


def values(found: LogSlice | None) -> list[tuple[int, bytes | None]]:
    assert found is not None
    return [
        (record.offset, record.value)
        for _, each in iter_batches(found.read())
        for record in iter_records(each)
    ]


def offsets(found: LogSlice | None) -> list[int]:
    return [offset for offset, _ in values(found)]


@pytest.fixture
def log(open_log: OpenLog) -> Log:
    """Three batches: offsets 0, 1-3 and 4."""
    log = open_log()
    for given in (batch(b"a"), batch(b"b", b"c", b"d"), batch(b"e")):
        log.append(given, 0)
    return log


def test_reading_begins_with_the_batch_that_contains_the_offset(log: Log) -> None:
    assert offsets(log.read(0, 10**6)) == [0, 1, 2, 3, 4]
    for offset in (1, 2, 3):
        assert offsets(log.read(offset, 10**6)) == [1, 2, 3, 4]
    assert values(log.read(4, 10**6)) == [(4, b"e")]


def test_a_slice_says_where_to_go_on(log: Log) -> None:
    found = log.read(2, 1)
    assert found is not None
    assert (found.first_offset, found.next_offset) == (1, 4)
    assert len(found) == len(found.read()) == len(batch(b"b", b"c", b"d"))


def test_only_whole_batches_come_and_at_least_one(log: Log) -> None:
    first, second = len(batch(b"a")), len(batch(b"b", b"c", b"d"))
    assert offsets(log.read(0, first + second - 1)) == [0]
    assert offsets(log.read(0, first + second)) == [0, 1, 2, 3]
    assert offsets(log.read(0, 0)) == [0]
    assert log.read(0, first - 1, min_one_batch=False) is None
    assert offsets(log.read(0, first, min_one_batch=False)) == [0]


def test_nothing_at_or_above_the_high_watermark_comes(log: Log) -> None:
    assert offsets(log.read(0, 10**6, 4)) == [0, 1, 2, 3]
    assert offsets(log.read(0, 10**6, 1)) == [0]
    assert offsets(log.read(0, 10**6, 3)) == [0], "a batch is below it as a whole or not at all"
    assert log.read(1, 10**6, 3) is None
    assert log.read(0, 10**6, 0) is None
    assert offsets(log.read(0, 10**6, 10**6)) == [0, 1, 2, 3, 4]


def test_the_end_has_nothing_yet_and_beyond_it_is_out_of_range(log: Log) -> None:
    assert log.read(5, 10**6) is None
    for offset in (-1, 6, 2**63 - 1):
        with pytest.raises(ApiError) as caught:
            log.read(offset, 10**6)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_records_before_the_start_are_out_of_range(log: Log) -> None:
    assert log.delete_records_before(2) == 2
    with pytest.raises(ApiError) as caught:
        log.read(1, 10**6)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets(log.read(2, 10**6)) == [1, 2, 3, 4]


@pytest.mark.parametrize("interval", [0, 100, 4096])
@pytest.mark.parametrize("restart", [False, True])
def test_every_offset_is_found_in_every_segment(
    open_log: OpenLog, interval: int, restart: bool
) -> None:
    dice = random.Random(interval)
    settings = {"segment_bytes": 20_000, "index_interval_bytes": interval}
    log = open_log(**settings)
    bases: list[int] = []
    while log.segment_count < 4:
        given = batch(*[bytes(dice.randrange(300))] * dice.randrange(1, 6))
        bases += [log.log_end_offset] * (log.append(given, 0).last_offset - len(bases) + 1)
    if restart:
        log.close()
        log = open_log(clean=True, recovery_point=len(bases), **settings)
    for offset in dice.sample(range(len(bases)), len(bases)):
        limit = dice.randrange(1, 5000)
        bound = dice.randrange(offset, len(bases)) + 1
        found = log.read(offset, limit, bound, wait=True)
        if found is None:
            assert bases[offset] <= offset < bound
            continue
        assert found.first_offset == bases[offset]
        assert found.next_offset <= bound
        assert len(found) <= limit or found.next_offset == found.first_offset + bases.count(
            bases[offset]
        )
        assert offsets(found) == list(range(found.first_offset, found.next_offset))


@pytest.mark.parametrize("seed", range(4))
def test_what_was_read_before_changes_no_answer(open_log: OpenLog, seed: int) -> None:
    dice = random.Random(seed)
    log = open_log(segment_bytes=20_000, index_interval_bytes=500)

    def grow() -> None:
        for _ in range(60):
            log.append(batch(*[bytes(dice.randrange(300))] * dice.randrange(1, 6)), 0)

    def read(offset: int, limit: int, bound: int, at_least_one: bool) -> tuple[int, ...] | None:
        found = log.read(offset, limit, bound, at_least_one, wait=True)
        if found is None:
            return None
        return found.first_offset, found.next_offset, found.position, len(found)

    for _ in range(3):
        grow()
        end = log.log_end_offset
        for _ in range(300):
            offset = dice.randrange(end)
            wanted = (offset, dice.choice([0, 1, 700, 5000]), dice.randrange(offset, end) + 1)
            answers = [read(*wanted, True), read(*wanted, False)]
            known = [(segment, segment.places) for segment in log._state.segments]
            for segment, _ in known:
                segment.forget_places()
            assert answers == [read(*wanted, True), read(*wanted, False)]
            for segment, places in known:
                segment.places = places
        log.truncate_to(dice.randrange(end // 2, end))


def test_a_slice_is_a_region_of_an_open_file(log: Log) -> None:
    found = log.read(1, 10**6)
    assert found is not None
    assert os.pread(found.fileno(), len(found), found.position) == found.read()
    found.close()
    found.close()
    with pytest.raises(ValueError, match="closed"):
        found.read()


def test_what_this_process_appended_needs_no_check(log: Log) -> None:
    found = log.read(0, 10**6)
    assert found is not None
    assert not found.needs_verification
    assert found.is_cached()


def reopened(open_log: OpenLog, log: Log) -> Log:
    end = log.log_end_offset
    log.close()
    return open_log(clean=True, recovery_point=end)


def test_what_was_there_before_is_checked_once(open_log: OpenLog, log: Log) -> None:
    again = reopened(open_log, log)
    found = again.read(0, 10**6, wait=True)
    assert found is not None
    unchecked = found.needs_verification
    found.verify()
    assert (unchecked, found.needs_verification) == (True, False)
    later = again.read(1, 10**6)
    assert later is not None
    assert not later.needs_verification
    later.warm()
    assert offsets(later) == [1, 2, 3, 4]


def damage(directory: Path, position: int) -> None:
    path = directory / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_a_slice_ends_before_a_corrupt_batch(open_log: OpenLog, log: Log, directory: Path) -> None:
    again = reopened(open_log, log)
    told: list[Corruption] = []
    again.on_corruption(told.append)
    damage(directory, len(batch(b"a")) + 70)
    found = again.read(0, 10**6, wait=True)
    assert found is not None
    found.verify()
    assert offsets(found) == [0]
    assert found.next_offset == 1
    assert told == list(again.corruptions)
    assert again.corruptions[0].offset == 1


def test_a_corrupt_batch_is_an_error_that_consumers_report(
    open_log: OpenLog, log: Log, directory: Path
) -> None:
    again = reopened(open_log, log)
    damage(directory, len(batch(b"a")) + 70)
    for _ in range(2):
        found = again.read(1, 10**6, wait=True)
        assert found is not None
        assert found.needs_verification
        with pytest.raises(CorruptBatch) as caught:
            found.verify()
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert len(again.corruptions) == 1
    found = again.read(4, 10**6, wait=True)
    assert found is not None
    found.verify()
    assert offsets(found) == [4], "what is behind it can still be read"
    assert again.append(batch(b"f"), 0).first_offset == 5


def test_warming_finds_what_went_bad_after_it_was_checked(
    open_log: OpenLog, log: Log, directory: Path
) -> None:
    again = reopened(open_log, log)
    found = again.read(4, 10**6, wait=True)
    assert found is not None
    found.warm()
    damage(directory, log.size - 1)
    with pytest.raises(CorruptBatch):
        found.warm()


def test_a_bad_index_is_made_anew_in_a_thread(open_log: OpenLog, directory: Path) -> None:
    log = open_log(index_interval_bytes=100)
    for _ in range(20):
        log.append(batch(b"v" * 50), 0)
    log.close()
    path = directory / f"{0:020d}.index"
    good = path.read_bytes()
    bad = bytearray(good)
    bad[8 * 2 + 7] += 1  # the position of the third entry, that of offset 3
    path.write_bytes(bad)
    again = open_log(clean=True, recovery_point=20, index_interval_bytes=100)
    with pytest.raises(BlockingIOError):
        again.read(3, 1)
    assert offsets(again.read(3, 1, wait=True)) == [3]
    assert offsets(again.read(4, 1)) == [4]
    assert path.read_bytes() == good
    assert again.corruptions == ()


def test_a_log_that_is_corrupt_as_a_whole_serves_nothing(
    open_log: OpenLog, log: Log, directory: Path
) -> None:
    log.flush()
    damage(directory, 70)
    again = open_log()
    assert not again.is_usable
    with pytest.raises(ApiError) as caught:
        again.read(0, 10**6)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(ApiError) as caught:
        again.append(batch(b"x"), 0)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    for work in (again.flush, again.checkpoint, again.apply_retention, again.scrub):
        with pytest.raises(ApiError):
            work()
    again.close()
    assert not open_log().is_usable, "nothing was cut"


def corrupt(log: Log) -> tuple[Corruption, ...]:
    """What is known to be corrupt by now."""
    return log.corruptions


def test_scrubbing_goes_round_and_reports(open_log: OpenLog, directory: Path) -> None:
    log = open_log(segment_bytes=1000)
    for _ in range(20):
        log.append(batch(b"v" * 50), 0)
    assert not log.scrub(300)
    while not log.scrub(300):
        pass
    assert corrupt(log) == ()
    damage(directory, 200)
    damage(directory, 480)
    while not log.scrub(300):
        pass
    assert [found.offset for found in corrupt(log)] == [1, 4]
    while not log.scrub(300):
        pass
    assert len(corrupt(log)) == 2, "reported once"
