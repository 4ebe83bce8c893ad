import errno
from pathlib import Path

import pytest

from qbus.broker.log import OsFiles
from qbus.broker.log.trash import Trash, remove_path
from qbus.clock import ManualClock


class _Stubborn(OsFiles):
    """Files that cannot be removed for now."""

    def __init__(self) -> None:
        self.stubborn = True

    def remove(self, path: str) -> None:
        if self.stubborn:
            raise OSError(errno.EBUSY, "busy")
        super().remove(path)


def test_what_is_thrown_away_goes_when_it_is_due(tmp_path: Path, clock: ManualClock) -> None:
    soon, later = tmp_path / "soon", tmp_path / "later"
    soon.touch()
    later.touch()
    trash = Trash(OsFiles(), clock)
    trash.add(str(soon), 1000)
    trash.add(str(later), 5000)
    assert trash.empty() == 0
    clock.advance(1)
    assert trash.empty() == 1
    assert not soon.exists()
    assert later.exists()
    clock.advance(4)
    assert trash.empty() == 1
    assert not later.exists()


def test_what_cannot_be_removed_is_tried_again(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "file"
    path.touch()
    files = _Stubborn()
    trash = Trash(files, clock)
    trash.add(str(path), 0)
    assert trash.empty() == 0
    assert len(trash) == 1
    files.stubborn = False
    assert trash.empty() == 1


@pytest.mark.parametrize("kind", ["file", "directory", "nothing"])
def test_a_path_goes_with_all_that_is_in_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    if kind == "file":
        path.touch()
    if kind == "directory":
        path.mkdir()
        (path / "one").touch()
    remove_path(OsFiles(), str(path))
    assert not path.exists()
