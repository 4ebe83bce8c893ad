"""What a crash leaves of deleted topics goes with the next start, and nothing else."""

import errno
import logging
from pathlib import Path

import pytest

from qbus.broker.log import LogConfig, LogManager, OsFiles, TopicPartition
from qbus.broker.log.checkpoints import read_offsets
from qbus.clock import ManualClock
from tests.support.failing_files import FailingFiles, failing
from tests.support.logs import batch

ID, OTHER_ID = b"i" * 16, b"o" * 16
GONE = [TopicPartition("gone", index) for index in range(3)]
CHECKPOINT = "deleted-topics-checkpoint"


class Bench:
    """A broker's logs in two directories."""

    def __init__(self, path: Path) -> None:
        self.paths = [path / "a", path / "b"]
        self.files = FailingFiles()
        self.clock = ManualClock()
        self.start()

    def start(self) -> None:
        self.manager = LogManager.open(
            [str(path) for path in self.paths],
            lambda _topic: LogConfig(),
            self.clock,
            self.files,
            node_id=1,
            cluster_id="cluster",
        )

    def crash(self) -> None:
        del self.manager
        self.start()

    def create(self, key: TopicPartition, topic_id: bytes = ID) -> None:
        log = self.manager.create(*key, topic_id, LogConfig(), is_new=True)
        log.append(batch(b"v"), 0)
        log.flush()

    def on_disk(self) -> set[str]:
        """The names of all partitions' directories, those of deleted ones included."""
        return {path.name for top in self.paths for path in top.iterdir() if path.is_dir()}

    def written(self) -> list[Path]:
        return [path / CHECKPOINT for path in self.paths if (path / CHECKPOINT).exists()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    for key in GONE:
        bench.create(key)
    bench.create(TopicPartition("kept", 0), OTHER_ID)
    return bench


def note(bench: Bench) -> None:
    bench.manager.note_deleted(dict.fromkeys(GONE, ID))


def test_what_was_noted_and_not_removed_goes_with_the_next_start(bench: Bench) -> None:
    note(bench)
    assert len(bench.written()) == 2, "both directories have some of it"
    bench.crash()
    assert bench.manager.logs().keys() == {TopicPartition("kept", 0)}
    assert bench.manager.empty_trash() == len(GONE)
    assert bench.on_disk() == {"kept-0"}
    assert bench.written() == []


def test_a_start_that_crashes_before_the_files_are_gone_leaves_them_to_the_next(
    bench: Bench,
) -> None:
    note(bench)
    bench.crash()
    bench.crash()
    assert bench.manager.logs().keys() == {TopicPartition("kept", 0)}
    assert bench.on_disk() == {"kept-0"}


def test_a_crash_in_the_middle_of_the_removal_leaves_the_rest_to_the_next_start(
    bench: Bench,
) -> None:
    note(bench)
    assert bench.manager.delete_many(GONE[:2], {ID}) == {}
    bench.crash()
    bench.manager.empty_trash()
    assert bench.on_disk() == {"kept-0"}


def test_a_namesake_created_before_the_crash_stays(bench: Bench) -> None:
    note(bench)
    bench.manager.delete_many(GONE[:1], {ID})
    bench.create(GONE[0], OTHER_ID)
    bench.crash()
    log = bench.manager.get(*GONE[0])
    assert log is not None
    assert (log.topic_id, log.log_end_offset) == (OTHER_ID, 1)
    assert {one.topic for one in bench.manager.logs()} == {"gone", "kept"}
    assert bench.manager.get(*GONE[1]) is None


def test_a_namesake_created_meanwhile_keeps_what_the_checkpoints_say_of_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may begin once the name is free, before the checkpoints are cleared of the deleted one."""
    (directory,) = [one for one in bench.manager.directories if GONE[0] in one.logs]
    sync_names = directory.sync_names

    def sync_and_create() -> None:
        sync_names()
        directory.create_log(GONE[0], OTHER_ID, LogConfig())
        directory.checkpoint_cleaned(GONE[0], 7)

    monkeypatch.setattr(directory, "sync_names", sync_and_create)
    assert bench.manager.delete_many(GONE[:1], {ID}) == {}
    written = read_offsets(OsFiles(), f"{directory.path}/cleaner-offset-checkpoint")
    assert written == {GONE[0]: 7}


def test_a_namesake_is_not_read_from_files_that_a_late_reader_opened(bench: Bench) -> None:
    """Reading takes no lock: it may open a file when the directory is about to be renamed."""
    (directory,) = [one for one in bench.manager.directories if GONE[0] in one.logs]
    path = f"{directory.path}/{GONE[0]}"
    late: list[object] = []

    def read_late(operation: str, name: str) -> None:
        if (operation, name) == ("rename", path):
            late.append(directory.shared.cache.get(f"{path}/{0:020}.log"))

    bench.files.before = read_late
    assert bench.manager.delete_many(GONE[:1], {ID}) == {}
    log = directory.create_log(GONE[0], OTHER_ID, LogConfig())
    log.append(batch(b"v"), 0)
    assert len(late) == 1
    assert directory.shared.cache.get(f"{path}/{0:020}.log") is not late[0]


def test_a_namesakes_log_is_not_taken_for_the_deleted_ones(bench: Bench) -> None:
    bench.manager.delete_many(GONE)
    bench.create(GONE[0], OTHER_ID)
    note(bench)
    assert bench.written() == [], "nothing of the deleted topic is here"
    assert bench.manager.delete_many(GONE, {ID}) == {}
    assert bench.manager.get(*GONE[0]) is not None


def test_nothing_is_left_written_once_all_is_gone(bench: Bench) -> None:
    note(bench)
    bench.manager.note_deleted({TopicPartition("kept", 0): OTHER_ID})
    bench.manager.delete_many(GONE, {ID})
    bench.manager.forget_deleted({ID})
    (left,) = bench.written()
    assert left.read_text() == "0\n1\nb29vb29vb29vb29vb29vbw\n"
    bench.manager.forget_deleted({OTHER_ID})
    assert bench.written() == []


@pytest.mark.parametrize("content", ["", "0\n2\nxx\n", "1\n0\n", "0\n1\nnonsense\n"])
def test_what_makes_no_sense_is_passed_over(
    bench: Bench, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    (bench.paths[0] / CHECKPOINT).write_text(content)
    bench.crash()
    assert f"{CHECKPOINT} is passed over" in caplog.text
    assert len(bench.manager.logs()) == len(GONE) + 1
    note(bench)
    bench.crash()
    assert len(bench.manager.logs()) == 1


def test_a_full_disk_is_told_and_keeps_nothing_from_being_deleted(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.files.before = failing(errno.ENOSPC, "write", path=CHECKPOINT)
    note(bench)
    assert f"cannot write {CHECKPOINT}" in caplog.text
    assert bench.manager.delete_many(GONE, {ID}) == {}
    bench.manager.forget_deleted({ID})
    assert bench.manager.logs().keys() == {TopicPartition("kept", 0)}
    assert not any(directory.offline for directory in bench.manager.directories)


def test_names_that_are_not_stable_keep_their_files(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut may bring the directory back by its name: then it must be whole."""
    note(bench)
    del bench.manager
    bench.files.before = failing(errno.EIO, "sync directory")
    with caplog.at_level(logging.ERROR), pytest.raises(Exception, match="no data directory"):
        bench.start()
    graves = [path for top in bench.paths for path in top.glob("*-delete")]
    assert graves
    assert all((grave / "partition.metadata").exists() for grave in graves)
    assert len(bench.written()) == 2
