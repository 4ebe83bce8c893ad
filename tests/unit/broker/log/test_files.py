"""The operating system's files, as the log relies on them."""

import errno
import os
from pathlib import Path

import pytest

from qbus.broker.log import OsFiles
from qbus.broker.log.files import read_file, replace_file, write_all, write_atomically


@pytest.fixture
def files() -> OsFiles:
    return OsFiles()


def test_what_is_written_at_a_position_is_read_there(files: OsFiles, tmp_path: Path) -> None:
    file = files.open(str(tmp_path / "a"), write=True)
    assert file.write_at(3, b"def") == 3
    assert file.write_at(0, memoryview(b"abc")) == 3
    assert file.read_at(1, 4) == b"bcde"
    assert file.size() == 6


def test_reading_stops_at_the_end(files: OsFiles, tmp_path: Path) -> None:
    file = files.open(str(tmp_path / "a"), write=True)
    file.write_at(0, b"abc")
    assert file.read_at(1, 100) == b"bc"
    assert file.read_at(9, 100) == b""
    assert file.read_at(1, 100, wait=False) == b"bc"


def test_a_file_that_is_in_the_page_cache_is_read_without_waiting(
    files: OsFiles, tmp_path: Path
) -> None:
    file = files.open(str(tmp_path / "a"), write=True)
    file.write_at(0, b"abc")
    assert file.read_at(0, 3, wait=False) == b"abc"


def test_a_file_that_is_not_in_the_page_cache_would_block(files: OsFiles, tmp_path: Path) -> None:
    file = files.open(str(tmp_path / "a"), write=True)
    file.write_at(0, bytes(1 << 20))
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        file.read_at(0, 4096, wait=False)
    except BlockingIOError:
        return
    pytest.skip("this file system keeps everything in memory")


def test_whether_a_byte_is_in_the_page_cache_can_be_asked(files: OsFiles, tmp_path: Path) -> None:
    file = files.open(str(tmp_path / "a"), write=True)
    file.write_at(0, bytes(1 << 20))
    assert all(map(file.is_cached, (0, 4096, (1 << 20) - 1, 1 << 20)))
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if file.is_cached(1 << 19):
        pytest.skip("this file system keeps everything in memory")
    file.read_at(1 << 19, 1)
    assert file.is_cached(1 << 19)


def test_a_file_is_closed_when_nobody_has_it(files: OsFiles, tmp_path: Path) -> None:
    file = files.open(str(tmp_path / "a"), write=True)
    descriptor = file.fileno()
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_opening_for_reading_creates_nothing(files: OsFiles, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(str(tmp_path / "a"))
    assert not files.exists(str(tmp_path / "a"))


def test_a_lock_excludes_others_until_it_is_let_go(files: OsFiles, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    held = files.lock(path)
    assert held is not None
    assert files.lock(path) is None
    del held
    assert files.lock(path) is not None


def test_removing_what_is_not_there_is_no_error(files: OsFiles, tmp_path: Path) -> None:
    files.remove(str(tmp_path / "nothing"))


def test_replacing_leaves_no_temporary_file(files: OsFiles, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    (tmp_path / "checkpoint.tmp").write_bytes(b"left by a crash, and longer than the new content")
    write_atomically(files, str(path), b"one")
    replace_file(files, str(path), b"two", sync=False)
    assert read_file(files, str(path)) == b"two"
    assert [found.name for found in tmp_path.iterdir()] == ["checkpoint"]


class _Stuttering:
    """A file that takes three bytes at a time, then none."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.data = b""

    def write_at(self, position: int, data: memoryview) -> int:
        taken = min(3, len(data), self.room)
        self.room -= taken
        self.data += bytes(data[:taken])
        return taken


def test_short_writes_are_continued() -> None:
    file = _Stuttering(100)
    write_all(file, 0, b"0123456789")  # type: ignore[arg-type]
    assert file.data == b"0123456789"


def test_a_write_that_makes_no_progress_is_an_error() -> None:
    with pytest.raises(OSError, match="no progress") as caught:
        write_all(_Stuttering(5), 0, b"0123456789")  # type: ignore[arg-type]
    assert caught.value.errno == errno.EIO
