"""The stream that the demo ships."""

from pathlib import Path

import pytest

from qbus.cli.demo.source import Source, choose_times


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


def test_what_a_growing_file_has_gained_is_left_out(path: Path) -> None:
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
