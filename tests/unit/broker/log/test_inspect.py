"""Showing what is in a log's files, and everything that is wrong with them."""

from pathlib import Path

import pytest

from qbus.broker.log import TopicPartition
from qbus.broker.log.inspect import (
    BatchReport,
    ProblemKind,
    inspect_epochs,
    inspect_log,
    inspect_offset_index,
    inspect_offsets,
    inspect_partition_metadata,
    inspect_snapshot,
    inspect_time_index,
)
from qbus.records import set_base_offset
from tests.support.logs import NOW_MS, batch

from .conftest import OpenLog

SIZE = len(batch(b"v" * 100))


@pytest.fixture
def path(open_log: OpenLog, directory: Path) -> Path:
    """A closed segment of five batches of one record."""
    log = open_log(index_interval_bytes=0)
    for number in range(5):
        sent = batch(
            b"v" * 100,
            timestamp=NOW_MS + number,
            producer_id=7,
            producer_epoch=1,
            base_sequence=number,
        )
        log.append(sent, 2)
    log.close()
    return directory / f"{0:020d}.log"


def inspect(path: Path, *, gaps: bool = False) -> list[BatchReport]:
    return list(inspect_log(str(path), gaps=gaps))


def kinds(path: Path, *, gaps: bool = False) -> list[list[ProblemKind]]:
    return [[problem.kind for problem in one.problems] for one in inspect(path, gaps=gaps)]


def overwrite(path: Path, position: int, content: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + len(content)] = content
    path.write_bytes(data)


def test_a_good_segment_is_its_batches(path: Path) -> None:
    reports = inspect(path)
    assert [report.position for report in reports] == [SIZE * number for number in range(5)]
    assert [report.header.base_offset for report in reports if report.header] == list(range(5))
    assert kinds(path) == [[]] * 5


def test_a_bad_sum_is_told_and_the_rest_read(path: Path) -> None:
    overwrite(path, SIZE + 100, b"?")
    assert kinds(path) == [[], [ProblemKind.BAD_CRC], [], [], []]


def test_a_gap_and_an_overlap_are_told(path: Path) -> None:
    data = bytearray(path.read_bytes())
    set_base_offset(data, 7, 2, SIZE)
    path.write_bytes(data)
    assert kinds(path) == [[], [ProblemKind.GAP], [ProblemKind.OVERLAP], [], []]
    assert kinds(path, gaps=True) == [[], [], [ProblemKind.OVERLAP], [], []]


def test_damage_is_passed_over_to_the_next_good_batch(path: Path) -> None:
    overwrite(path, SIZE + 8, b"\xff\xff\xff\xff")
    reports = inspect(path)
    assert (reports[1].header, reports[1].position, reports[1].size) == (None, SIZE, SIZE)
    assert kinds(path) == [[], [ProblemKind.BAD_HEADER], [ProblemKind.GAP], [], []]


def test_so_it_is_far_from_offset_0(open_log: OpenLog, directory: Path) -> None:
    start = 5 * 2**31
    log = open_log(log_start_offset=start)
    for _ in range(3):
        log.append(batch(b"v" * 100), 0)
    log.close()
    path = directory / f"{start:020d}.log"
    overwrite(path, 8, bytes(4))
    assert [one.header and one.header.base_offset for one in inspect(path)] == [
        None,
        start + 1,
        start + 2,
    ]


@pytest.mark.parametrize("kept", [1, 60, 61, SIZE - 1])
def test_a_cut_batch_is_told(path: Path, kept: int) -> None:
    path.write_bytes(path.read_bytes()[: SIZE * 4 + kept])
    assert kinds(path) == [[], [], [], [], [ProblemKind.TRUNCATED]]
    assert inspect(path)[-1].size == kept


def test_a_length_that_lies_does_not_hide_what_follows(path: Path) -> None:
    overwrite(path, SIZE + 8, (SIZE + 30).to_bytes(4, "big"))
    assert kinds(path) == [[], [ProblemKind.BAD_CRC], [ProblemKind.GAP], [], []]


def test_zeros_are_no_batches(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(3000))
    assert kinds(path)[-1] == [ProblemKind.BAD_HEADER]
    assert inspect(path)[-1].size == 3000


def test_a_good_index_agrees_with_its_log(path: Path) -> None:
    index = inspect_offset_index(str(path.with_suffix(".index")))
    assert [(entry.offset, entry.position) for entry in index.entries] == [
        (number, SIZE * number) for number in range(1, 5)
    ]
    assert not index.problems
    assert not any(entry.problems for entry in index.entries)
    times = inspect_time_index(str(path.with_suffix(".timeindex")))
    assert [(entry.timestamp - NOW_MS, entry.offset) for entry in times.entries] == [
        (number, number) for number in range(1, 5)
    ]
    assert not any(entry.problems for entry in times.entries)


def test_entries_that_disagree_with_the_log_are_told(path: Path) -> None:
    index = path.with_suffix(".index")
    overwrite(index, 3, b"\x09")
    overwrite(index, 15, b"\x01")
    reports = inspect_offset_index(str(index)).entries
    assert [problem.kind for problem in reports[0].problems] == [ProblemKind.MISMATCH]
    assert [problem.kind for problem in reports[1].problems] == [
        ProblemKind.NOT_ASCENDING,
        ProblemKind.MISMATCH,
    ]
    times = path.with_suffix(".timeindex")
    overwrite(times, 7, b"\xff")
    kinds_of_first = [p.kind for p in inspect_time_index(str(times)).entries[0].problems]
    assert kinds_of_first == [ProblemKind.MISMATCH]


def test_a_cut_entry_is_told(path: Path) -> None:
    for suffix in (".index", ".timeindex"):
        with path.with_suffix(suffix).open("ab") as file:
            file.write(b"xyz")
    index = inspect_offset_index(str(path.with_suffix(".index")))
    times = inspect_time_index(str(path.with_suffix(".timeindex")))
    for problems in (index.problems, times.problems):
        assert [problem.kind for problem in problems] == [ProblemKind.TRUNCATED]


def test_an_index_without_its_log_is_read_for_itself(path: Path) -> None:
    path.unlink()
    assert not any(
        e.problems for e in inspect_offset_index(str(path.with_suffix(".index"))).entries
    )
    times = inspect_time_index(str(path.with_suffix(".timeindex")))
    assert not any(entry.problems for entry in times.entries)


def test_snapshots_and_checkpoints_are_read(path: Path, tmp_path: Path) -> None:
    snapshot = inspect_snapshot(str(path.parent / f"{5:020d}.snapshot"))
    assert [(entry.producer_id, entry.epoch) for entry in snapshot] == [(7, 1)] * 5
    assert [entry.batch.last_sequence for entry in snapshot] == list(range(5))
    assert inspect_epochs(str(path.parent / "leader-epoch-checkpoint")) == [(2, 0)]
    (tmp_path / "offsets").write_text("0\n1\nt 3 4\n")
    assert inspect_offsets(str(tmp_path / "offsets")) == {TopicPartition("t", 3): 4}
    (tmp_path / "metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    assert inspect_partition_metadata(str(tmp_path / "metadata")) == bytes(range(16))


def test_a_file_must_be_named_for_its_offset(tmp_path: Path) -> None:
    (tmp_path / "some.log").touch()
    with pytest.raises(ValueError, match="not named for an offset"):
        list(inspect_log(str(tmp_path / "some.log")))
