"""Which files are made into one, when that counts, and which are deleted after that."""

from typing import Any, cast

import pytest

from qbus.clients.pipelines.archive import compaction as module
from qbus.clients.pipelines.archive.compaction import Compactor, groups
from qbus.clients.pipelines.archive.log import ArchiveLog
from qbus.clients.pipelines.archive.snapshot import ArchivedFile, Snapshot
from qbus.clients.pipelines.archive.staging import StagedFiles
from qbus.clients.pipelines.archive.storage import Found
from qbus.clients.pipelines.config import Compaction

from .files import ROOT, FakeStorage, archived

CONFIG = Compaction(target_bytes=100)


def grouped(*files: ArchivedFile, at_least: int = 2) -> list[list[str]]:
    found = groups(Snapshot().changed(files), CONFIG, at_least)
    return [[file.path.rpartition("/")[2] for file in group] for group in found]


def test_small_files_of_an_hour_oldest_first() -> None:
    one, other = archived("b", modified=1), archived("a", modified=2)
    assert grouped(other, one) == [["b", "a"]]


def test_large_files_and_single_files_are_not_merged() -> None:
    assert grouped(archived("large", size=50), archived("small", size=49)) == []


def test_hours_are_not_mixed() -> None:
    assert grouped(archived("a"), archived("b", hour="topic=t/date=2026-01-01/hour=01")) == []


def test_fewer_than_it_takes_stay() -> None:
    assert grouped(archived("a"), archived("b"), at_least=3) == []


def test_no_group_is_larger_than_the_target() -> None:
    files = [archived(str(number), size=40, modified=number) for number in range(5)]
    assert grouped(*files) == [["0", "1"], ["2", "3"]]


HOUR_MS = 3_600_000
TWO_HOURS = ("topic=t/date=2026-01-01/hour=00", "topic=t/date=2026-01-01/hour=01")


class Spark:
    """Reads files: the rows are the hour they are in. ``read`` may fail."""

    def __init__(self) -> None:
        self.reads = 0
        self.fail_at = 0

    @property
    def read(self) -> "Spark":
        return self

    def schema(self, _: object) -> "Spark":
        return self

    def parquet(self, *_: str) -> "Spark":
        self.reads += 1
        if self.reads == self.fail_at:
            raise OSError("gone")
        return self

    def coalesce(self, _: int) -> "Spark":
        return self

    def sortWithinPartitions(self, *_: str) -> "Spark":
        return self


class Staging:
    """Writes a file of the 20 records that two files have."""

    def __init__(self, storage: FakeStorage) -> None:
        self.storage = storage
        self.discarded: list[str] = []

    def write_hour(self, _: object, hour: str) -> StagedFiles:
        path = f"{hour}/large-{self.storage.now}"
        return StagedFiles("s", {path: Found(path, 20, 0)}, {path: {0: (0, 19, 20)}})

    def move(self, staged: StagedFiles, *_: object) -> list[ArchivedFile]:
        (path,) = staged.files
        hour, name = path.rsplit("/", 1)
        self.storage.create(f"{ROOT}/{path}", "")
        return [archived(name, hour=hour, size=60, modified=self.storage.now)]

    def discard(self, staged: StagedFiles) -> None:
        self.discarded += staged.files


class Archive:
    """Two small files of each of two hours, and what compacts them."""

    def __init__(self) -> None:
        self.storage = FakeStorage()
        self.log = self.open()
        for hour in TWO_HOURS:
            for name in ("a", "b"):
                self.storage.create(f"{ROOT}/{hour}/{name}", "")
                self.log.add([archived(name, hour=hour)])
        self.spark = Spark()
        self.staging = Staging(self.storage)
        self.compactor = Compactor(
            cast("Any", self.spark), cast("Any", self.storage), self.log,
            cast("Any", self.staging), Compaction(target_bytes=100, files=2),
        )  # fmt: skip

    def open(self) -> ArchiveLog:
        return ArchiveLog(cast("Any", self.storage))

    def names(self) -> list[str]:
        """Of the files that a reader reads."""
        return sorted(path.removeprefix(f"{ROOT}/") for path in self.open().snapshot.files)


def test_readers_see_one_file_for_two() -> None:
    archive = Archive()
    assert archive.compactor.compact() == 4
    assert archive.names() == [f"{hour}/large-0" for hour in TWO_HOURS]


def test_replaced_files_stay_for_readers() -> None:
    archive = Archive()
    storage = archive.storage
    old = {f"{ROOT}/{hour}/{name}" for hour in TWO_HOURS for name in ("a", "b")}
    storage.now = 10 * HOUR_MS  # the files are old, and replaced only now
    archive.compactor.compact()
    archive.compactor.clean(now=10 * 3600 + 1)
    assert old <= storage.files.keys()
    archive.compactor.clean(now=11 * 3600 + 2)
    assert not old & storage.files.keys()
    assert {f"{ROOT}/{name}" for name in archive.names()} <= storage.files.keys()


def test_old_uncommitted_files_are_deleted() -> None:
    archive = Archive()
    storage = archive.storage
    storage.create(f"{ROOT}/{TWO_HOURS[0]}/left-by-a-crash", "")
    storage.now = 5 * HOUR_MS
    storage.create(f"{ROOT}/{TWO_HOURS[0]}/about-to-be-committed", "")
    archive.compactor.clean(now=5 * 3600 + 1)
    names = {path.rpartition("/")[2] for path in storage.files if TWO_HOURS[0] in path}
    assert names == {"a", "b", "about-to-be-committed"}


def test_merged_files_do_not_wait_long_for_their_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COMMIT_S", -1.0)
    archive = Archive()
    archive.spark.fail_at = 2
    with pytest.raises(OSError, match="gone"):
        archive.compactor.compact()
    first, second = TWO_HOURS
    assert archive.names() == [f"{first}/large-0", f"{second}/a", f"{second}/b"]


def test_one_of_two_concurrent_compactions_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive()
    other = archive.open()
    merge = archive.staging.write_hour

    def overtaken(rows: object, hour: str) -> StagedFiles:
        if hour == TWO_HOURS[0]:
            paths = [f"{ROOT}/{hour}/{name}" for name in ("a", "b")]
            other.replace(paths, [archived("theirs", hour=hour, size=60)])
        return merge(rows, hour)

    monkeypatch.setattr(archive.staging, "write_hour", overtaken)
    assert archive.compactor.compact() == 2
    assert archive.names() == [f"{TWO_HOURS[0]}/theirs", f"{TWO_HOURS[1]}/large-0"]
    assert archive.staging.discarded == [f"{TWO_HOURS[0]}/large-0"]
