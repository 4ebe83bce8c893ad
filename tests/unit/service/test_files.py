"""Files are replaced as a whole."""

import os
from pathlib import Path

import pytest

from qbus.service.files import rename_over, replace_file, sync_directory, write_all


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_created_then_replaced_and_nothing_else_is_left(
    tmp_path: Path, *, durable: bool
) -> None:
    path = tmp_path / "status.json"
    for content in (b"a longer first content", b"second", b""):
        replace_file(path, content, durable=durable)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_the_temporary_file_of_a_crash_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    (tmp_path / "status.json.tmp").write_bytes(b"x" * 100)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_failure_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "status.json"
    replace_file(path, b"old")

    def full(*_: object) -> int:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="no space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"


def test_who_replaces_a_file_can_keep_it_open(tmp_path: Path) -> None:
    path = tmp_path / "positions"
    file = rename_over(path, b"first\n")
    write_all(file, 6, b"second\n")
    os.close(file)
    assert path.read_bytes() == b"first\nsecond\n"


def test_a_partial_write_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: real(file, data[:3], at))
    replace_file(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_only_directories_are_synced(tmp_path: Path) -> None:
    sync_directory(tmp_path)
    with pytest.raises(OSError, match="missing"):
        sync_directory(tmp_path / "missing")
