import errno
from pathlib import Path

import pytest

from qbus.broker.log import File, OsFiles
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


class Held:
    """Holds the file at ``path`` open, as a segment that is appended to does."""

    def __init__(self, cache: FileCache, path: str) -> None:
        self.in_use = False
        self.is_stable = True
        self.file: File | None = cache.hold(self, path)

    def let_go(self) -> bool:
        if self.is_stable:
            self.file = None
        return self.is_stable


class TestHeldFiles:
    def test_they_count(self, paths: list[str]) -> None:
        cache = FileCache(OsFiles(), limit=2)
        held = [Held(cache, path) for path in paths]
        assert [one.file is None for one in held] == [True, True, False, False]
        assert len(cache) == 2

    def test_one_in_use_gets_a_second_chance(self, paths: list[str]) -> None:
        cache = FileCache(OsFiles(), limit=2)
        first, second = Held(cache, paths[0]), Held(cache, paths[1])
        first.in_use = True
        Held(cache, paths[2])
        assert (first.file is None, second.file is None) == (False, True)
        Held(cache, paths[3])
        assert first.file is None, "and no third one"

    def test_what_is_not_stable_stays_open_up_to_a_quarter_more(self, paths: list[str]) -> None:
        cache = FileCache(OsFiles(), limit=4)
        held = [Held(cache, path) for path in paths]
        for one in held:
            one.is_stable = False
        extra = Held(cache, f"{paths[0]}.extra")
        extra.is_stable = False
        assert cache.short
        with pytest.raises(OSError, match="5 files of logs are open") as caught:
            cache.hold(extra, f"{paths[0]}.more")
        assert caught.value.errno == errno.EMFILE
        for one in held:
            one.is_stable = True
        cache.relieve()
        assert (len(cache), cache.short) == (4, False)
        assert extra.file is not None

    def test_files_that_are_read_make_room_where_no_other_can(self, paths: list[str]) -> None:
        cache = FileCache(OsFiles(), limit=3)
        held = [Held(cache, path) for path in paths[:2]]
        for one in held:
            one.is_stable = False
        cache.get(paths[2])
        Held(cache, paths[3])
        assert (len(cache), cache.short) == (3, False)
        assert all(one.file is not None for one in held)

    def test_one_that_is_dropped_counts_no_more(self, paths: list[str]) -> None:
        cache = FileCache(OsFiles())
        held = Held(cache, paths[0])
        cache.get(paths[0])
        cache.drop(held, paths[0])
        cache.drop(held, paths[0])
        assert len(cache) == 1, "the one that is read"
        cache.forget(paths[0])
        assert len(cache) == 0

    def test_a_later_holder_of_a_path_is_not_dropped_with_a_former_one(
        self, paths: list[str]
    ) -> None:
        cache = FileCache(OsFiles())
        former, later = Held(cache, paths[0]), Held(cache, paths[0])
        cache.drop(former, paths[0])
        assert len(cache) == 1
        cache.drop(later, paths[0])
        assert len(cache) == 0

    def test_it_goes_with_its_directory(self, paths: list[str]) -> None:
        cache = FileCache(OsFiles(), limit=1)
        held = Held(cache, paths[0])
        cache.forget_directory(paths[0].rpartition("/")[0])
        assert len(cache) == 0
        cache.get(paths[1])
        assert held.file is not None, "and is its holder's alone"

    def test_an_open_looks_at_a_bounded_number_of_them(self, tmp_path: Path) -> None:
        cache = FileCache(OsFiles(), limit=300)
        asked = []

        class Busy(Held):
            def let_go(self) -> bool:
                asked.append(self)
                return False

        for number in range(301):
            Busy(cache, str(tmp_path / str(number)))
        assert 0 < len(asked) <= 128
        assert cache.short
