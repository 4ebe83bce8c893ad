"""From times to offsets."""

import pytest

from qbus.broker.log import Log, TimestampOffset
from qbus.errors import ApiError, ErrorCode
from qbus.records import Compression, build_batch
from tests.support.logs import NOW_MS, batch

from .conftest import OpenLog

TIMES = [10, 30, 20, 50, 50, 40, 90, 60, 70, 80]


@pytest.fixture(params=[100, 10**6], ids=["many segments", "one segment"])
def log(request: pytest.FixtureRequest, open_log: OpenLog) -> Log:
    """A record a batch, with times out of order."""
    log = open_log(segment_bytes=request.param * 3, index_interval_bytes=0)
    for number, time in enumerate(TIMES):
        log.append(batch(b"v" * 50, timestamp=NOW_MS + time), number // 4)
    return log


def test_the_first_record_of_a_time_or_later_is_found(log: Log) -> None:
    for time in range(91):
        offset = next(number for number, known in enumerate(TIMES) if known >= time)
        expected = TimestampOffset(NOW_MS + TIMES[offset], offset, offset // 4)
        assert log.offset_for_timestamp(NOW_MS + time) == expected


def test_nothing_is_later_than_all(log: Log) -> None:
    assert log.offset_for_timestamp(NOW_MS + 91) is None


def test_records_before_the_start_are_not_found(log: Log) -> None:
    log.delete_records_before(4)
    found = log.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert found.offset == 4


def test_the_greatest_time_is_known(log: Log) -> None:
    assert log.offset_of_max_timestamp() == TimestampOffset(NOW_MS + 90, 6, 1)


@pytest.mark.parametrize("compression", list(Compression))
def test_records_inside_a_batch_are_told_apart(open_log: OpenLog, compression: Compression) -> None:
    log = open_log()
    times = [NOW_MS + 5, NOW_MS + 3, NOW_MS + 9, NOW_MS + 9]
    made = build_batch([(None, b"v", (), time) for time in times], compression=compression)
    log.append(made, 0)
    assert log.offset_for_timestamp(NOW_MS + 6) == TimestampOffset(NOW_MS + 9, 2, 0)
    assert log.offset_of_max_timestamp() == TimestampOffset(NOW_MS + 9, 2, 0)


def test_an_empty_log_knows_no_time(open_log: OpenLog) -> None:
    log = open_log()
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


def test_times_are_known_after_a_restart(open_log: OpenLog) -> None:
    log = open_log()
    for time in (50, 90, 10):
        log.append(batch(b"v", timestamp=NOW_MS + time), 0)
    log.close()
    again = open_log(clean=True, recovery_point=3)
    newest = again.offset_of_max_timestamp()
    assert newest == TimestampOffset(NOW_MS + 90, 1, 0)
    again.append(batch(b"v", timestamp=NOW_MS + 60), 0)
    assert again.offset_of_max_timestamp() == newest


def test_times_are_known_without_their_index(open_log: OpenLog) -> None:
    log = open_log()
    for time in (50, 90, 10):
        log.append(batch(b"v", timestamp=NOW_MS + time), 0)
    log.close()
    log._state.active.indexes.remove()
    again = open_log(clean=True, recovery_point=3)
    assert again.offset_of_max_timestamp() == TimestampOffset(NOW_MS + 90, 1, 0)


def test_a_damaged_batch_is_no_answer(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(2):
        log.append(batch(b"v"), 0)
    log._state.active.file.write_at(62, b"?")
    found = log.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert found.offset == 1
    assert [(one.first_offset, one.last_offset) for one in log.damage] == [(0, 0)]


def test_a_closed_log_does_not_answer(open_log: OpenLog) -> None:
    log = open_log()
    log.close()
    with pytest.raises(ApiError) as caught:
        log.offset_for_timestamp(0)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
