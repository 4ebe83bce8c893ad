from pathlib import Path

import pytest

from qbus.broker.log import OsFiles
from qbus.broker.log.file_cache import FileCache


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    names = [tmp_path / str(number) for number in range(4)]
    for path in names:
        path.write_bytes(path.name.encode())
    return [str(path) for path in names]


def test_a_file_is_opened_once(paths: list[str]) -> None:
    cache = FileCache(OsFiles())
    assert cache.get(paths[0]) is cache.get(paths[0])


def test_the_least_recently_used_is_let_go(paths: list[str]) -> None:
    cache = FileCache(OsFiles(), limit=2)
    first = cache.get(paths[0])
    cache.get(paths[1])
    assert cache.get(paths[0]) is first
    cache.get(paths[2])
    assert len(cache) == 2
    assert cache.get(paths[0]) is first


def test_a_reader_keeps_a_file_that_was_let_go(paths: list[str]) -> None:
    cache = FileCache(OsFiles(), limit=1)
    first = cache.get(paths[0])
    cache.get(paths[1])
    assert first.read_at(0, 1) == b"0"


def test_a_renamed_file_can_be_forgotten(paths: list[str]) -> None:
    cache = FileCache(OsFiles())
    first = cache.get(paths[0])
    cache.forget(paths[0])
    cache.forget(paths[3])
    assert cache.get(paths[0]) is not first


def test_a_whole_directory_can_be_forgotten(paths: list[str]) -> None:
    cache = FileCache(OsFiles())
    for path in paths:
        cache.get(path)
    cache.forget_directory(paths[0].rpartition("/")[0])
    assert len(cache) == 0


def test_files_of_other_directories_stay_open(tmp_path: Path) -> None:
    cache = FileCache(OsFiles(), limit=3)
    for name in ("a/1", "a/2", "ab/3", "b/4"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
        cache.get(str(tmp_path / name))
    assert len(cache) == 3, "the oldest was let go"
    cache.forget_directory(str(tmp_path / "a"))
    assert len(cache) == 2
    cache.forget(str(tmp_path / "b/4"))
    cache.forget(str(tmp_path / "b/4"))
    cache.forget_directory(str(tmp_path / "nothing"))
    assert len(cache) == 1
    assert cache.get(str(tmp_path / "a/1")).read_at(0, 1) == b"x"
