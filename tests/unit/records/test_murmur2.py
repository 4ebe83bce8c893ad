"""Keys to partitions, as Kafka's Java client maps them, by both twins."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

# Kafka's own (UtilsTest.testMurmur2), as signed 32-bit integers.
VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "signed"), VECTORS)
def test_kafka_s_vectors(twin: ModuleType, key: bytes, signed: int) -> None:
    assert twin.murmur2(key) == signed & 0xFFFFFFFF
    assert twin.murmur2(bytearray(key)) == twin.murmur2(memoryview(key)) == twin.murmur2(key)
    assert twin.partition_for_keys([key], 12) == [(signed & 0x7FFFFFFF) % 12]


def test_keys_that_are_null_have_no_partition(twin: ModuleType) -> None:
    assert twin.partition_for_keys([None, b"abc", None], 2**31 - 1) == [-1, 479470107, -1]
    assert twin.partition_for_keys([], 1) == []


@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_impossible_counts(twin: ModuleType, count: int) -> None:
    with pytest.raises(ValueError, match=f"impossible partitions count {count}"):
        twin.partition_for_keys([b""], count)


@pytest.mark.parametrize("key", ["text", 5, None])
def test_what_is_no_key(twin: ModuleType, key: Any) -> None:
    with pytest.raises(TypeError, match="key 0 is not bytes-like"):
        twin.murmur2(key)


@given(st.binary(max_size=100))
def test_the_twins_agree(twins: tuple[ModuleType, ModuleType], key: bytes) -> None:
    python, compiled = twins
    assert compiled.murmur2(key) == python.murmur2(key)
