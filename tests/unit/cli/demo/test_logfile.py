"""Which file the demo takes."""

from pathlib import Path

import pytest

from qbus.cli.demo import logfile
from qbus.cli.demo.logfile import find_log, is_text


@pytest.fixture(autouse=True)
def no_fallbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfile, "FALLBACKS", ())


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_the_largest_text_below_the_root(tmp_path: Path) -> None:
    write(tmp_path / "small.log", b"line\n")
    largest = write(tmp_path / "app" / "deep" / "large.log", b"line\n" * 100)
    write(tmp_path / "journal", b"LPKSHHRH\0" + b"x" * 10_000)
    write(tmp_path / "old.log.gz", b"\x1f\x8b\x08" + b"\xff" * 20_000)
    assert find_log(tmp_path) == largest


def test_files_too_large_for_a_demo_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "huge.log", b"line\n" * 100)
    small = write(tmp_path / "small.log", b"line\n")
    assert find_log(tmp_path, max_size=100) == small


def test_links_and_empty_files_do_not_count(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside.log", b"line\n")
    root = tmp_path / "log"
    write(root / "empty.log", b"")
    (root / "link.log").symlink_to(outside)
    (root / "dangling.log").symlink_to(tmp_path / "nothing")
    assert find_log(root) is None


def test_a_machine_without_logs_uses_a_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write(tmp_path / "other" / "status", b"Package: x\n")
    monkeypatch.setattr(logfile, "FALLBACKS", (tmp_path / "absent", tmp_path / "other"))
    assert find_log(tmp_path / "log") == other


def test_text_may_hold_any_language(tmp_path: Path) -> None:
    assert is_text(write(tmp_path / "log", "журнал\n日誌\n".encode()))


def test_a_character_cut_by_the_end_of_the_head_is_still_text(tmp_path: Path) -> None:
    assert is_text(write(tmp_path / "log", b"x" + "é".encode() * 40_000))


@pytest.mark.parametrize("content", [b"", b"text\0", b"latin-1 \xe9\n", b"cut \xc3"])
def test_what_is_no_text(tmp_path: Path, content: bytes) -> None:
    assert not is_text(write(tmp_path / "log", content))


def test_what_cannot_be_read_is_no_text(tmp_path: Path) -> None:
    assert not is_text(tmp_path)
    assert not is_text(tmp_path / "absent")
