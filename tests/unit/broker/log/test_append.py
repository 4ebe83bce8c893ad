"""Appending: offsets, epochs, times, duplicates, new segments, a full disk."""

import errno
from pathlib import Path

import pytest

from qbus.broker.log import AppendInfo, Log, LogConfig, OsFiles
from qbus.broker.log.files import Data, File
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.records import check_crc, read_header
from tests.support.logs import NOW_MS, batch

from .conftest import OpenLog


def sent(*values: bytes, sequence: int, epoch: int = 0) -> memoryview:
    return batch(*values, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


def segment_names(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def test_offsets_are_dense(open_log: OpenLog) -> None:
    log = open_log()
    assert log.append(batch(b"a", b"b"), 0) == AppendInfo(0, 1, -1, 0)
    assert log.append(batch(b"c"), 0) == AppendInfo(2, 2, -1, 0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)


def test_base_offset_and_leader_epoch_are_set_in_place(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(b"a", b"b"), 4)
    given = batch(b"c")
    log.append(given, 4)
    header = read_header(given)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 4)
    check_crc(given, header)


def test_bytes_are_stored_as_they_came(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    first, second = batch(b"a"), batch(b"b" * 1000)
    log.append(first, 0)
    log.append(second, 0)
    assert (directory / f"{0:020d}.log").read_bytes() == bytes(first) + bytes(second)
    assert log.size == len(first) + len(second)


def test_the_broker_may_stamp_the_records(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    clock.advance(5)
    given = batch(b"a")
    assert log.append(given, 0).log_append_time == NOW_MS + 5000
    header = read_header(given)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW_MS + 5000
    check_crc(given, header)


def test_a_refused_batch_changes_nothing(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(b"a"), 0)
    with pytest.raises(ApiError):
        log.append(batch(b"b")[:-1], 0)
    assert log.append(batch(b"c"), 0).first_offset == 1


def test_a_duplicate_is_answered_with_its_first_offset_and_not_stored(open_log: OpenLog) -> None:
    log = open_log()
    log.append(sent(b"a", b"b", sequence=0), 0)
    log.append(sent(b"c", sequence=2), 0)
    size = log.size
    assert log.append(sent(b"a", b"b", sequence=0), 0) == AppendInfo(0, 1, -1, 0, duplicate=True)
    assert (log.size, log.log_end_offset) == (size, 3)


def test_a_duplicate_keeps_the_time_that_the_broker_gave_it(
    open_log: OpenLog, clock: ManualClock
) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    log.append(sent(b"a", sequence=0), 0)
    clock.advance(60)
    assert log.append(sent(b"a", sequence=0), 0).log_append_time == NOW_MS


def test_a_gap_in_the_sequence_is_refused(open_log: OpenLog) -> None:
    log = open_log()
    log.append(sent(b"a", sequence=0), 0)
    with pytest.raises(ApiError) as caught:
        log.append(sent(b"c", sequence=2), 0)
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(sent(b"b", sequence=1), 0).first_offset == 1


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_five_batches_are_remembered_across_a_restart(open_log: OpenLog, clean: bool) -> None:
    log = open_log()
    for number in range(8):
        log.append(sent(b"v", sequence=number), 0)
    log.flush()
    if clean:
        log.close()
    again = open_log(clean=clean, recovery_point=8 if clean else 0)
    for number in range(3, 8):
        assert again.append(sent(b"v", sequence=number), 0).duplicate
    assert again.append(sent(b"v", sequence=8), 0) == AppendInfo(8, 8, -1, 0)


def test_epochs_are_noted_where_they_begin(open_log: OpenLog) -> None:
    log = open_log()
    for epoch in (0, 0, 3, 3, 4):
        log.append(batch(b"v"), epoch)
    assert list(log.epoch_cache.entries) == [(0, 0), (3, 2), (4, 4)]
    assert log.epoch_cache.end_offset_for(3, log.log_end_offset) == (3, 4)


def test_an_older_leader_is_fenced(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(b"v"), 3)
    with pytest.raises(ApiError) as caught:
        log.append(batch(b"v"), 2)
    assert caught.value.code == ErrorCode.FENCED_LEADER_EPOCH
    assert log.log_end_offset == 1


def test_a_segment_ends_before_it_is_too_large(open_log: OpenLog, directory: Path) -> None:
    size = len(batch(b"v" * 100))
    log = open_log(segment_bytes=size * 2 + 10)
    for _ in range(5):
        log.append(batch(b"v" * 100), 0)
    assert segment_names(directory) == [0, 2, 4]
    assert log.segment_count == 3
    assert (directory / f"{2:020d}.snapshot").exists()


def test_a_segment_ends_when_it_spans_too_much_time(open_log: OpenLog, directory: Path) -> None:
    log = open_log(segment_ms=1000)
    for later in (0, 1000, 1001, 1500, 9000):
        log.append(batch(b"v", timestamp=NOW_MS + later), 0)
    assert segment_names(directory) == [0, 2, 4]


def test_without_timestamps_a_segment_is_as_old_as_its_file(
    open_log: OpenLog, directory: Path, clock: ManualClock
) -> None:
    log = open_log(segment_ms=1000)
    log.append(batch(b"v", timestamp=-1), 0)
    clock.advance(1.5)
    log.append(batch(b"v", timestamp=-1), 0)
    log.append(batch(b"v", timestamp=-1), 0)
    assert segment_names(directory) == [0, 1]


def test_a_segment_ends_when_its_index_is_full(open_log: OpenLog, directory: Path) -> None:
    log = open_log(segment_index_bytes=24, index_interval_bytes=0)
    for _ in range(7):
        log.append(batch(b"v"), 0)
    assert segment_names(directory) == [0, 3, 6]


def test_an_idle_segment_ends_when_it_is_due(
    open_log: OpenLog, directory: Path, clock: ManualClock
) -> None:
    log = open_log(segment_ms=1000)
    clock.advance(10)
    assert not log.roll_if_due(), "an empty segment is never too old"
    log.append(batch(b"v", timestamp=clock.time_ms()), 0)
    assert not log.roll_if_due()
    clock.advance(1.5)
    assert log.roll_if_due()
    assert not log.roll_if_due()
    assert segment_names(directory) == [0, 1]


def test_jitter_shortens_the_time_of_a_segment_at_random(
    open_log: OpenLog, clock: ManualClock
) -> None:
    log = open_log(segment_ms=1000, segment_jitter_ms=1000)
    log.append(batch(b"v"), 0)
    log._state.active.jitter = 0.75
    clock.advance(0.25)
    assert not log.roll_if_due()
    clock.advance(0.002)
    assert log.roll_if_due()


def test_settings_change_without_a_restart(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    log.append(batch(b"v" * 100), 0)
    log.update_config(LogConfig(segment_bytes=len(batch(b"v" * 100)), max_message_bytes=200))
    log.append(batch(b"v" * 100), 0)
    assert segment_names(directory) == [0, 1]
    with pytest.raises(ApiError) as caught:
        log.append(batch(b"v" * 200), 0)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


class _FullFile:
    """A file with room for so many bytes."""

    def __init__(self, file: File, room: int) -> None:
        self._file = file
        self.room = room

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def write_at(self, position: int, data: Data) -> int:
        room = max(self.room - position, 0)
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write_at(position, memoryview(data)[:room])


def fill(log: Log, room: int) -> _FullFile:
    segment = log._state.active
    segment.hold_open()
    full = _FullFile(segment.file, room)
    segment._file = full  # type: ignore[assignment]
    return full


def test_a_full_disk_leaves_nothing_of_a_batch_behind(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    log.append(batch(b"a"), 0)
    size = log.size
    full = fill(log, size + 50)
    with pytest.raises(ApiError) as caught:
        log.append(batch(b"b"), 1)
    assert (caught.value.code, caught.value.retriable) == (ErrorCode.KAFKA_STORAGE_ERROR, True)
    assert (directory / f"{0:020d}.log").stat().st_size == size
    assert log.epoch_cache.latest_epoch == 0
    assert log.is_usable
    full.room = 10**6
    assert log.append(batch(b"b"), 1).first_offset == 1


def test_a_closed_log_takes_nothing(open_log: OpenLog) -> None:
    log = open_log()
    log.close()
    with pytest.raises(ApiError) as caught:
        log.append(batch(b"a"), 0)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    log.close()


def test_two_logs_open_side_by_side_share_no_file(tmp_path: Path, clock: ManualClock) -> None:
    logs = []
    for name in ("a-0", "b-0"):
        (tmp_path / name).mkdir()
        logs.append(Log.open(str(tmp_path / name), LogConfig(), clock, OsFiles()))
    logs[0].append(batch(b"a"), 0)
    assert [log.log_end_offset for log in logs] == [1, 0]
    assert [str(log.topic_partition) for log in logs] == ["a-0", "b-0"]
