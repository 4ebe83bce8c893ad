"""Memory that may be lost: told from the boot under which the logs were used last."""

import shutil
from pathlib import Path

from qbus.broker.boot import BOOT_ID_FILE, current_boot, identity, lost_memory, remember_boot
from qbus.broker.log.data_directory import DataDirectory
from qbus.broker.log.file_cache import FileCache
from qbus.broker.log.files import OsFiles
from qbus.clock import ManualClock


def directory(path: Path, *, was_clean: bool = False) -> DataDirectory:
    path.mkdir(exist_ok=True)
    made = DataDirectory(str(path), ManualClock(), FileCache(OsFiles()))
    made.was_clean = was_clean
    return made


def test_a_copy_is_not_the_same(tmp_path: Path) -> None:
    """Nor is the same place after another boot, or on another machine."""
    original = tmp_path / "data"
    first = identity([owned(original)], "boot-1")
    assert identity([owned(original)], "boot-1") == first
    copy = shutil.copytree(original, tmp_path / "copy")
    assert identity([owned(copy)], "boot-1") != first
    assert identity([owned(original)], "boot-2") != first


def test_the_first_directory_that_can_be_used_tells(tmp_path: Path) -> None:
    broken, good = directory(tmp_path / "broken"), owned(tmp_path / "good")
    assert identity([broken, good], "") == identity([good], "")


def owned(path: Path) -> DataDirectory:
    """A directory that belongs to broker 1."""
    made = directory(path)
    made.acquire("cluster", 1)
    assert made.properties is not None
    return made


def test_a_process_that_was_killed_has_lost_nothing(tmp_path: Path) -> None:
    data = directory(tmp_path)
    remember_boot([data], "boot-1")
    assert lost_memory([data], "boot-1") == []


def test_a_system_that_went_down_may_have_lost_it(tmp_path: Path) -> None:
    data = directory(tmp_path)
    remember_boot([data], "boot-1")
    assert lost_memory([data], "boot-2") == [str(tmp_path)]
    remember_boot([data], "boot-2")
    assert lost_memory([data], "boot-2") == []


def test_what_was_closed_before_is_there(tmp_path: Path) -> None:
    data = directory(tmp_path, was_clean=True)
    remember_boot([data], "boot-1")
    assert lost_memory([data], "boot-2") == []


def test_where_the_system_does_not_tell_every_crash_counts(tmp_path: Path) -> None:
    data = directory(tmp_path)
    remember_boot([data], "")
    assert not (tmp_path / BOOT_ID_FILE).exists()
    assert lost_memory([data], "") == [str(tmp_path)]
    data.was_clean = True
    assert lost_memory([data], "") == []


def test_a_directory_that_was_never_used_or_says_nonsense_may_have_lost_it(tmp_path: Path) -> None:
    fresh, odd, known = (directory(tmp_path / name) for name in "abc")
    (tmp_path / "b" / BOOT_ID_FILE).write_bytes(b"\xff\xfe")
    remember_boot([known], "boot-1")
    assert lost_memory([fresh, odd, known], "boot-1") == [fresh.path, odd.path]


def test_this_system_tells(tmp_path: Path) -> None:
    assert current_boot() == current_boot() != ""
    remember_boot([directory(tmp_path)], current_boot())
    assert (tmp_path / BOOT_ID_FILE).read_text() == current_boot()
