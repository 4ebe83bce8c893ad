"""How much a micro-batch reads, and how it is split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from qbus.clients.spark.source.planning import OffsetRange, admit, split
from qbus.clients.types import TopicPartition

A0, A1, A2 = (TopicPartition("a", index) for index in range(3))


def test_a_batch_is_shared_out_by_backlog() -> None:
    begin = {A0: 0, A1: 100, A2: 7}
    end = {A0: 3000, A1: 1100, A2: 7}
    assert admit(begin, end, 400) == {A0: 300, A1: 200, A2: 7}


def test_a_small_backlog_is_read_completely() -> None:
    assert admit({A0: 0, A1: 0}, {A0: 5, A1: 5}, 10) == {A0: 5, A1: 5}


def test_small_backlogs_get_on_too() -> None:
    assert admit({A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}, 10) == {A0: 9, A1: 1}


def test_a_truncated_log_has_no_backlog() -> None:
    assert admit({A0: 10, A1: 0}, {A0: 5, A1: 100}, 10) == {A0: 5, A1: 10}


@given(
    st.dictionaries(
        st.integers(0, 20), st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
    ),
    st.integers(1, 1 << 40),
)
def test_a_batch_has_about_the_limit_and_never_passes_the_end(
    logs: dict[int, tuple[int, int]], limit: int
) -> None:
    begin = {TopicPartition("a", index): first for index, (first, _) in logs.items()}
    end = {TopicPartition("a", index): first + rows for index, (first, rows) in logs.items()}
    admitted = admit(begin, end, limit)
    assert all(begin[one] <= admitted[one] <= end[one] for one in end)
    assert all(admitted[one] > begin[one] for one in end if end[one] > begin[one])
    assert sum(admitted[one] - begin[one] for one in end) <= limit + len(end)


def whole(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("a", partition, start, end, "id")


def test_ranges_are_not_split_by_default() -> None:
    assert split([whole(5, 1005), whole(9, 9, 1)]) == [whole(5, 1005)]


def test_none_has_more_than_the_most() -> None:
    assert split([whole(0, 10)], max_records=4) == [whole(0, 3), whole(3, 6), whole(6, 10)]


def test_the_largest_are_cut_until_there_are_enough() -> None:
    pieces = split([whole(0, 10), whole(0, 90, 1)], min_partitions=4)
    assert pieces == [whole(0, 10), whole(0, 30, 1), whole(30, 60, 1), whole(60, 90, 1)]


def test_nothing_is_cut_below_one_record() -> None:
    assert split([whole(0, 2)], min_partitions=9) == [whole(0, 1), whole(1, 2)]
    assert split([], min_partitions=9) == []


@given(
    st.lists(st.integers(0, 1000), max_size=8),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 50),
)
def test_pieces_are_the_whole(
    sizes: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [whole(7, 7 + size, index) for index, size in enumerate(sizes)]
    pieces = split(ranges, min_partitions=min_partitions, max_records=max_records)
    assert [(one.partition, at) for one in pieces for at in range(one.start, one.end)] == [
        (one.partition, at) for one in ranges for at in range(one.start, one.end)
    ]
    assert all(len(piece) <= (max_records or 1000) for piece in pieces)
    assert len(pieces) >= min(min_partitions or 0, sum(sizes))
