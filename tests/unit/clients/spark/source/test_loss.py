"""What is lost is named, and where it goes on without that."""

import pytest

pytest.importorskip("pyspark")

from qbus.clients.spark.source.loss import Onward, PartitionLog, fixed_range, go_on, ranges, up_to
from qbus.clients.spark.source.offsets import QueryOffsets
from qbus.clients.spark.source.planning import OffsetRange
from qbus.clients.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def since(*positions: int, topic_id: str = "id") -> QueryOffsets:
    """A query that has come so far in the partitions of one topic."""
    marks = {TopicPartition("a", index): at for index, at in enumerate(positions)}
    return QueryOffsets("q", {"a": topic_id}, marks)


def test_a_query_continues_where_it_was() -> None:
    logs = {A0: PartitionLog("id", 0, 100), A1: PartitionLog("id", 50, 50)}
    assert go_on(since(7, 50), logs) == Onward({A0: 7, A1: 50}, [])


def test_a_new_partition_is_read_from_its_start() -> None:
    assert go_on(since(7), {A0: PartitionLog("id", 0, 9), A1: PartitionLog("id", 0, 3)}) == Onward(
        {A0: 7, A1: 0}, []
    )


def test_a_new_topic_is_read_from_its_start() -> None:
    other = TopicPartition("b", 0)
    logs = {A0: PartitionLog("id", 0, 9), other: PartitionLog("another", 0, 5)}
    assert go_on(since(7), logs) == Onward({A0: 7, other: 0}, [])


@pytest.mark.parametrize(
    ("positions", "log", "goes_on_at", "message"),
    [
        (
            (7,),
            PartitionLog("id", 10, 100),
            10,
            "a-0 begins at offset 10 now: records from offset 7",
        ),
        ((7,), PartitionLog("id", 0, 5), 5, "a-0 ends at offset 5, before 7"),
        ((7,), PartitionLog("other", 0, 100), 0, "a was deleted and created again, after offset 7"),
        ((), PartitionLog("id", 3, 100), 3, "a-0 is new, and records before offset 3"),
    ],
)
def test_losses_are_named(
    positions: tuple[int, ...], log: PartitionLog, goes_on_at: int, message: str
) -> None:
    found = go_on(since(*positions), {A0: log})
    assert found.positions == {A0: goes_on_at}
    (loss,) = found.losses
    assert message in loss


def test_a_partition_of_a_topic_that_was_created_again_is_not_just_new() -> None:
    found = go_on(since(7), {A0: PartitionLog("other", 0, 9), A1: PartitionLog("other", 0, 9)})
    assert found.positions == {A0: 0, A1: 0}
    assert len(found.losses) == 2


def test_a_partition_that_is_gone_is_lost() -> None:
    found = go_on(since(7, 8), {A0: PartitionLog("id", 0, 9)})
    assert found.positions == {A0: 7}
    (loss,) = found.losses
    assert "a-1 no longer exists" in loss
    assert "offset 8" in loss


def test_a_batch_is_read_as_it_was_planned() -> None:
    logs = {A0: PartitionLog("id", 0, 100), A1: PartitionLog("id", 0, 100)}
    found = ranges(go_on(since(5, 9), logs), since(8, 9), logs)
    assert found == ([OffsetRange("a", 0, 5, 8, "id")], [])


@pytest.mark.parametrize(
    ("log", "kept", "message"),
    [
        (PartitionLog("id", 0, 6), [(5, 6)], "a-0 ends at offset 6, before 8"),
        (PartitionLog("id", 7, 20), [(7, 8)], "a-0 begins at offset 7 now"),
        (PartitionLog("other", 0, 20), [], "deleted and created again"),
        (None, [], "no longer exists"),
    ],
)
def test_losses_since_planning_are_named(
    log: PartitionLog | None, kept: list[tuple[int, int]], message: str
) -> None:
    logs = {} if log is None else {A0: log}
    found, losses = ranges(go_on(since(5), logs), since(8), logs)
    assert [(one.start, one.end) for one in found] == kept
    assert any(message in loss for loss in losses)


@pytest.mark.parametrize(
    ("start", "stop", "kept", "losses"),
    [(5, 8, (5, 8), 0), (0, 8, (3, 8), 1), (5, 30, (5, 20), 1), (25, 30, (25, 25), 1)]
    + [(9, 5, (9, 9), 0)],
)
def test_chosen_offsets_that_are_not_there_are_named(
    start: int, stop: int, kept: tuple[int, int], losses: int
) -> None:
    found, lost = fixed_range(A0, start, stop, PartitionLog("id", 3, 20))
    assert (found.start, found.end) == kept
    assert len(lost) == losses


def test_records_after_the_target_are_left_out() -> None:
    new, other = TopicPartition("a", 2), TopicPartition("b", 0)
    target = {A0: PartitionLog("id", 0, 10), other: PartitionLog("old", 0, 10)}
    logs = {
        A0: PartitionLog("id", 0, 15),
        A1: PartitionLog("id", 0, 9),
        new: PartitionLog("id", 0, 5),
        other: PartitionLog("n", 0, 5),
    }
    query = since(7, 8)
    assert up_to(target, query, go_on(query, logs), logs) == {
        A0: PartitionLog("id", 0, 10),
        A1: PartitionLog("id", 0, 8),
    }
