"""A follower's log that goes on elsewhere, and the high watermarks that a broker writes down."""

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from qbus.broker.log import Log, LogConfig, LogManager, OsFiles, TopicPartition
from qbus.broker.log.checkpoints import read_offsets
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.records import set_base_offset
from tests.support.logs import batch

ID = b"i" * 16
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def open_manager(path: Path) -> LogManager:
    return LogManager.open(
        [str(path)],
        lambda topic: LogConfig(segment_bytes=200),
        ManualClock(),
        OsFiles(),
        node_id=1,
        cluster_id="cluster",
        threads=1,
    )


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    manager = open_manager(tmp_path)
    log = manager.create("t", 0, ID, LogConfig(segment_bytes=200))
    for sequence in range(9):
        log.append(batch(b"v" * 50, producer_id=3, producer_epoch=0, base_sequence=sequence), 2)
    log.flush()
    return manager


def die(manager: LogManager) -> None:
    """The process is gone, and its lock with it."""
    manager.directories[0]._lock = None


def log_of(manager: LogManager) -> Log:
    log = manager.get("t", 0)
    assert log is not None
    return log


def checkpoint(manager: LogManager, offsets: Mapping[TopicPartition, int]) -> None:
    """Write down the high watermarks of logs."""
    logs = manager.logs()
    manager.checkpoint_high_watermarks(lambda: [(logs[key], at) for key, at in offsets.items()])


def written(path: Path) -> int:
    """The high watermark that a broker would find after a crash."""
    return read_offsets(OsFiles(), f"{path}/replication-offset-checkpoint").get(T0, 0)


def follow(log: Log, offset: int, epoch: int) -> None:
    made = batch(b"w")
    set_base_offset(made, offset, epoch)
    log.append_as_follower(made)


@pytest.mark.parametrize("offset", [0, 4, 9, 500])
def test_nothing_is_left_but_the_offset(manager: LogManager, tmp_path: Path, offset: int) -> None:
    manager.checkpoint()
    manager.restart_at("t", 0, offset)
    log = log_of(manager)
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (offset,) * 3
    assert (log.size, log.segment_count) == (0, 1)
    assert log.epoch_cache.entries == ()
    assert len(log.producers) == 0
    follow(log, offset, 1)
    log.flush()
    die(manager)
    again = log_of(open_manager(tmp_path))
    assert (again.log_start_offset, again.log_end_offset) == (offset, offset + 1)
    assert again.corruptions == ()


def test_a_corrupt_log_can_be_used_again(manager: LogManager, tmp_path: Path) -> None:
    manager.checkpoint()
    die(manager)
    for path in (tmp_path / "t-0").iterdir():
        path.unlink()
    manager = open_manager(tmp_path)
    log = log_of(manager)
    assert len(log.corruptions) == 1
    with pytest.raises(ApiError) as caught:
        follow(log, 0, 3)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    manager.restart_at("t", 0, 6)
    follow(log, 6, 3)
    assert log.flush() == 7
    manager.close()
    assert log_of(open_manager(tmp_path)).corruptions == ()


def test_a_log_that_is_closed_stays_closed(manager: LogManager) -> None:
    log = log_of(manager)
    log.abandon()
    with pytest.raises(ApiError) as caught:
        manager.restart_at("t", 0, 6)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_start_of_a_log_that_was_cut_before_it_is_not_remembered(
    manager: LogManager, tmp_path: Path
) -> None:
    log_of(manager).delete_records_before(7)
    manager.checkpoint()
    assert manager.truncate("t", 0, 3) == 3
    die(manager)
    again = log_of(open_manager(tmp_path))
    assert (again.log_start_offset, again.log_end_offset) == (3, 3)


def test_high_watermarks_are_written_as_kafka_does(manager: LogManager, tmp_path: Path) -> None:
    manager.create("t", 1, ID, LogConfig())
    checkpoint(manager, {T0: 8, T1: 0})
    path = tmp_path / "replication-offset-checkpoint"
    assert read_offsets(OsFiles(), str(path)) == {T0: 8, T1: 0}
    manager.create("t", 1, ID, LogConfig()).append(batch(b"v"), 0)
    checkpoint(manager, {T1: 1})
    assert read_offsets(OsFiles(), str(path)) == {T0: 8, T1: 1}
    assert log_of(manager).checkpointed_high_watermark == 0
    manager.close()
    assert log_of(open_manager(tmp_path)).checkpointed_high_watermark == 8


def test_an_acknowledged_last_batch_that_went_bad_is_not_cut(
    manager: LogManager, tmp_path: Path
) -> None:
    checkpoint(manager, {T0: 9})
    die(manager)
    last = max((tmp_path / "t-0").glob("*.log"))
    data = bytearray(last.read_bytes())
    data[-20] ^= 1
    last.write_bytes(data)
    log = log_of(open_manager(tmp_path))
    assert [one.offset for one in log.corruptions] == [8]
    assert log.log_end_offset == 9


def test_a_new_partition_does_not_inherit_a_high_watermark(
    manager: LogManager, tmp_path: Path
) -> None:
    checkpoint(manager, {T0: 8})
    manager.delete("t", 0)
    assert read_offsets(OsFiles(), str(tmp_path / "replication-offset-checkpoint")) == {}
    assert manager.create("t", 0, ID, LogConfig()).checkpointed_high_watermark == 0


class TestAHighWatermarkThatIsTooHighForTheRecordsThere:
    """After a crash, records that replaced acknowledged ones would count as acknowledged."""

    def test_cutting_the_log_lowers_it(self, manager: LogManager, tmp_path: Path) -> None:
        checkpoint(manager, {T0: 8})
        manager.truncate("t", 0, 3)
        assert written(tmp_path) == 3

    def test_cutting_the_log_above_it_keeps_it(self, manager: LogManager, tmp_path: Path) -> None:
        checkpoint(manager, {T0: 2})
        manager.truncate("t", 0, 3)
        assert written(tmp_path) == 2

    def test_a_log_that_begins_anew_has_none(self, manager: LogManager, tmp_path: Path) -> None:
        checkpoint(manager, {T0: 8})
        manager.restart_at("t", 0, 4)
        follow(log_of(manager), 4, 3)
        log_of(manager).flush()
        die(manager)
        again = log_of(open_manager(tmp_path))
        assert (again.log_start_offset, again.log_end_offset) == (4, 5)
        assert again.checkpointed_high_watermark <= 4

    def test_what_the_partition_does_not_know_of_a_cut_yet_is_not_written(
        self, manager: LogManager, tmp_path: Path
    ) -> None:
        """A cut is made in a thread; the partition lowers its high watermark a moment later."""
        manager.truncate("t", 0, 3)
        checkpoint(manager, {T0: 8})
        assert written(tmp_path) == 3

    def test_it_is_read_when_no_cut_is_under_way(self, manager: LogManager, tmp_path: Path) -> None:
        """Read before the cut and written after new records came, it would cover these."""
        log, (directory,) = log_of(manager), manager.directories
        reading = threading.Event()
        at = 8

        def read() -> Iterable[tuple[Log, int]]:
            reading.set()
            return [(log, at)]

        with directory._checkpoints.lock:  # as while a log is cut
            writing = threading.Thread(target=manager.checkpoint_high_watermarks, args=[read])
            writing.start()
            assert not reading.wait(0.02)
            manager.truncate("t", 0, 3)
            for offset in range(3, 9):
                follow(log, offset, 3)
            at = 3
        writing.join()
        assert written(tmp_path) == 3

    def test_a_namesake_does_not_get_it(self, manager: LogManager, tmp_path: Path) -> None:
        deleted = log_of(manager)
        manager.delete("t", 0)
        fresh = manager.create("t", 0, b"o" * 16, LogConfig())
        for _ in range(9):
            fresh.append(batch(b"v"), 0)
        manager.checkpoint_high_watermarks(lambda: [(deleted, 8)])
        assert written(tmp_path) == 0


def test_high_watermarks_that_make_no_sense_are_passed_over(
    manager: LogManager, tmp_path: Path
) -> None:
    manager.close()
    (tmp_path / "replication-offset-checkpoint").write_text("rubbish")
    assert log_of(open_manager(tmp_path)).checkpointed_high_watermark == 0


@pytest.mark.sources
def test_what_was_begun_is_finished_after_a_crash(
    manager: LogManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashes(_: int) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(log_of(manager)._remover, "_start_over", crashes)
    manager.checkpoint()
    with pytest.raises(ZeroDivisionError):
        manager.restart_at("t", 0, 500)
    die(manager)
    again = log_of(open_manager(tmp_path))
    assert (again.log_start_offset, again.log_end_offset, again.size) == (500, 500, 0)
    assert again.corruptions == ()
