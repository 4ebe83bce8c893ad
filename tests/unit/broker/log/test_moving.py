"""A log that moves to another data directory, step by step."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbus.broker.log import Log, LogConfig, LogManager, TopicPartition, moving
from qbus.broker.log.moving import LogMove
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from tests.support.failing_files import FailingFiles, failing, healthy
from tests.support.logs import NOW_MS, batch

KEY = TopicPartition("topic", 0)


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def manager(tmp_path: Path, clock: ManualClock, files: FailingFiles) -> Iterator[LogManager]:
    manager = LogManager.open(
        [str(tmp_path / name) for name in ("one", "two")],
        lambda _: LogConfig(),
        clock,
        files,
        node_id=1,
        cluster_id="cluster-of-tests",
    )
    yield manager
    files.before = healthy
    manager.close()


@pytest.fixture
def log(manager: LogManager) -> Log:
    return manager.create(*KEY, b"i" * 16, LogConfig())


def begin(manager: LogManager, log: Log) -> LogMove:
    (target,) = [one for one in manager.directories if not log.directory.startswith(one.path + "/")]
    return manager.begin_move(log, target)


def no_wait(_: int) -> None:
    """There is no bound on the rate."""


def test_a_segment_whose_last_index_entries_could_not_be_written_is_copied_with_them(
    manager: LogManager, log: Log, files: FailingFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_LITTLE", 0)  # the segment that is appended to ends
    for number in range(50):
        log.append(batch(b"." * 500, timestamp=NOW_MS + number), 1)
    log.flush()
    log.checkpoint()
    files.before = failing(errno.ENOSPC, "write", path=f"{log.directory}/{0:020d}.timeindex")
    move = begin(manager, log)
    move.copy(no_wait)
    assert log.segment_count > 1
    assert move.copied_bytes == log.size, "what takes long is not left for when it is closed"
    files.before = healthy
    moved = manager.finish_move(move, 50)
    assert move.is_done
    latest = moved.offset_of_max_timestamp()
    assert latest is not None
    assert (latest.timestamp, latest.offset) == (NOW_MS + 49, 49)


def test_the_segment_appended_to_is_ended_and_copied_while_the_log_is_open(
    manager: LogManager, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_LITTLE", 0)
    log.append(batch(b"first"), 1)
    log.flush()
    log.checkpoint()
    move = begin(manager, log)
    move.copy(no_wait)
    assert (move.copied_end, log.segment_count) == (1, 2)


def test_a_move_to_a_directory_that_failed_leaves_the_log_open(
    manager: LogManager, log: Log
) -> None:
    log.append(batch(b"first"), 1)
    move = begin(manager, log)
    move.copy(no_wait)
    manager.directory_at(move.target).shared.health.fail("a test", OSError(errno.EIO, "broken"))
    assert manager.finish_move(move, 1) is log
    assert "broken" in move.problem
    assert log.append(batch(b"second"), 1).first_offset == 1
    manager.end_move(move)
    assert not any(directory.moves for directory in manager.directories)


def test_a_move_that_cannot_begin_leaves_nothing_behind(
    manager: LogManager, log: Log, files: FailingFiles
) -> None:
    files.before = failing(errno.ENOSPC, "write", path="move.metadata")
    with pytest.raises(ApiError) as refused:
        begin(manager, log)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    found = [name for one in manager.directories for name in files.list(one.path)]
    assert not [name for name in found if name.endswith("-future")]


def test_what_was_moved_is_kept_where_it_was_until_its_new_name_there_is_stable(
    manager: LogManager, log: Log, files: FailingFiles, clock: ManualClock
) -> None:
    log.append(batch(b"a"), 1)
    move = begin(manager, log)
    move.copy(no_wait)
    source = Path(log.directory).parent

    def fail(operation: str, path: str) -> None:
        if operation == "sync directory" and path == str(source):
            raise OSError(errno.EMFILE, "too many open files", path)

    files.before = fail
    with pytest.raises(ApiError):
        manager.finish_move(move, 1)
    files.before = healthy
    clock.advance(3600)
    assert manager.empty_trash() == 0
    (grave,) = source.glob("*-delete")
    assert any(grave.iterdir())
