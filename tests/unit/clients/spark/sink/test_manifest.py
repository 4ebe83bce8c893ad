"""A manifest survives the way into records and back, in however many parts."""

from collections.abc import Sequence

import pytest

from qbus.clients.spark.sink.manifest import (
    Assembler,
    Manifest,
    ProducerIdentity,
    StagedBatch,
    UnreadableManifest,
    decode,
    encode,
    in_order,
    split,
)
from qbus.clients.types import ConsumerRecord, TopicPartition
from qbus.records import TimestampType

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("c", 0)
LAST = 2**31 - 1


def manifest(attempt: str = "one") -> Manifest:
    return Manifest(
        query="q",
        batch=3,
        attempt=attempt,
        previous=2,
        producer=ProducerIdentity(77, 1),
        staged=in_order(
            [StagedBatch(B, 1, 0, 5, 0), StagedBatch(A, 2, 9, 1, -3), StagedBatch(A, 2, 0, 4, 0)]
        ),
        sequences={A: LAST - 3, C: 12},
        ends={A: 100, B: 0},
        topic_ids={"a": "id-of-a"},
    )


def records(
    parts: Sequence[tuple[bytes, Sequence[tuple[str, bytes]]]], at: int
) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(
            "s", 0, at + number, 0, b"q", value, tuple(headers), TimestampType.CREATE_TIME
        )
        for number, (value, headers) in enumerate(parts)
    ]


def test_it_reads_as_it_was_written() -> None:
    assert decode(encode(manifest())) == manifest()


def test_sequences_follow_within_a_target_and_wrap() -> None:
    found = [(each.staged.target, each.sequence) for each in manifest().numbered()]
    assert found == [(A, LAST - 3), (A, 0), (B, 0)]
    assert manifest().sequences_after() == {A: 1, B: 5, C: 12}


@pytest.mark.parametrize("size", [1, 10, 10_000])
def test_parts_are_put_together(size: int) -> None:
    parts = split(manifest(), size)
    assert all(len(value) <= size for value, _ in parts)
    assembler = Assembler("q")
    found = [assembler.take(each) for each in records(parts, 40)]
    assert found == [*[None] * (len(parts) - 1), (manifest(), 40)]


def test_parts_of_two_drivers_may_alternate_and_repeat() -> None:
    one, two = (records(split(manifest(name), 100), 0) for name in ("one", "two"))
    assembler = Assembler("q")
    mixed = [each for pair in zip(one, two, strict=True) for each in (*pair, pair[0])][:-1]
    found = [done[0].attempt for each in mixed if (done := assembler.take(each))]
    assert found == ["one", "two"]


def test_other_queries_are_passed_over() -> None:
    (record,) = records(split(manifest()), 0)
    assert Assembler("another").take(record) is None


@pytest.mark.parametrize("document", [b"", b"{}", b"[1]", b"\xff", b'{"version": 1}', b"null"])
def test_invalid_manifests(document: bytes) -> None:
    with pytest.raises(UnreadableManifest, match="is not a manifest"):
        decode(document)


def test_a_later_version_is_named() -> None:
    with pytest.raises(UnreadableManifest, match="version 3: a later version of Qbus"):
        decode(encode(manifest()).replace(b'"version":1', b'"version":3'))


def test_a_record_with_the_key_of_a_manifest_that_is_none() -> None:
    (record,) = records([(b"x", [])], 5)
    with pytest.raises(UnreadableManifest, match="offset 5"):
        Assembler("q").take(record)
