"""Which files are made into one."""

from qbus.clients.spark.jobs.archive.compaction import groups
from qbus.clients.spark.jobs.archive.snapshot import ArchivedFile, Snapshot
from qbus.clients.spark.jobs.config import Compaction

from .files import archived

CONFIG = Compaction(target_bytes=100)


def grouped(*files: ArchivedFile, at_least: int = 2) -> list[list[str]]:
    found = groups(Snapshot().changed(files), CONFIG, at_least)
    return [[file.path.rpartition("/")[2] for file in group] for group in found]


def test_small_files_of_an_hour_oldest_first() -> None:
    one, other = archived("b", modified=1), archived("a", modified=2)
    assert grouped(other, one) == [["b", "a"]]


def test_large_files_stay_and_so_does_one_alone() -> None:
    assert grouped(archived("large", size=50), archived("small", size=49)) == []


def test_hours_are_not_mixed() -> None:
    assert grouped(archived("a"), archived("b", hour="topic=t/date=2026-01-01/hour=01")) == []


def test_fewer_than_it_takes_stay() -> None:
    assert grouped(archived("a"), archived("b"), at_least=3) == []


def test_no_group_is_larger_than_the_target() -> None:
    files = [archived(str(number), size=40, modified=number) for number in range(5)]
    assert grouped(*files) == [["0", "1"], ["2", "3"]]
