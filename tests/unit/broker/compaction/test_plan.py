"""What there is to compact, and which segments become one."""

from dataclasses import dataclass

import pytest

from qbus.broker.compaction.plan import Dirt, find_dirt, grouped
from qbus.broker.log import LogConfig
from qbus.broker.log.indexes import MaxTimestamp

NOW = 1_000_000
CONFIG = LogConfig(compacts=True, segment_bytes=100)


@dataclass
class Piece:
    """A segment, as far as a plan asks."""

    base_offset: int
    end_offset: int
    size: int
    timestamp: int = NOW - 100
    created_ms: int = NOW - 50

    @property
    def max_timestamp(self) -> MaxTimestamp:
        return MaxTimestamp(self.timestamp, self.base_offset)

    @property
    def first_timestamp(self) -> int:
        return self.timestamp


THREE = [Piece(0, 10, 50), Piece(10, 20, 30), Piece(20, 30, 20)]


def dirt(
    segments: list[Piece] = THREE, *, cleaned: int = 0, limit: int = 30, config: LogConfig = CONFIG
) -> Dirt:
    return find_dirt(segments, config, cleaned_before=cleaned, limit=limit, now_ms=NOW)


def test_nothing_is_dirty_without_segments() -> None:
    found = dirt([])
    assert (found.ratio, found.is_due(0)) == (0, False)


def test_all_is_dirty_at_first() -> None:
    assert dirt() == Dirt(0, 30, 0, 100, is_overdue=False)
    assert dirt().ratio == 1


def test_what_was_compacted_is_clean() -> None:
    found = dirt(cleaned=10)
    assert (found.first_offset, found.end_offset, found.clean_bytes) == (10, 30, 50)
    assert found.ratio == 0.5


def test_a_segment_that_was_compacted_in_part_is_dirty() -> None:
    assert dirt(cleaned=15) == Dirt(15, 30, 50, 50, is_overdue=False)


def test_a_log_that_starts_later_is_dirty_from_there() -> None:
    assert dirt([Piece(10, 20, 30)], cleaned=3).first_offset == 10


@pytest.mark.parametrize(("limit", "end"), [(30, 30), (29, 20), (20, 20), (9, 0), (0, 0)])
def test_only_whole_segments_below_the_limit_count(limit: int, end: int) -> None:
    assert dirt(limit=limit).end_offset == end


def test_all_behind_a_segment_that_is_too_young_waits() -> None:
    config = LogConfig(compacts=True, min_compaction_lag_ms=500)
    segments = [Piece(0, 10, 50, NOW - 501), Piece(10, 20, 30, NOW - 499), Piece(20, 30, 9, 0)]
    assert dirt(segments, config=config).end_offset == 10


def test_a_segment_without_timestamps_is_as_old_as_its_file() -> None:
    config = LogConfig(compacts=True, min_compaction_lag_ms=500)
    assert dirt([Piece(0, 10, 50, -1, NOW - 501)], config=config).end_offset == 10
    assert dirt([Piece(0, 10, 50, -1, NOW - 499)], config=config).end_offset == 0


def test_a_log_is_due_by_its_share_of_dirt() -> None:
    found = dirt(cleaned=10)
    assert (found.is_due(0.4), found.is_due(0.5), found.is_due(0.6)) == (True, False, False)
    assert not dirt(cleaned=30).is_due(0)


@pytest.mark.parametrize(("timestamp", "overdue"), [(NOW - 1001, True), (NOW - 999, False)])
def test_or_by_the_age_of_its_records(timestamp: int, overdue: bool) -> None:
    config = LogConfig(compacts=True, max_compaction_lag_ms=1000)
    found = dirt([Piece(0, 10, 99, 0), Piece(10, 20, 1, timestamp)], cleaned=10, config=config)
    assert (found.is_overdue, found.is_due(0.9)) == (overdue, overdue)


def bases(groups: list[list[Piece]]) -> list[list[int]]:
    return [[one.base_offset for one in group] for group in groups]


def test_segments_become_one_as_long_as_they_fit() -> None:
    assert bases(grouped(THREE, 30, CONFIG)) == [[0, 10, 20]]
    assert bases(grouped(THREE, 30, LogConfig(segment_bytes=80))) == [[0, 10], [20]]
    assert bases(grouped(THREE, 30, LogConfig(segment_bytes=50))) == [[0], [10, 20]]
    assert bases(grouped(THREE, 30, LogConfig(segment_bytes=1))) == [[0], [10], [20]]


@pytest.mark.parametrize(("end", "expected"), [(20, [[0, 10]]), (21, [[0, 10, 20]]), (0, [])])
def test_only_those_that_begin_before_the_end(end: int, expected: list[list[int]]) -> None:
    assert bases(grouped(THREE, end, CONFIG)) == expected


def test_offsets_of_one_fit_an_index() -> None:
    far = 2**31
    segments = [Piece(0, 10, 1), Piece(10, far, 1), Piece(far, far + 1, 1)]
    assert bases(grouped(segments, far + 1, CONFIG)) == [[0, 10], [far]]


def test_what_stands_for_a_gap_is_left_alone() -> None:
    segments = [Piece(0, 10, 1), Piece(10, 2**40, 0), Piece(2**40, 2**40 + 1, 1)]
    assert bases(grouped(segments, 2**41, CONFIG)) == [[0], [2**40]]
