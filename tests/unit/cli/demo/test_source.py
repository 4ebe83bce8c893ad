"""The stream that the demo ships."""

from pathlib import Path

import pytest

from qbus.cli.demo.source import Source, choose_times, find_log, is_text


def whole(path: Path, content: bytes, times: int, size: int | None = None) -> bytes:
    path.write_bytes(content)
    source = Source(path, len(content) if size is None else size, times)
    with source.open() as stream:
        return stream.read()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_a_file_once(path: Path) -> None:
    assert whole(path, b"one\ntwo\n", 1) == b"one\ntwo\n"


def test_a_file_several_times(path: Path) -> None:
    assert whole(path, b"one\ntwo\n", 3) == b"one\ntwo\n" * 3


def test_a_missing_last_newline_is_added_each_time(path: Path) -> None:
    assert whole(path, b"one\ntwo", 2) == b"one\ntwo\n" * 2


def test_empty_lines_stay(path: Path) -> None:
    assert whole(path, b"\n\n", 2) == b"\n\n\n\n"


def test_lines_appended_meanwhile_are_left_out(path: Path) -> None:
    assert whole(path, b"one\ntwo\nthree\n", 2, size=8) == b"one\ntwo\n" * 2


def test_a_file_that_shrank_ends_early(path: Path) -> None:
    assert whole(path, b"one\n", 2, size=100) == b"one\n" * 2
    assert whole(path, b"", 2, size=100) == b""


def test_a_file_larger_than_the_buffer(path: Path) -> None:
    content = b"0123456789\n" * 300_000
    assert whole(path, content, 2) == content * 2


@pytest.mark.parametrize(
    ("size", "times"), [(1, 100), (640_000, 100), (6_400_000, 10), (63_000_000, 1), (10**9, 1)]
)
def test_small_files_are_shipped_several_times(size: int, times: int) -> None:
    assert choose_times(size) == times


@pytest.fixture(autouse=True)
def no_fallbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbus.cli.demo.source.FALLBACKS", ())


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
    monkeypatch.setattr("qbus.cli.demo.source.FALLBACKS", (tmp_path / "absent", tmp_path / "other"))
    assert find_log(tmp_path / "log") == other


def test_text_may_hold_any_language(tmp_path: Path) -> None:
    assert is_text(write(tmp_path / "log", "журнал\n日誌\n".encode()))


def test_a_character_cut_by_the_end_of_the_head_is_still_text(tmp_path: Path) -> None:
    assert is_text(write(tmp_path / "log", b"x" + "é".encode() * 40_000))


@pytest.mark.parametrize("content", [b"", b"text\0", b"latin-1 \xe9\n", b"cut \xc3"])
def test_binary_files_are_not_text(tmp_path: Path, content: bytes) -> None:
    assert not is_text(write(tmp_path / "log", content))


def test_unreadable_files_are_not_text(tmp_path: Path) -> None:
    assert not is_text(tmp_path)
    assert not is_text(tmp_path / "absent")
