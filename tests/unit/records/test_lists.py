"""Keys to partitions as Kafka's Java client maps them, and the sizes of lists."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.clients.producer.lists import RECORD_OVERHEAD, item_size
from qbus.records import pure

ITEMS = st.one_of(
    st.none(), st.binary(max_size=30), st.binary(max_size=30).map(bytearray), st.just(b"x" * 200)
)
HEADERS = st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=5), ITEMS), max_size=3))
ROWS = st.lists(st.tuples(ITEMS, ITEMS, HEADERS), max_size=20)


@pytest.mark.parametrize(
    "items",
    [[], [b"", None, bytearray(b"a"), memoryview(b"b")], (b"a", None), [b"a"] * 3],
    ids=["none", "each kind", "tuple", "bytes"],
)
def test_these_items_can_be_keys_and_values(twin: ModuleType, items: Any) -> None:
    assert twin.are_bytes(items)


class Odd(bytes):
    """A subclass of bytes: its length may be anything."""


@pytest.mark.parametrize("odd", ["text", 1, [b"a"], Odd(b"a"), object()])
def test_other_items_cannot_be_keys_and_values(twin: ModuleType, odd: object) -> None:
    assert not twin.are_bytes([b"a", odd])
    assert not twin.are_bytes((odd,))


@pytest.mark.parametrize("room", [-5, 0, 11, 12])
def test_a_row_without_room_does_not_fit(twin: ModuleType, room: int) -> None:
    fits = int(room >= 12)
    assert twin.fit([b"", b""], None, None, 0, room, 12) == (fits, 12 * fits)


def test_rows_fit_up_to_the_last_byte(twin: ModuleType) -> None:
    values = [b"abc", None, b"de", b"f"]
    assert twin.fit(values, None, None, 0, 3 * 10 + 5, 10) == (3, 35)
    assert twin.fit(values, None, None, 0, 3 * 10 + 4, 10) == (2, 23)
    assert twin.fit(values, None, None, 2, 1000, 10) == (4, 23)
    assert twin.fit(values, None, None, 4, 1000, 10) == (4, 0)


def test_keys_and_headers_take_room_too(twin: ModuleType) -> None:
    keys, headers = [b"key", None], [None, [("name", b"v"), ("n", None)]]
    assert twin.fit([b"v", b"v"], keys, headers, 0, 14, 10) == (1, 14)
    assert twin.fit([b"v", b"v"], keys, headers, 1, 1000, 10) == (2, 11 + 15 + 11)


@given(ROWS, st.integers(0, 20), st.integers(0, 600), st.booleans(), st.booleans())
def test_twins_agree_with_each_record_s_size(
    rows: list[Any], start: int, room: int, with_keys: bool, with_headers: bool
) -> None:
    codec = pytest.importorskip("qbus.records._codec")
    values, keys, headers = ([row[n] for row in rows] for n in range(3))
    given_keys, given_headers = keys if with_keys else None, headers if with_headers else None
    start = min(start, len(rows))
    found = [
        twin.fit(values, given_keys, given_headers, start, room, RECORD_OVERHEAD)
        for twin in (pure, codec)
    ]
    assert found[0] == found[1]
    stop, size = found[0]
    sizes = [
        item_size(key if with_keys else None, value, pairs if with_headers else None)
        for value, key, pairs in zip(values, keys, headers, strict=True)
    ]
    assert size == sum(sizes[start:stop]) <= room
    assert stop == len(rows) or size + sizes[stop] > room


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
def test_other_types_are_no_keys(twin: ModuleType, key: Any) -> None:
    with pytest.raises(TypeError, match="key 0 is not bytes-like"):
        twin.murmur2(key)


@given(st.binary(max_size=100))
def test_the_twins_agree(twins: tuple[ModuleType, ModuleType], key: bytes) -> None:
    python, compiled = twins
    assert compiled.murmur2(key) == python.murmur2(key)
