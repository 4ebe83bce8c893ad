"""The two indexes of a segment, to the byte."""

from pathlib import Path

from qbus.broker.log.file_cache import FileCache
from qbus.broker.log.indexes import MaxTimestamp, OffsetIndex, TimeIndex


def offset_index(cache: FileCache, directory: Path) -> OffsetIndex:
    index = OffsetIndex(cache, str(directory / "100.index"), 100)
    for last_offset, position in [(110, 5000), (120, 10_000), (135, 15_000)]:
        index.append(last_offset, position)
    return index


def time_index(cache: FileCache, directory: Path) -> TimeIndex:
    index = TimeIndex(cache, str(directory / "100.timeindex"), 100)
    for timestamp, offset in [(1000, 110), (1500, 120), (1500, 130), (1400, 131), (2000, 140)]:
        index.maybe_append(timestamp, offset)
    return index


def test_an_offset_entry_is_relative_offset_and_position(cache: FileCache, directory: Path) -> None:
    index = offset_index(cache, directory)
    index.entries.write()
    expected = "0000000a 00001388  00000014 00002710  00000023 00003a98"
    assert (directory / "100.index").read_bytes() == bytes.fromhex(expected)


def test_an_offset_is_looked_for_from_the_batch_that_ends_before_it(
    cache: FileCache, directory: Path
) -> None:
    index = offset_index(cache, directory)
    assert index.lookup(109) is None
    assert index.lookup(110) == (110, 5000)
    assert index.lookup(134) == (120, 10_000)
    assert index.lookup(10_000) == (135, 15_000)


def test_a_position_is_looked_for_from_the_batch_that_begins_before_it(
    cache: FileCache, directory: Path
) -> None:
    index = offset_index(cache, directory)
    assert index.lookup_position(4999) is None
    assert index.lookup_position(10_000) == (120, 10_000)
    assert index.lookup_position(10**9) == (135, 15_000)


def test_cutting_drops_batches_that_end_at_the_offset_or_later(
    cache: FileCache, directory: Path
) -> None:
    index = offset_index(cache, directory)
    index.truncate_to(120)
    assert index.lookup(10_000) == (110, 5000)


def test_a_time_entry_is_timestamp_and_relative_offset(cache: FileCache, directory: Path) -> None:
    index = time_index(cache, directory)
    index.entries.write()
    expected = "00000000000003e8 0000000a  00000000000005dc 00000014  00000000000007d0 00000028"
    assert (directory / "100.timeindex").read_bytes() == bytes.fromhex(expected)


def test_only_a_greater_timestamp_makes_an_entry_even_after_opening_again(
    cache: FileCache, directory: Path
) -> None:
    time_index(cache, directory).entries.write()
    again = TimeIndex(cache, str(directory / "100.timeindex"), 100)
    again.maybe_append(2000, 150)
    assert again.last() == MaxTimestamp(2000, 140)
    again.maybe_append(2001, 150)
    assert again.last() == MaxTimestamp(2001, 150)


def test_an_empty_time_index_knows_no_time(cache: FileCache, directory: Path) -> None:
    index = TimeIndex(cache, str(directory / "100.timeindex"), 100)
    assert index.last() == MaxTimestamp(-1, 100)
    assert index.lookup(0).offset == 100


def test_a_time_is_looked_for_behind_all_that_is_earlier(cache: FileCache, directory: Path) -> None:
    index = time_index(cache, directory)
    assert index.lookup(1000).offset == 100
    assert index.lookup(1001).offset == 110
    assert index.lookup(1500).offset == 110
    assert index.lookup(1501).offset == 120
    assert index.lookup(9999).offset == 140


def test_cutting_a_time_index_goes_by_offset(cache: FileCache, directory: Path) -> None:
    index = time_index(cache, directory)
    index.truncate_to(120)
    assert index.last() == MaxTimestamp(1000, 110)
    index.maybe_append(1200, 115)
    assert index.last() == MaxTimestamp(1200, 115)
