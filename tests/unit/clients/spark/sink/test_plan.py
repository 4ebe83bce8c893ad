"""What is left to publish, where to look for the rest, and what is read at once."""

import pytest

from qbus.clients.spark.sink.history import StagingLost
from qbus.clients.spark.sink.manifest import (
    Manifest,
    Numbered,
    ProducerIdentity,
    StagedBatch,
    in_order,
)
from qbus.clients.spark.sink.plan import Bounds, as_published, remaining, scan_range, streams
from qbus.clients.types import TopicPartition
from qbus.records import check_crc, encode_records, iter_records, read_header

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def manifest(*staged: StagedBatch, end: int = 100) -> Manifest:
    ends = {each.target: end for each in staged}
    return Manifest(
        "q", 0, "x", -1, ProducerIdentity(7, 2), in_order(staged), {A: 50}, ends, {"a": "id"}
    )


STAGED = manifest(*(StagedBatch(A, 1, at, 10, 0) for at in (0, 10, 20)), StagedBatch(B, 2, 0, 5, 0))


def offsets(left: list[Numbered]) -> list[tuple[str, int]]:
    return [(each.staged.target.topic, each.staged.offset) for each in left]


@pytest.mark.parametrize(
    ("found", "left"),
    [
        ({}, [("a", 0), ("a", 10), ("a", 20), ("b", 0)]),
        ({A: {59}}, [("a", 10), ("a", 20), ("b", 0)]),
        ({A: {59, 69, 79}, B: {4}}, []),
        ({A: {52}}, [("a", 0), ("a", 10), ("a", 20), ("b", 0)]),  # a part of it
        ({A: {69}}, [("a", 20), ("b", 0)]),  # the first has been compacted away since
        ({A: {49, 89}}, [("a", 0), ("a", 10), ("a", 20), ("b", 0)]),  # of other batches
    ],
)
def test_batches_that_remain_to_be_published(
    found: dict[TopicPartition, set[int]], left: list[tuple[str, int]]
) -> None:
    assert offsets(remaining(STAGED, found)) == left


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (Bounds("id", 0, 150), (100, 150)),
        (Bounds("id", 120, 150), (120, 150)),
        (Bounds("id", 0, 80), (0, 80)),
        (Bounds("new", 0, 150), (0, 150)),
    ],
    ids=["grown", "retention overtook", "cut", "created anew"],
)
def test_the_range_of_a_scan(now: Bounds, expected: tuple[int, int]) -> None:
    assert scan_range(STAGED, A, now) == expected


def test_lanes_are_read_at_once() -> None:
    first, second = streams(STAGED.numbered())
    ((partition, (run,)),) = first
    assert (partition, run.start, run.end, sorted(run.batches)) == (1, 0, 30, [0, 10, 20])
    assert second[0][0] == 2


def test_a_target_in_two_staging_partitions_is_read_in_order() -> None:
    both = manifest(StagedBatch(A, 1, 0, 10, 0), StagedBatch(A, 2, 0, 10, 0))
    assert [[partition for partition, _ in each] for each in streams(both.numbered())] == [[1, 2]]
    assert [each.staged.partition for each in both.numbered()] == [1, 2]


def test_distant_batches_are_read_separately() -> None:
    far = manifest(StagedBatch(A, 1, 0, 10, 0), StagedBatch(A, 1, 1_000_000, 10, 0))
    (((_, runs),),) = streams(far.numbered())
    assert [(run.start, run.end) for run in runs] == [(0, 10), (1_000_000, 1_000_010)]


def test_a_batch_gets_its_sequence_and_its_times() -> None:
    stored = encode_records([b"x", b"y"], timestamps=[5003, 5009], base_timestamp=5005)
    batch = as_published(
        ProducerIdentity(7, 2),
        Numbered(StagedBatch(A, 1, 0, 2, 5000), 31),
        read_header(stored),
        stored,
    )
    header = read_header(batch)
    check_crc(batch, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 31)
    assert [record.timestamp for record in iter_records(batch)] == [3, 9]
    assert header.max_timestamp == 9


def test_other_records_than_were_staged_are_not_published() -> None:
    stored = encode_records([b"x"], base_timestamp=0)
    with pytest.raises(StagingLost, match="partition 1 does not hold what was staged"):
        as_published(
            ProducerIdentity(7, 2),
            Numbered(StagedBatch(A, 1, 0, 2, 0), 0),
            read_header(stored),
            stored,
        )
