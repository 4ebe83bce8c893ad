"""Retention, DeleteRecords and truncation."""

from pathlib import Path

import pytest

from qbus.broker.log import Log, LogConfig
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from tests.support.logs import NOW_MS, batch

from .conftest import OpenLog

SIZE = len(batch(b"v" * 100))


def fill(open_log: OpenLog, count: int = 9, **config: int) -> Log:
    """``count`` batches of one record, three in a segment, a second apart in time."""
    log = open_log(segment_bytes=SIZE * 3, file_delete_delay_ms=1000, **config)
    for number in range(count):
        log.append(batch(b"v" * 100, timestamp=NOW_MS + number * 1000), 0)
    log.flush()
    return log


def names(directory: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in directory.glob(pattern))


def test_segments_go_when_their_newest_record_is_too_old(
    open_log: OpenLog, clock: ManualClock
) -> None:
    log = fill(open_log, retention_ms=60_000)
    clock.advance(62)
    assert log.apply_retention() == 0
    clock.advance(0.001)
    assert log.apply_retention() == 1
    assert (log.log_start_offset, log.segment_count) == (3, 2)


def test_when_all_is_too_old_the_log_is_empty_and_goes_on(
    open_log: OpenLog, clock: ManualClock
) -> None:
    log = fill(open_log, retention_ms=60_000)
    clock.advance(1000)
    assert log.apply_retention() == 3
    assert (log.log_start_offset, log.log_end_offset, log.size) == (9, 9, 0)
    assert log.apply_retention() == 0
    assert log.append(batch(b"w"), 0).first_offset == 9


def test_records_of_the_future_do_not_keep_those_behind_them(
    open_log: OpenLog, clock: ManualClock
) -> None:
    log = open_log(segment_bytes=SIZE, retention_ms=1000)
    for timestamp in (NOW_MS + 3_000_000, NOW_MS, NOW_MS):
        log.append(batch(b"v" * 100, timestamp=timestamp), 0)
    log.flush()
    clock.advance(60)
    assert log.apply_retention() == 0, "the front is what is removed, and it is not old"


def blocked(log: Log) -> bool:
    return log.is_retention_blocked


def test_a_timestamp_in_the_future_that_blocks_retention_is_reported_once(
    open_log: OpenLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(segment_bytes=SIZE, retention_ms=1000, message_timestamp_after_max_ms=1 << 60)
    for timestamp in (NOW_MS, NOW_MS + 10 * 3_600_000, NOW_MS):
        log.append(batch(b"v" * 100, timestamp=timestamp), 0)
    log.flush()
    assert log.apply_retention() == 0
    assert not blocked(log), "the first segment is not old yet"
    clock.advance(60)
    assert log.apply_retention() == 1
    assert log.apply_retention() == 0
    assert blocked(log)
    (warning,) = [one.getMessage() for one in caplog.records]
    assert "offset 1 and above" in warning
    assert f"timestamp {NOW_MS + 10 * 3_600_000} of offset 1 is 9 hours in the future" in warning
    clock.advance(11 * 3600)
    assert log.apply_retention() == 2
    assert not blocked(log)


def test_a_clock_that_is_a_little_ahead_is_not_reported(
    open_log: OpenLog, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(segment_bytes=SIZE, retention_ms=1000)
    log.append(batch(b"v", timestamp=NOW_MS + 3_600_000), 0)
    log.flush()
    log.apply_retention()
    assert not log.is_retention_blocked
    assert not caplog.records


@pytest.mark.parametrize(
    ("limit", "removed"), [(-1, 0), (SIZE * 9, 0), (SIZE * 7, 0), (SIZE * 6, 1), (SIZE, 2), (0, 3)]
)
def test_segments_go_while_enough_is_left(open_log: OpenLog, limit: int, removed: int) -> None:
    log = fill(open_log, retention_bytes=limit)
    assert log.apply_retention() == removed


def test_no_limits_keep_everything(open_log: OpenLog, clock: ManualClock) -> None:
    log = fill(open_log, retention_ms=-1, retention_bytes=-1)
    clock.advance(10**9)
    assert log.apply_retention() == 0


def test_nothing_goes_that_reaches_the_high_watermark(
    open_log: OpenLog, clock: ManualClock
) -> None:
    log = fill(open_log, retention_ms=1000)
    clock.advance(1000)
    assert log.apply_retention(max_offset=5) == 1
    assert log.apply_retention(max_offset=6) == 1


def test_without_timestamps_a_segment_is_as_old_as_its_file(
    open_log: OpenLog, clock: ManualClock
) -> None:
    log = open_log(segment_bytes=100, retention_ms=1000)
    for _ in range(2):
        log.append(batch(b"v", timestamp=-1), 0)
    log.flush()
    assert log.apply_retention() == 0
    clock.advance(1.5)
    assert log.apply_retention() == 2


def test_removed_files_are_renamed_first_and_deleted_later(
    open_log: OpenLog, directory: Path, clock: ManualClock
) -> None:
    log = fill(open_log, retention_bytes=SIZE)
    log.apply_retention()
    assert names(directory, "*.log") == [f"{6:020d}.log"]
    assert names(directory, "*.log.deleted") == [f"{0:020d}.log.deleted", f"{3:020d}.log.deleted"]
    trash = log._state.trash
    assert trash.empty() == 0
    clock.advance(1)
    assert trash.empty() >= 4
    assert names(directory, "*.deleted") == []


def test_a_reader_of_a_removed_segment_finishes(
    open_log: OpenLog, directory: Path, clock: ManualClock
) -> None:
    log = fill(open_log, retention_bytes=SIZE)
    found = log.read(0, 10**6)
    assert found is not None
    content = found.read()
    log.apply_retention()
    clock.advance(1)
    log._state.trash.empty()
    assert found.read() == content
    with pytest.raises(ApiError) as caught:
        log.read(0, 10**6)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_epochs_begin_where_the_log_does(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=SIZE, retention_bytes=0)
    for epoch in (0, 0, 1, 2):
        log.append(batch(b"v" * 100), epoch)
    log.flush()
    log.apply_retention(max_offset=3)
    assert log.log_start_offset == 3
    assert list(log.epoch_cache.entries) == [(2, 3)]


def test_leftovers_of_removed_segments_are_cleared_when_opened(
    open_log: OpenLog, directory: Path
) -> None:
    log = fill(open_log, retention_bytes=SIZE)
    log.apply_retention()
    (directory / f"{0:020d}.index").touch()
    (directory / "x.tmp").touch()
    again = open_log()
    assert (again.log_start_offset, again.log_end_offset) == (6, 9)
    assert names(directory, "*.deleted") == names(directory, "*.tmp") == []
    assert f"{0:020d}.index" not in names(directory, "*.index")


def test_deleting_records_moves_the_start_and_retention_the_segments(open_log: OpenLog) -> None:
    log = fill(open_log)
    assert log.delete_records_before(4) == 4
    assert log.delete_records_before(2) == 4, "never back"
    assert (log.log_start_offset, log.segment_count) == (4, 3)
    assert log.apply_retention() == 1
    assert (log.log_start_offset, log.segment_count) == (4, 2)


def test_deleting_all_records_keeps_the_active_segment(open_log: OpenLog) -> None:
    log = fill(open_log)
    assert log.delete_records_before(9) == 9
    log.apply_retention()
    assert log.segment_count == 1
    assert log.read(9, 100) is None
    assert log.append(batch(b"w"), 0).log_start_offset == 9


@pytest.mark.parametrize("offset", [-1, 10])
def test_only_records_that_are_there_can_be_deleted(open_log: OpenLog, offset: int) -> None:
    log = fill(open_log)
    with pytest.raises(ApiError) as caught:
        log.delete_records_before(offset)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_deleted_start_survives_by_its_checkpoint(open_log: OpenLog) -> None:
    log = fill(open_log)
    log.delete_records_before(4)
    log.close()
    again = open_log(clean=True, recovery_point=9, log_start_offset=4)
    assert (again.log_start_offset, again.first_segment_offset) == (4, 0)


def test_records_lost_that_were_deleted_anyway_do_not_come_back(open_log: OpenLog) -> None:
    log = fill(open_log)
    log.close()
    again = open_log(log_start_offset=50)
    assert (again.log_start_offset, again.log_end_offset) == (50, 50)
    assert again.append(batch(b"w"), 0).first_offset == 50


@pytest.mark.parametrize("offset", [0, 1, 3, 5, 8, 9, 100])
def test_truncation_cuts_at_the_offset(open_log: OpenLog, offset: int) -> None:
    log = fill(open_log)
    end = min(offset, 9)
    assert log.truncation_point(offset) == end
    assert log.truncate_to(offset) == end
    assert (log.log_end_offset, log.flushed_offset) == (end, 9 if end == 9 else end)
    assert log.size == end * SIZE
    assert log.append(batch(b"w"), 1).first_offset == end
    log.flush()
    again = open_log()
    assert again.log_end_offset == end + 1
    assert again.corruptions == ()


def test_truncation_removes_whole_batches(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(b"a", b"b"), 0)
    log.append(batch(b"c", b"d", b"e"), 0)
    assert log.truncate_to(4) == 2


def test_truncation_forgets_producers_epochs_and_times(open_log: OpenLog) -> None:
    log = open_log()
    for number in range(4):
        sent = batch(
            b"v",
            timestamp=NOW_MS + number,
            producer_id=7,
            producer_epoch=0,
            base_sequence=number,
        )
        log.append(sent, number)
    log.truncate_to(2)
    assert [producer.last_sequence for producer in log.producers] == [1]
    assert log.epoch_cache.latest_epoch == 1
    newest = log.offset_of_max_timestamp()
    assert newest is not None
    assert newest.timestamp == NOW_MS + 1


def test_a_log_may_start_over_anywhere_before_its_start(open_log: OpenLog) -> None:
    log = fill(open_log, retention_bytes=SIZE)
    log.apply_retention()
    assert log.log_start_offset == 6
    assert log.truncate_to(4) == 4
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (4, 4, 1)


def test_retention_follows_changed_settings(open_log: OpenLog) -> None:
    log = fill(open_log)
    assert log.apply_retention() == 0
    log.update_config(LogConfig(retention_bytes=0))
    assert log.apply_retention() == 3
