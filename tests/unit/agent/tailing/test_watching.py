"""The changes that inotify tells, of any number of writes."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from inotify_simple import INotify

from qbus.agent.tailing.watching import Noticed, Watcher
from qbus.errors import ConfigError


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[Watcher]:
    watcher = Watcher()
    for name in ("a.log", "b.log"):
        (tmp_path / name).touch()
    watcher.watch([str(tmp_path)])
    yield watcher
    watcher.close()


def test_nothing_happened(watcher: Watcher) -> None:
    assert watcher.read() == Noticed(set(), needs_scan=False)


def test_each_written_file_is_named_once_however_often_it_is_written(
    watcher: Watcher, tmp_path: Path
) -> None:
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    files = [path.open("ab", buffering=0) for path in paths]
    for _ in range(6000):  # in turn, so that the kernel merges none: several buffers of events
        for file in files:
            file.write(b"x")
    assert watcher.read() == Noticed({str(path) for path in paths}, needs_scan=False)
    assert watcher.read() == Noticed(set(), needs_scan=False)
    for file in files:
        file.close()


def test_however_much_is_written_a_read_ends(watcher: Watcher, tmp_path: Path) -> None:
    paths = [tmp_path / (name * 255) for name in "ab"]
    files = [path.open("ab", buffering=0) for path in paths]
    assert watcher.read().needs_scan
    for _ in range(3000):  # 25 buffers of events
        for file in files:
            file.write(b"x")
    for _ in range(2):
        assert watcher.read() == Noticed({str(path) for path in paths}, needs_scan=False)
    assert watcher.read() == Noticed(set(), needs_scan=False)
    for file in files:
        file.close()


@pytest.mark.parametrize("name", [b"n", b"n" * 15, b"n" * 16, b"n" * 255, b"caf\xe9 \xff.log"])
def test_names_of_any_length_that_need_not_be_text(
    watcher: Watcher, tmp_path: Path, name: bytes
) -> None:
    path = b"%b/%b" % (os.fsencode(tmp_path), name)
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    assert watcher.read() == Noticed(set(), needs_scan=True)
    os.write(file, b"x")
    os.close(file)
    assert watcher.read() == Noticed({os.fsdecode(path)}, needs_scan=False)


def test_files_that_appear_move_or_vanish_need_a_scan(watcher: Watcher, tmp_path: Path) -> None:
    for change in (
        (tmp_path / "c.log").touch,
        lambda: (tmp_path / "c.log").rename(tmp_path / "d.log"),
        (tmp_path / "d.log").unlink,
        lambda: (tmp_path / "a.log").chmod(0o600),
    ):
        change()
        assert watcher.read().needs_scan
        assert not watcher.read().needs_scan


def test_a_write_and_a_new_file_are_noticed_together(watcher: Watcher, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"x")
    (tmp_path / "c.log").touch()
    assert watcher.read() == Noticed({str(tmp_path / "a.log")}, needs_scan=True)


def test_after_too_many_events_for_the_kernel_a_scan_finds_all(
    watcher: Watcher, tmp_path: Path
) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 100_000:
        pytest.skip("the system keeps too many events to exceed")
    files = [(tmp_path / name).open("ab", buffering=0) for name in ("a.log", "b.log")]
    for _ in range(most // 2 + 1):
        for file in files:
            file.write(b"x")
    while not (noticed := watcher.read()).needs_scan:
        assert noticed.written
    for file in files:
        file.close()


def test_a_directory_that_is_removed_is_watched_anew_when_it_is_back(tmp_path: Path) -> None:
    watcher = Watcher()
    directory = tmp_path / "logs"
    directory.mkdir()
    watcher.watch([str(directory)])
    directory.rmdir()
    assert watcher.read().needs_scan
    directory.mkdir()
    assert watcher.watch([str(directory)])
    (directory / "a.log").touch()
    assert watcher.read().needs_scan
    watcher.close()


def test_a_limit_of_the_kernel_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def too_many(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    watcher = Watcher()
    monkeypatch.setattr(INotify, "add_watch", full)
    watcher.watch([str(tmp_path)])
    assert not watcher.is_complete
    assert f"{tmp_path} is polled, as it cannot be watched: no more watches" in caplog.text
    assert "fs.inotify.max_user_watches" in caplog.text
    watcher.close()
    monkeypatch.setattr(INotify, "__init__", too_many)
    with pytest.raises(ConfigError, match=r"fs\.inotify\.max_user_instances"):
        Watcher()
