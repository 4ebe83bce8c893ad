"""What a failing, full or busy system does to logs: no more than it must."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.log import Log, LogConfig, LogManager
from qbus.broker.log.segment import LogSegment
from qbus.broker.log.state import LogState
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from tests.support.failing_files import FailingFiles, failing, healthy
from tests.support.logs import batch

TOPIC_ID = b"t" * 16


class Bench:
    """A broker's logs in one directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = FailingFiles()
        self.clock = ManualClock()
        self.start()

    def start(self) -> None:
        self.manager = LogManager.open(
            [str(self.path)],
            lambda _topic: LogConfig(),
            self.clock,
            self.files,
            node_id=1,
            cluster_id="cluster",
        )

    def create(self, topic: str = "topic", **config: Any) -> Log:
        return self.manager.create(topic, 0, TOPIC_ID, LogConfig(**config), is_new=True)

    def restart(self) -> None:
        self.manager.close()
        self.start()

    def log(self, topic: str = "topic") -> Log:
        log = self.manager.get(topic, 0)
        assert log is not None
        return log

    def close_files(self) -> None:
        """Keep no file open that is read only."""
        for log in self.manager.logs().values():
            self.manager.directories[0].shared.cache.forget_directory(log.directory)

    @property
    def offline(self) -> bool:
        return self.manager.directories[0].offline


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "logs")


def refused(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        work()
    return ErrorCode(caught.value.code)


def test_a_log_deleted_while_it_begins_a_segment_is_no_failed_disk(bench: Bench) -> None:
    log = bench.create(segment_ms=1000)
    log.append(batch(b"a"), 1)
    bench.clock.advance(2)
    rolling, deleted = threading.Event(), threading.Event()

    def delete() -> None:
        rolling.wait()
        bench.manager.delete("topic", 0)
        deleted.set()

    def delay_the_new_segment(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(f"{1:020}.log"):
            rolling.set()
            deleted.wait(0.2)

    bench.files.before = delay_the_new_segment
    deleting = threading.Thread(target=delete)
    deleting.start()
    assert log.roll_if_due()
    deleting.join()
    assert deleted.is_set()
    assert not bench.offline


def test_what_may_come_back_after_a_crash_is_not_thrown_away(bench: Bench) -> None:
    """The names of deleted logs were not made stable: their files stay until the next start."""
    bench.create().append(batch(b"a"), 1)
    bench.files.before = failing(errno.EMFILE, "sync directory")
    assert refused(lambda: bench.manager.delete("topic", 0)) is ErrorCode.KAFKA_STORAGE_ERROR
    bench.files.before = healthy
    bench.clock.advance(3600)
    assert bench.manager.empty_trash() == 0
    (grave,) = bench.path.glob("*-delete")
    assert any(grave.iterdir())
    bench.restart()
    assert not grave.exists()
    assert bench.manager.get("topic", 0) is None


def test_a_checkpoint_that_cannot_be_written_keeps_no_log_from_being_deleted(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    log = bench.create()
    log.append(batch(b"a"), 1)
    log.flush()
    bench.manager.checkpoint()
    bench.files.before = failing(errno.ENOSPC, "write", path="recovery-point")
    bench.manager.delete("topic", 0)
    assert "checkpoints still name deleted topic-0" in caplog.text
    assert bench.manager.get("topic", 0) is None
    bench.files.before = healthy
    bench.clock.advance(3600)
    assert bench.manager.empty_trash() == 1
    assert bench.create().log_end_offset == 0
    bench.restart()
    assert bench.log().is_usable


class TestShortOfFilesOrMemory:
    """The system may have some again later: refused, and the directory stays online."""

    pytestmark = pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])

    def test_an_append_that_cannot_open_its_segment(self, bench: Bench, error: int) -> None:
        bench.create().append(batch(b"a"), 1)
        bench.restart()
        log = bench.log()
        bench.files.before = failing(error, "open", path=".log")
        assert refused(lambda: log.append(batch(b"b"), 1)) is ErrorCode.KAFKA_STORAGE_ERROR
        bench.files.before = healthy
        assert log.append(batch(b"b"), 1).first_offset == 1

    def test_a_new_segment(self, bench: Bench, error: int) -> None:
        log = bench.create(segment_bytes=200)
        log.append(batch(b"a" * 60), 1)
        bench.files.before = failing(error, "open")
        assert refused(lambda: log.append(batch(b"b" * 60), 1)) is ErrorCode.KAFKA_STORAGE_ERROR
        bench.files.before = healthy
        assert log.append(batch(b"b" * 60), 1).first_offset == 1

    def test_a_checkpoint(self, bench: Bench, error: int) -> None:
        log = bench.create()
        log.append(batch(b"a"), 1)
        log.flush()
        bench.files.before = failing(error, "open", "sync directory")
        assert log.checkpoint() == 0
        assert not bench.offline
        bench.files.before = healthy
        assert log.checkpoint() == 1

    def test_a_read(self, bench: Bench, error: int) -> None:
        log = bench.create()
        log.append(batch(b"a"), 1)
        bench.restart()
        log = bench.log()
        bench.close_files()
        bench.files.before = failing(error, "open", path=".log")
        assert refused(lambda: log.read(0, 1000)) is ErrorCode.KAFKA_STORAGE_ERROR
        bench.files.before = healthy
        found = log.read(0, 1000)
        assert found is not None
        bench.files.before = failing(error, "read", path=".log")
        assert refused(found.verify) is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.corruptions == ()


@pytest.mark.parametrize("error", [errno.ENOMEM, errno.EFBIG])
def test_a_write_that_a_limit_forbids_is_refused_and_told(
    bench: Bench, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a limit on the size of files: the disk is well, and other logs go on."""
    log = bench.create()
    log.append(batch(b"a"), 1)
    bench.files.before = failing(error, "write", path=".log")
    for _ in range(2):
        assert refused(lambda: log.append(batch(b"b"), 1)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not bench.offline
    (line,) = [line for line in caplog.messages if line.startswith("cannot write")]
    assert errno.errorcode[error] in line
    bench.files.before = healthy
    assert log.append(batch(b"b"), 1).first_offset == 1


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_a_flush_that_cannot_open_the_directory_is_done_later(bench: Bench, error: int) -> None:
    log = bench.create(segment_bytes=200)
    log.append(batch(b"a" * 60), 1)
    log.append(batch(b"b" * 60), 1)
    bench.files.before = failing(error, "sync directory")
    assert refused(log.flush) is ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(log.flush) is ErrorCode.KAFKA_STORAGE_ERROR  # the new name is not forgotten
    assert log.flushed_offset == 0
    bench.files.before = healthy
    assert log.flush() == 2


def test_a_sync_that_fails_for_want_of_memory_takes_the_directory_offline(bench: Bench) -> None:
    log = bench.create()
    log.append(batch(b"a"), 1)
    bench.files.before = failing(errno.ENOMEM, "sync")
    assert refused(log.flush) is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.offline


class TestRemovingOnAFullDisk:
    """What would make space must not end in a failed directory."""

    @pytest.mark.parametrize("operation", ["rename", "sync directory"])
    def test_retention_is_tried_again(self, bench: Bench, operation: str) -> None:
        log = bench.create(segment_bytes=200, retention_bytes=200)
        for _ in range(4):
            log.append(batch(b"a" * 60), 1)
        log.flush()  # and not in the retention, for a sync that fails is final
        bench.files.before = failing(errno.ENOSPC, operation)
        assert refused(log.apply_retention) is ErrorCode.KAFKA_STORAGE_ERROR
        assert not bench.offline
        bench.files.before = healthy
        log.apply_retention()
        left = sorted(path.name for path in Path(log.directory).glob("*.log"))
        assert left == [f"{offset:020}.log" for offset in (2, 3)]
        assert log.first_segment_offset == 2

    @pytest.mark.parametrize("operation", ["rename", "sync directory"])
    def test_a_partition_can_be_deleted_and_begin_anew(self, bench: Bench, operation: str) -> None:
        bench.create().append(batch(b"a"), 1)
        bench.files.before = failing(errno.ENOSPC, operation)
        assert refused(lambda: bench.manager.delete("topic", 0)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert not bench.offline
        bench.files.before = healthy
        if bench.manager.get("topic", 0) is not None:
            bench.manager.delete("topic", 0)
        assert bench.create().log_end_offset == 0


def test_scrubbing_passes_over_what_the_disk_cannot_read(bench: Bench) -> None:
    bench.create(segment_bytes=200)
    for _ in range(2):
        bench.log().append(batch(b"a" * 60), 1)
    bench.restart()
    log = bench.log()
    bench.files.before = failing(errno.EIO, "read", path=f"{0:020}.log")
    steps = 1
    while not log.scrub():
        steps += 1
    assert steps == 2
    assert {(found.position, found.offset) for found in log.corruptions} == {(0, 0)}


class TestReadingWhatIsRemovedMeanwhile:
    """It looked its segment up just before that went: no data is bad."""

    @pytest.fixture
    def log(self, bench: Bench) -> Log:
        log = bench.create(segment_bytes=200, retention_bytes=200)
        for _ in range(4):
            log.append(batch(b"a" * 60), 1)
        log.flush()
        return log

    @pytest.mark.sources
    def test_a_partition_that_is_deleted(
        self, bench: Bench, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        after_lookup(log, lambda: bench.manager.delete("topic", 0), monkeypatch)
        assert refused(lambda: log.read(0, 1000)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert log.corruptions == ()

    def test_a_segment_that_is_verified(self, bench: Bench, log: Log) -> None:
        found = log.read(0, 1000)
        assert found is not None
        log.apply_retention()
        assert refused(found.verify) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.corruptions == ()

    @pytest.mark.sources
    def test_segments_that_are_truncated(
        self, bench: Bench, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def truncate() -> None:
            bench.manager.truncate("topic", 0, 1)

        after_lookup(log, truncate, monkeypatch)
        assert refused(lambda: log.read(2, 1000)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.corruptions == ()


def after_lookup(log: Log, remove: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``remove`` called when a read has just found its segment."""
    state = type(log._state)
    segment_of = state.segment_of

    def found_and_removed(self: LogState, offset: int) -> LogSegment:
        segment = segment_of(self, offset)
        monkeypatch.undo()
        remove()
        return segment

    monkeypatch.setattr(state, "segment_of", found_and_removed)
