"""Each record once: whatever step of whichever attempt is the last of its process."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import pytest

from qbus.clients.pipelines.archive import archiver as module
from qbus.clients.pipelines.archive.archiver import Archiver
from qbus.clients.pipelines.archive.log import ArchiveError, ArchiveLog
from qbus.clients.pipelines.archive.snapshot import ArchivedFile, Coverage, Intervals
from qbus.clients.pipelines.archive.staging import StagedFiles, Staging
from qbus.clients.pipelines.archive.storage import Found, Storage

from .files import ROOT, FakeStorage

Offsets = list[int]


class Crash(Exception):  # noqa: N818 - what happens
    """The process is gone."""


class Disk(FakeStorage):
    """The log and the data files; counts steps, and crashes before or after a chosen one."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, Offsets] = {}
        self.steps = 0
        self.crash_at = -1

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.crash_at:
            raise Crash

    def create(self, path: str, text: str) -> None:
        self.step()
        super().create(path, text)
        self.step()

    def archived(self) -> Counter[int]:
        files = ArchiveLog(cast("Storage", self)).snapshot.files
        return Counter(offset for path in files for offset in self.data[path])


class FakeStaging:
    """Writes the offsets of one topic and partition, two to a file."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def write(self, rows: Offsets) -> StagedFiles:
        self._disk.step()
        pairs = [rows[at : at + 2] for at in range(0, len(rows), 2)]
        name = f"{self._disk.steps}-{len(self._disk.data)}"
        paths = [f"topic=t/{name}-{number}" for number in range(len(pairs))]
        self._disk.data.update(
            (f"{ROOT}/{path}", pair) for path, pair in zip(paths, pairs, strict=True)
        )
        return StagedFiles(
            name,
            {path: Found(path, 1, 0) for path in paths},
            {
                path: {0: (min(pair), max(pair), len(pair))}
                for path, pair in zip(paths, pairs, strict=True)
            },
        )

    def move(
        self, staged: StagedFiles, ids: Mapping[str, str], covers: Callable[[str, int], Intervals]
    ) -> list[ArchivedFile]:
        self._disk.step()
        return [
            ArchivedFile(f"{ROOT}/{path}", 1, 0, "t", ids["t"], {0: count}, {0: covers("t", 0)})
            for path, extents in staged.extents.items()
            for count in [extents[0][2]]
        ]

    def discard(self, staged: StagedFiles) -> None:
        self._disk.step()
        for path in staged.files:
            del self._disk.data[f"{ROOT}/{path}"]


@pytest.fixture(autouse=True)
def rows_are_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(rows: Offsets, covered: Coverage) -> Offsets:
        known = covered["t", 0]
        return [at for at in rows if not any(begin <= at < end for begin, end in known)]

    monkeypatch.setattr(module, "laid_out", lambda rows, _: rows)
    monkeypatch.setattr(module, "without", without)


def archiver(disk: Disk, topic_id: str = "id") -> Archiver:
    def ids(topics: Iterable[str]) -> Mapping[str, str]:
        return dict.fromkeys(topics, topic_id)

    return Archiver(
        ArchiveLog(cast("Storage", disk)), cast("Staging", FakeStaging(disk)), ids, "UTC"
    )


def add(into: Archiver, rows: Offsets) -> int:
    return into.add(cast("Any", rows))


STEPS = 4
"""Of one batch: files are written, moved; the commit is about to be there, and is."""


def test_these_are_all_steps() -> None:
    disk = Disk()
    add(archiver(disk), [0, 1, 2, 3, 4])
    assert disk.steps == STEPS


@pytest.mark.parametrize("crash_at", range(1, STEPS + 1))
def test_a_batch_that_is_tried_again_after_a_crash(crash_at: int) -> None:
    disk = Disk()
    disk.crash_at = crash_at
    with pytest.raises(Crash):
        add(archiver(disk), [0, 1, 2, 3, 4])
    add(archiver(disk), [0, 1, 2, 3, 4])
    add(archiver(disk), [5, 6])
    assert disk.archived() == Counter(range(7))


def test_offsets_that_others_have_archived_are_left_out() -> None:
    disk = Disk()
    one, other = archiver(disk), archiver(disk)
    assert add(one, [0, 1, 2, 3]) == 4
    assert add(other, [2, 3, 4, 5]) == 2
    assert add(one, [0, 1, 2, 3, 4, 5]) == 0
    assert disk.archived() == Counter(range(6))


def test_records_before_the_first_offset_can_be_added_later() -> None:
    disk = Disk()
    add(archiver(disk), [10, 11])
    assert add(archiver(disk), [7, 8, 9, 10, 11, 12]) == 4
    assert disk.archived() == Counter(range(7, 13))


def test_offsets_that_nobody_has_do_not_matter() -> None:
    disk = Disk()
    add(archiver(disk), [0, 5, 9])
    assert add(archiver(disk), [0, 5, 9, 12]) == 1
    assert disk.archived() == Counter([0, 5, 9, 12])


def test_a_topic_that_was_created_again_is_refused() -> None:
    disk = Disk()
    add(archiver(disk), [0, 1])
    with pytest.raises(ArchiveError, match="topic t was deleted and created again"):
        add(archiver(disk, topic_id="another"), [0, 1])
    assert disk.archived() == Counter([0, 1])


def test_a_topic_that_is_created_again_while_the_query_runs_is_refused() -> None:
    disk = Disk()
    there = {"t": "id"}
    running = Archiver(
        ArchiveLog(cast("Storage", disk)),
        cast("Staging", FakeStaging(disk)),
        lambda _: there,
        "UTC",
    )
    add(running, [0, 1])
    there["t"] = "another"
    with pytest.raises(ArchiveError, match="topic t was deleted and created again"):
        add(running, [0, 1])
