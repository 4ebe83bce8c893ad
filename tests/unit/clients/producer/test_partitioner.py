"""Partitions: Java's for keys, one at a time without."""

from uuid import UUID

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from qbus.clients.producer.partitioner import Router, StickyPartitioner, partition_for_key
from qbus.clients.types import PartitionDescription, TopicDescription
from qbus.records import murmur2

# Kafka's own vectors (its UtilsTest), as signed 32-bit integers.
JAVA = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


def topic(*leaders: int) -> TopicDescription:
    partitions = (
        PartitionDescription(index, leader, 0, (0,), (0,), ())
        for index, leader in enumerate(leaders)
    )
    return TopicDescription("t", UUID(int=0), False, tuple(partitions))


@pytest.mark.parametrize(("key", "signed"), JAVA)
def test_hashes_are_those_of_java(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=70))
def test_hashes_are_those_of_aiokafka(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=20), st.integers(1, 500))
def test_any_buffer_goes_to_one_partition(key: bytes, partitions: int) -> None:
    partition = partition_for_key(key, partitions)
    assert 0 <= partition < partitions
    assert partition_for_key(memoryview(key), partitions) == partition
    assert partition_for_key(bytearray(key), partitions) == partition


def test_negative_hashes_lose_their_sign_as_in_java() -> None:
    assert partition_for_key(b"21", 1000) == (-973932308 & 0x7FFFFFFF) % 1000


def test_sticky_stays_until_it_moves_on() -> None:
    sticky = StickyPartitioner()
    now = sticky.current(topic(1, 1, 1))
    assert [sticky.current(topic(1, 1, 1)) for _ in range(20)] == [now] * 20
    assert sticky.move_on(topic(1, 1, 1)) != now


def test_sticky_uses_every_partition() -> None:
    sticky = StickyPartitioner()
    assert {sticky.move_on(topic(1, 1, 1, 1)) for _ in range(200)} == {0, 1, 2, 3}


def test_sticky_leaves_and_avoids_partitions_without_a_leader() -> None:
    sticky = StickyPartitioner()
    assert {sticky.move_on(topic(-1, 5, -1)) for _ in range(50)} == {1}
    assert sticky.current(topic(5, -1, -1)) == 0


def test_sticky_chooses_any_when_none_has_a_leader() -> None:
    assert StickyPartitioner().current(topic(-1, -1)) in {0, 1}
    assert StickyPartitioner().move_on(topic(7)) == 0


class Number:
    """An integer that is none of Python's, such as NumPy's."""

    def __index__(self) -> int:
        return 1


def test_a_partition_may_be_any_integer() -> None:
    chosen: int = Number()  # type: ignore[assignment]
    for router, given_one in ((Router(None), chosen), (Router(lambda *_: chosen), None)):
        found = router.fixed(topic(7, 7), b"k", b"v", given_one, None)
        assert (found, type(found)) == (1, int)


def test_a_broker_may_be_any_integer() -> None:
    number: int = Number()  # type: ignore[assignment]
    assert Router(None).fixed(topic(7, 1), None, b"v", None, number) == 1
    assert Router(None).fixed(topic(7, 1), None, b"v", number, number) == 1
