"""What a rebalance cost is read off the times at which members have read records."""

import pytest

from perf.rebalance import is_shared, outcome
from perf.rebalance_load import Read


def every(start: float, end: float, partition: int, member: str) -> list[Read]:
    """Return reads ten times a second."""
    count = round((end - start) * 10)
    return [Read(start + number / 10, partition, member) for number in range(count + 1)]


def test_a_partition_that_moves_is_read_again_by_whoever_has_it_after() -> None:
    reads = [*every(0, 11, 0, "a"), *every(0, 10.5, 1, "a"), *every(12, 15, 1, "b")]
    found = outcome([*reads, *every(11.1, 15, 0, "a")], 10.0)
    assert found.until_whole == pytest.approx(2.0)
    assert found.standstill == pytest.approx(0.1)


def test_a_partition_that_stays_may_stand_still() -> None:
    found = outcome([*every(0, 10.2, 0, "a"), *every(14, 20, 0, "a")], 10.0)
    assert found.standstill == pytest.approx(3.8)
    assert found.until_whole == pytest.approx(4.0)


def test_what_a_member_had_in_between_does_not_count() -> None:
    reads = [*every(0, 10, 0, "a"), *every(11, 12, 0, "b"), *every(13, 20, 0, "c")]
    assert outcome(reads, 10.0).until_whole == pytest.approx(3.0)


def test_a_group_is_settled_when_each_member_reads_partitions_of_its_own() -> None:
    reads = [*every(0, 1, 0, "a"), *every(0, 1, 1, "b")]
    assert is_shared(reads, partitions=2, members=2)
    assert not is_shared(reads, partitions=3, members=2)
    assert not is_shared(reads, partitions=2, members=3)
    assert not is_shared([*reads, *every(0, 1, 1, "a")], partitions=2, members=2)
