"""Opening after a crash: what is cut, what is corrupt, what is trusted."""

from pathlib import Path

import pytest

from qbus.broker.log import Log
from qbus.records import set_base_offset
from tests.support.logs import batch

from .conftest import OpenLog

SIZE = len(batch(b"v" * 600))


def crashed(open_log: OpenLog, count: int = 5, **config: int) -> Log:
    """A log of batches of one record, flushed, with no checkpoint."""
    log = open_log(**config)
    for number in range(count):
        log.append(batch(b"%d" % number * 600), 0)
    log.flush()
    return log


def segment(directory: Path, base: int = 0) -> Path:
    return directory / f"{base:020d}.log"


def overwrite(path: Path, position: int, content: bytes | bytearray) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + len(content)] = content
    path.write_bytes(data)


def test_everything_is_there_after_a_crash_of_the_process(open_log: OpenLog) -> None:
    crashed(open_log)
    again = open_log()
    assert (again.log_end_offset, again.flushed_offset) == (5, 5)
    assert again.corruptions == ()


@pytest.mark.parametrize("kept", [1, 60, 61, SIZE - 1])
def test_a_cut_batch_at_the_end_goes(open_log: OpenLog, directory: Path, kept: int) -> None:
    crashed(open_log)
    data = segment(directory).read_bytes()
    segment(directory).write_bytes(data[: SIZE * 3 + kept])
    again = open_log()
    assert (again.log_end_offset, again.size) == (3, SIZE * 3)
    assert segment(directory).stat().st_size == SIZE * 3
    assert again.append(batch(b"w"), 0).first_offset == 3


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"garbage" * 300, b"\x02" * 700])
def test_anything_behind_the_last_batch_goes(
    open_log: OpenLog, directory: Path, tail: bytes
) -> None:
    crashed(open_log)
    with segment(directory).open("ab") as file:
        file.write(tail)
    again = open_log(recovery_point=5)
    assert (again.log_end_offset, again.size) == (5, SIZE * 5)
    assert again.corruptions == ()


def test_a_page_that_was_not_written_ends_the_log_though_later_ones_were(
    open_log: OpenLog, directory: Path
) -> None:
    crashed(open_log)
    overwrite(segment(directory), 1024, bytes(512))  # in the second batch
    again = open_log()
    assert again.log_end_offset == 1
    assert again.is_usable


def test_a_segment_that_was_not_written_ends_the_log(open_log: OpenLog, directory: Path) -> None:
    crashed(open_log, count=7, segment_bytes=SIZE * 2)
    overwrite(segment(directory, 2), 0, b"")
    segment(directory, 2).write_bytes(segment(directory, 2).read_bytes()[:SIZE])
    again = open_log()
    assert again.log_end_offset == 3
    assert sorted(int(path.stem) for path in directory.glob("*.log")) == [0, 2]


def test_a_batch_that_went_bad_before_good_ones_is_corruption_and_nothing_is_cut(
    open_log: OpenLog, directory: Path
) -> None:
    crashed(open_log)
    overwrite(segment(directory), SIZE + 200, b"?")
    before = segment(directory).read_bytes()
    again = open_log()
    assert not again.is_usable
    assert again.corruptions[0].offset == 1
    assert segment(directory).read_bytes() == before


def test_a_bad_batch_below_the_recovery_point_is_corruption_even_at_the_end(
    open_log: OpenLog, directory: Path
) -> None:
    crashed(open_log)
    overwrite(segment(directory), SIZE * 4 + 200, b"?")
    assert open_log(recovery_point=4).log_end_offset == 4, "above it, it is cut"
    crashed(open_log, 1)
    overwrite(segment(directory), SIZE * 4 + 200, b"?")
    assert not open_log(recovery_point=5).is_usable


def test_a_last_batch_that_went_bad_below_the_high_watermark_is_not_cut(
    open_log: OpenLog, directory: Path
) -> None:
    """Its records were acknowledged, and no torn write leaves all its bytes."""
    crashed(open_log)
    overwrite(segment(directory), SIZE * 4 + 200, b"?")
    before = segment(directory).read_bytes()
    again = open_log(high_watermark=5)
    assert again.corruptions[0].offset == 4
    assert again.log_end_offset == 5, "its offset stays taken"
    assert segment(directory).read_bytes() == before


def test_a_last_batch_with_a_bad_header_takes_all_offsets_below_the_high_watermark(
    open_log: OpenLog, directory: Path
) -> None:
    log = open_log()
    log.append(batch(b"a" * 600), 0)
    log.append(batch(b"b" * 600, b"c" * 600), 0)
    log.flush()
    overwrite(segment(directory), SIZE + 3, b"?")  # in its base offset
    again = open_log(high_watermark=3)
    assert (again.log_end_offset, again.corruptions[0].offset) == (3, 1)


@pytest.mark.parametrize("kept", [1, 61, SIZE - 1])
def test_a_torn_last_batch_is_cut_even_below_the_high_watermark(
    open_log: OpenLog, directory: Path, kept: int
) -> None:
    crashed(open_log)
    segment(directory).write_bytes(segment(directory).read_bytes()[: SIZE * 4 + kept])
    again = open_log(high_watermark=5)
    assert (again.log_end_offset, again.corruptions) == (4, ())


def test_records_missing_below_the_recovery_point_are_corruption(
    open_log: OpenLog, directory: Path
) -> None:
    crashed(open_log)
    segment(directory).write_bytes(segment(directory).read_bytes()[: SIZE * 2])
    again = open_log(recovery_point=5)
    assert not again.is_usable
    assert "missing" in again.corruptions[0].problem
    segment(directory).unlink()
    assert not open_log(recovery_point=5).is_usable


def test_a_batch_in_the_wrong_place_was_not_torn(open_log: OpenLog, directory: Path) -> None:
    crashed(open_log)
    last = bytearray(segment(directory).read_bytes()[SIZE * 4 :])
    set_base_offset(last, 77, 0)
    overwrite(segment(directory), SIZE * 4, last)
    assert not open_log().is_usable


def test_segments_that_overlap_are_corruption(open_log: OpenLog, directory: Path) -> None:
    crashed(open_log, count=4, segment_bytes=SIZE * 2)
    segment(directory, 2).rename(segment(directory, 1))
    assert not open_log().is_usable


def test_indexes_and_epochs_are_made_anew_behind_the_recovery_point(
    open_log: OpenLog, directory: Path
) -> None:
    log = open_log(index_interval_bytes=0)
    for number in range(6):
        log.append(batch(b"v" * 600), number // 2)
    log.close()
    expected = {path.name: path.read_bytes() for path in directory.glob("*index")}
    (directory / "leader-epoch-checkpoint").unlink()
    for path in directory.glob("*index"):
        path.write_bytes(b"\xff" * 40)
    again = open_log(index_interval_bytes=0)
    assert list(again.epoch_cache.entries) == [(0, 0), (1, 2), (2, 4)]
    again.close()
    assert {path.name: path.read_bytes() for path in directory.glob("*index")} == expected


def test_a_lying_index_below_the_recovery_point_is_not_held_against_the_log(
    open_log: OpenLog, directory: Path
) -> None:
    log = open_log(index_interval_bytes=0)
    for _ in range(6):
        log.append(batch(b"v" * 600), 0)
    log.close()
    index = directory / f"{0:020d}.index"
    index.write_bytes(index.read_bytes()[:7] + b"\x07" + index.read_bytes()[8:])
    again = open_log(index_interval_bytes=0, recovery_point=2)
    assert (again.log_end_offset, again.corruptions) == (6, ())


def test_removed_indexes_of_large_segments_are_made_anew_after_a_clean_stop(
    open_log: OpenLog, directory: Path
) -> None:
    settings = {"index_interval_bytes": 100, "max_message_bytes": 1000}
    log = crashed(open_log, 10, **settings)
    log.close()
    expected = {path.name: path.read_bytes() for path in directory.glob("*index")}
    for name in expected:
        (directory / name).unlink()
    again = open_log(clean=True, recovery_point=10, **settings)
    again.close()
    assert {path.name: path.read_bytes() for path in directory.glob("*index")} == expected


def test_a_log_that_was_not_closed_as_it_says_is_recovered(
    open_log: OpenLog, directory: Path
) -> None:
    crashed(open_log).close()
    with segment(directory).open("ab") as file:
        file.write(b"torn")
    again = open_log(clean=True, recovery_point=5)
    assert (again.log_end_offset, again.size) == (5, SIZE * 5)


def test_producers_are_rebuilt_without_any_snapshot(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    for number in range(3):
        log.append(batch(b"v", producer_id=9, producer_epoch=0, base_sequence=number), 0)
    log.flush()
    for path in directory.glob("*.snapshot"):
        path.unlink()
    again = open_log()
    assert [producer.last_sequence for producer in again.producers] == [2]
