"""The log of an archive: what it says, in what form, and what becomes of what others write."""

import json
from typing import Any, cast

import pytest

from qbus.clients.pipelines.archive.log import ArchiveError, ArchiveLog, Conflict
from qbus.clients.pipelines.archive.snapshot import Snapshot
from qbus.clients.pipelines.archive.storage import Storage

from .files import ROOT, FakeStorage, archived

LOG = f"{ROOT}/_spark_metadata"


def log_in(storage: FakeStorage) -> ArchiveLog:
    return ArchiveLog(cast("Storage", storage))


def test_a_new_archive_is_empty() -> None:
    assert log_in(FakeStorage()).snapshot == Snapshot()


def test_a_commit_is_visible_to_the_next_reader() -> None:
    storage = FakeStorage()
    log = log_in(storage)
    for number in range(25):
        log.add([archived(f"{number}.parquet", begin=number, end=number + 1)])
    again = log_in(storage).snapshot
    assert again == log.snapshot
    assert again.coverage == {("t", 0): ((0, 25),)}
    assert again.topic_ids() == {"t": "id"}


def test_the_form_is_that_of_sparks_file_sink() -> None:
    storage = FakeStorage()
    log_in(storage).add([archived("a.parquet", size=7, modified=5)])
    version, line = storage.files[f"{LOG}/0"].split("\n")
    status: dict[str, Any] = json.loads(line)
    del status["qbus"]
    assert version == "v1"
    assert status == {
        "path": "file:/my%20archive/topic=t/date=2026-01-01/hour=00/a.parquet",
        "size": 7,
        "isDir": False,
        "modificationTime": 5,
        "blockReplication": 1,
        "blockSize": 7,
        "action": "add",
    }


def test_each_tenth_commit_has_all_files() -> None:
    storage = FakeStorage()
    log = log_in(storage)
    for number in range(10):
        log.add([archived(f"{number}.parquet")])
    assert storage.names() == {*map(str, range(9)), "9.compact"}
    assert storage.files[f"{LOG}/9.compact"].count("\n") == 10


def test_files_are_replaced_in_one_commit_that_has_all_files() -> None:
    storage = FakeStorage()
    log = log_in(storage)
    old = [archived(f"{number}.parquet") for number in range(3)]
    log.add(old)
    log.replace([old[0].path, old[1].path], [archived("large.parquet")])
    names = {path.rpartition("/")[2] for path in log_in(storage).snapshot.files}
    assert names == {"2.parquet", "large.parquet"}
    assert max(storage.names()) == "9.compact"


def test_one_of_two_concurrent_commits_conflicts() -> None:
    storage = FakeStorage()
    one, other = log_in(storage), log_in(storage)
    one.add([archived("a.parquet")])
    with pytest.raises(Conflict):
        other.add([archived("b.parquet")])
    other.reload()
    other.add([archived("b.parquet")])
    assert len(log_in(storage).snapshot.files) == 2


def test_a_commit_that_is_missing_is_named() -> None:
    storage = FakeStorage()
    log = log_in(storage)
    for number in range(3):
        log.add([archived(f"{number}.parquet")])
    storage.delete(f"{LOG}/1")
    with pytest.raises(ArchiveError, match="commit 1 is missing"):
        log_in(storage)


@pytest.mark.parametrize("text", ["", "v2\n", "v1\n{}", "v1\nnot JSON", 'v1\n{"path": "a"}'])
def test_a_foreign_log_is_an_error(text: str) -> None:
    storage = FakeStorage()
    storage.create(f"{LOG}/0", text)
    with pytest.raises(ArchiveError):
        log_in(storage)


def test_an_archive_that_was_moved_is_refused() -> None:
    storage = FakeStorage()
    log_in(storage).add([archived("a.parquet")])
    moved = FakeStorage()
    moved.root = "file:/other"
    for path, text in storage.files.items():
        moved.create(path.replace(ROOT, moved.root), text)
    with pytest.raises(ArchiveError, match="was at file:/my archive and is now at file:/other"):
        log_in(moved)


def test_commits_that_no_recent_snapshot_needs_are_deleted() -> None:
    storage = FakeStorage()
    log = log_in(storage)
    for number in range(35):
        storage.now = number
        log.add([archived(f"{number}.parquet")])
    log.forget(before=9)
    assert "0" in storage.names()
    log.forget(before=25)  # then the snapshot was that of 19 and of what came after it
    assert min(int(name.partition(".")[0]) for name in storage.names()) == 19
    assert log_in(storage).snapshot == log.snapshot


def test_files_count_as_needed_for_as_long_as_a_snapshot_has_had_them() -> None:
    storage = FakeStorage()
    log = log_in(storage)
    log.add([archived("old.parquet")])
    storage.now = 100
    log.replace([archived("old.parquet").path], [archived("new.parquet")])
    names = [
        {path.rpartition("/")[2] for path in log.paths_since(before)} for before in (50, 100, 101)
    ]
    assert names == [{"old.parquet", "new.parquet"}] * 2 + [{"new.parquet"}]


def test_a_commit_that_was_there_after_all_is_ones_own() -> None:
    class Impatient(FakeStorage):
        """Writes, hears nothing, and tries again."""

        def create(self, path: str, text: str) -> None:
            super().create(path, text)
            super().create(path, text)

    storage = Impatient()
    log = log_in(storage)
    log.add([archived("a.parquet")])
    log.add([archived("b.parquet")])
    assert log_in(storage).snapshot == log.snapshot
    assert len(log.snapshot.files) == 2
