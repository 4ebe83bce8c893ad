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
