"""Where copying goes on, for every relation of two logs."""

import pytest

from qbus.clients.mirror.log_comparison import LogBounds, StartOffset, diverged, start_offset
from qbus.clients.mirror.status import Trouble
from qbus.records import BatchHeader, build_batch, read_header


@pytest.mark.parametrize(
    ("ends", "position", "follows", "trouble"),
    [
        (LogBounds(0, 0, 0, 0), 0, 0, None),  # both empty
        (LogBounds(0, 50, 0, 0), 0, 0, None),  # a copy begins
        (LogBounds(20, 50, 0, 0), 20, 0, None),  # of a log that does not begin at 0
        (LogBounds(50, 50, 0, 0), 50, 0, None),  # or has nothing left
        (LogBounds(0, 50, 0, 30), 30, 30, None),  # it goes on
        (LogBounds(0, 50, 20, 30), 30, 30, None),  # the target has a retention of its own
        (LogBounds(0, 50, 30, 30), 30, 30, None),  # which took everything
        (LogBounds(30, 50, 0, 30), 30, 30, None),  # the source has just what is missing
        (LogBounds(0, 50, 0, 50), 50, 50, None),  # all is there
        (LogBounds(50, 50, 0, 50), 50, 50, None),
        (LogBounds(31, 50, 0, 30), 31, 30, Trouble.OVERTAKEN),  # a record is missing
        (LogBounds(50, 50, 0, 30), 50, 30, Trouble.OVERTAKEN),
        (LogBounds(31, 50, 30, 30), 31, 30, Trouble.OVERTAKEN),
        (LogBounds(0, 49, 0, 50), 50, 50, Trouble.SOURCE_LOST_DATA),
        (LogBounds(0, 0, 0, 50), 50, 50, Trouble.SOURCE_LOST_DATA),
        (LogBounds(0, 0, 50, 50), 50, 50, Trouble.SOURCE_LOST_DATA),
    ],
)
def test_where_to_go_on(
    ends: LogBounds, position: int, follows: int, trouble: Trouble | None
) -> None:
    found = start_offset(ends)
    assert (found.position, found.follows, found.trouble) == (position, follows, trouble)
    assert found.is_stopped == (trouble is Trouble.SOURCE_LOST_DATA)
    assert (found.reason is None) == (trouble is None)


def test_nothing_that_the_target_has_is_ever_written_again() -> None:
    for start in range(4):
        for end in range(start, 6):
            for target_start in range(4):
                for target_end in range(target_start, 6):
                    found = start_offset(LogBounds(start, end, target_start, target_end))
                    if not found.is_stopped:
                        assert found.position >= target_end
                        assert found.follows <= target_end
                        assert start <= found.position <= max(end, target_end)


def test_a_gap_says_which_offsets_are_missing() -> None:
    found = start_offset(LogBounds(31, 50, 0, 30))
    assert isinstance(found, StartOffset)
    assert found.reason is not None
    assert "30 to 30" in found.reason


def header(base: int, value: bytes = b"v", count: int = 5) -> BatchHeader:
    batch = build_batch([(None, value, (), 1_700_000_000_000)] * count)
    return read_header(batch)._replace(base_offset=base)


@pytest.mark.parametrize(
    ("source", "target", "has_parted"),
    [
        (header(10), header(10), False),
        (header(10)._replace(partition_leader_epoch=9), header(10), False),
        (header(10, b"w"), header(10), True),
        (header(8, count=7), header(10), True),
        (header(12, count=3), header(10), True),
        (header(10, count=6), header(10), True),
        (header(15), header(10), False),  # compaction took it
        (header(10, b"w")._replace(records_count=4), header(10), False),  # or some records of it
        (header(10, b"w")._replace(records_count=0), header(10), False),
        (header(10, b"w")._replace(attributes=0x40), header(10), False),  # or will take some
        (header(10, b"w")._replace(records_count=4, producer_id=7), header(10), True),
        (header(9, count=6)._replace(records_count=4), header(10), True),
        (None, header(10), False),
        (header(10), None, False),
        (None, None, False),
    ],
)
def test_a_log_that_was_truncated_and_written_to_is_recognized(
    source: BatchHeader | None, target: BatchHeader | None, has_parted: bool
) -> None:
    assert (diverged(source, target) is not None) == has_parted
