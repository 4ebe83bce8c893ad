"""Both parts of a partition's fold, and its snapshots."""

import pytest

from qbus.broker.delay import DelayFold
from qbus.broker.partition_fold import PartitionFold
from qbus.broker.queues import QueueFold
from qbus.records.control import (
    Change,
    ChangeKind,
    ControlRecord,
    ControlType,
    Entries,
    Shared,
    encode_entries,
    encode_int64,
    encode_shared,
)

STARTED = encode_shared(Shared("g", [Change(ChangeKind.STARTED, 5, 5)]))


def both() -> PartitionFold:
    fold = PartitionFold()
    fold.delays.schedule.add(2_000, 3, 0)
    fold.control(ControlRecord(7, ControlType.SHARED, STARTED))
    return fold


def test_each_part_gets_its_control_records() -> None:
    fold = both()
    fold.control(ControlRecord(8, ControlType.BOUND, encode_int64(2)))
    fold.control(ControlRecord(9, ControlType.CANCELLED, encode_entries(Entries((2_000,), (3,)))))
    assert (fold.delays.pending, fold.delays.cancelled, fold.delays.bound) == (0, 1, 2)
    assert fold.queues.groups["g"].start == 5


def test_it_says_what_retention_needs_of_both() -> None:
    fold = PartitionFold()
    assert (fold.needed_from, fold.done_before) == (None, None)
    fold = both()
    assert (fold.needed_from, fold.done_before) == (0, 5)
    assert fold.told_from == 7


def test_parts_are_found_by_their_class() -> None:
    fold = both()
    assert fold.part(DelayFold) is fold.delays
    assert fold.part(QueueFold) is fold.queues
    assert fold.part(PartitionFold) is fold
    assert fold.part(dict) is None


def test_a_snapshot_has_both() -> None:
    restored = PartitionFold()
    restored.restore(b"".join(both().encode()))
    assert (restored.delays.pending, restored.queues.groups["g"].start) == (1, 5)


def test_snapshots_from_before_there_were_queues_are_read() -> None:
    delays = DelayFold()
    delays.schedule.add(2_000, 3, 0)
    restored = both()
    restored.restore(b"".join(delays.encode()))
    assert (restored.delays.pending, restored.queues.groups) == (1, {})
    without_queues = PartitionFold()
    without_queues.delays = delays
    assert b"".join(without_queues.encode()) == b"".join(delays.encode())


@pytest.mark.parametrize("size", [0, 3, 20, 60])
def test_a_damaged_snapshot_changes_nothing(size: int) -> None:
    content = b"".join(both().encode())
    fold = both()
    with pytest.raises(ValueError, match="snapshot"):
        fold.restore(content[:size])
    assert (fold.delays.pending, fold.queues.groups["g"].start) == (1, 5)
