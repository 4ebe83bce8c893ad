"""Files of sorted pairs, searched without being held in memory."""

import struct
from bisect import bisect_right
from pathlib import Path

import pytest

from qbus.broker.log.file_cache import FileCache
from qbus.broker.log.indexes import EntryFile
from qbus.records import crc32c

_ENTRY = struct.Struct(">qi")


def make(cache: FileCache, path: Path) -> EntryFile:
    return EntryFile(cache, str(path), _ENTRY)


def append_many(entries: EntryFile, count: int) -> None:
    for number in range(count):
        entries.append(number, number)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "entries"


def test_a_file_that_is_not_there_has_no_entries(cache: FileCache, path: Path) -> None:
    entries = make(cache, path)
    assert len(entries) == 0
    assert entries.last() is None
    assert entries.floor(5) == -1
    assert entries.all() == []
    entries.sync()
    assert not path.exists()


def test_entries_are_collected_and_written_together(cache: FileCache, path: Path) -> None:
    entries = make(cache, path)
    entries.append(1, 10)
    entries.append(2, 20)
    assert not path.exists()
    assert entries.last() == (2, 20)
    entries.write()
    assert path.read_bytes() == _ENTRY.pack(1, 10) + _ENTRY.pack(2, 20)
    entries.append(3, 30)
    assert [entries.get(index) for index in range(3)] == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.parametrize("count", [1, 2, 511, 512, 513, 1500])
@pytest.mark.parametrize("written", [True, False])
def test_searching_finds_the_last_entry_that_is_not_above(
    cache: FileCache, path: Path, count: int, written: bool
) -> None:
    entries = make(cache, path)
    firsts = list(range(10, 10 + count * 3, 3))
    for index, first in enumerate(firsts):
        entries.append(first, index * 7)
    if written:
        entries.write()
    for target in range(8, 10 + count * 3, 2):
        assert entries.floor(target) == bisect_right(firsts, target) - 1
    assert entries.floor(7 * (count // 2), field=1) == count // 2


def test_a_search_works_while_entries_arrive(cache: FileCache, path: Path) -> None:
    entries = make(cache, path)
    for number in range(2000):
        entries.append(number, number)
        assert entries.floor(number // 2) == number // 2


def test_cutting_keeps_the_first_entries(cache: FileCache, path: Path) -> None:
    entries = make(cache, path)
    for number in range(10):
        entries.append(number, number)
        if number == 5:
            entries.write()
    entries.truncate(8)
    assert len(entries) == 8
    entries.truncate(4)
    assert entries.all() == [(number, number) for number in range(4)]
    entries.append(99, 99)
    entries.write()
    assert make(cache, path).all()[3:] == [(3, 3), (99, 99)]


def test_a_cut_entry_at_the_end_is_not_one(cache: FileCache, path: Path) -> None:
    path.write_bytes(_ENTRY.pack(1, 1) + b"torn")
    entries = make(cache, path)
    assert len(entries) == 1
    entries.append(2, 2)
    entries.write()
    assert make(cache, path).all() == [(1, 1), (2, 2)]


def test_entries_make_sense_up_to_the_first_that_does_not_ascend(
    cache: FileCache, path: Path
) -> None:
    entries = make(cache, path)
    for entry in [(1, 1), (2, 2), (3, 2), (0, 0), (4, 4)]:
        entries.append(*entry)
    assert entries.ascending(strict_second=True) == 2
    assert entries.ascending(strict_second=False) == 3


def test_an_entry_survives_a_write_that_fails(cache: FileCache, path: Path) -> None:
    path.mkdir()  # cannot be opened as a file
    entries = make(cache, path)
    entries._state = (0, b"")
    with pytest.raises(OSError, match="directory"):
        append_many(entries, 1000)
    kept = len(entries)
    path.rmdir()
    entries.write()
    assert len(make(cache, path)) == kept > 1


def test_the_checksum_is_that_of_what_is_in_the_file(cache: FileCache, path: Path) -> None:
    entries = make(cache, path)
    assert (entries.stored_size, entries.stored_crc) == (0, 0)
    for count in (200, 40):  # some of them are written on the way
        append_many(entries, count)
        check(entries, path)
        entries.write()
        check(entries, path)
    entries.truncate(101)
    check(entries, path)
    append_many(entries, 3)
    entries.write()
    check(entries, path)
    check(make(cache, path), path)
    entries.replace([(1, 2), (3, 4)])
    check(entries, path)
    entries.write()
    check(entries, path)
    assert entries.all() == [(1, 2), (3, 4)]


def check(entries: EntryFile, path: Path) -> None:
    content = path.read_bytes() if path.exists() else b""
    assert (entries.stored_size, entries.stored_crc) == (len(content), crc32c(content))
