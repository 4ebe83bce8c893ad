"""A disk that fills up while a log is compacted: nothing is lost, and it goes on later."""

import errno
from pathlib import Path

import pytest

from qbus.broker.log import Log
from qbus.errors import ApiError
from tests.support.failing_files import FailingFiles, failing, healthy

from .keyed import KeyedLog


class Disk:
    """A log that was filled, on a disk that fails when it is told to."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.files = FailingFiles()
        self.keyed = KeyedLog(directory, self.files)
        for value in (b"1", b"2", b"3"):
            self.keyed.put((b"a", value))
            self.keyed.put((b"b", value))
            self.keyed.roll()

    @property
    def log(self) -> Log:
        return self.keyed.log

    def leftovers(self) -> list[str]:
        """What compaction has left lying about."""
        return [
            path.name
            for path in self.keyed.directory.iterdir()
            if path.name.endswith((".cleaned", ".swap"))
        ]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "topic-0")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_name_that_finds_no_room_leaves_the_log_as_it_was(disk: Disk, error: int) -> None:
    before = disk.keyed.items()
    disk.files.before = failing(error, "rename", path=".log.cleaned")
    with pytest.raises(ApiError, match="cannot write"):
        disk.keyed.clean()
    disk.files.before = healthy
    assert disk.log.is_usable
    assert disk.keyed.items() == before
    assert disk.leftovers() == []
    disk.keyed.clean()
    assert [item[1:] for item in disk.keyed.items()] == [(b"a", b"3"), (b"b", b"3")]
    disk.keyed.reopen()
    disk.keyed.check()


def test_a_name_that_fails_otherwise_may_be_there_all_the_same(disk: Disk) -> None:
    disk.files.before = failing(errno.EIO, "rename", path=".log.cleaned")
    with pytest.raises(ApiError, match="is offline"):
        disk.keyed.clean()
    assert disk.leftovers(), "the next start decides by them"
