"""A directory belongs to one process at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from qbus.service.lock import DirectoryInUse, DirectoryLock, is_locked


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path / "lock", "another agent")
    second = DirectoryLock(tmp_path / "lock", "another agent")
    first.acquire()
    with pytest.raises(DirectoryInUse, match=f"another agent uses {tmp_path}"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_acquiring_and_releasing_twice_change_nothing(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path / "lock")
    lock.acquire()
    lock.acquire()
    lock.release()
    assert not is_locked(tmp_path / "lock")
    lock.release()


def test_the_lock_ends_with_its_block(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path / "lock"):
        assert is_locked(tmp_path / "lock")
    assert not is_locked(tmp_path / "lock")


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom qbus.service.lock import DirectoryLock\n"
        "lock = DirectoryLock(Path(sys.argv[1]))\nlock.acquire()\nprint('held', flush=True)\n"
        "sys.stdin.read()"
    )
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        assert is_locked(path)
        child.kill()
    assert not is_locked(path)


def test_without_a_file_nobody_holds_the_lock(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryLock(tmp_path / "missing" / "lock").acquire()
