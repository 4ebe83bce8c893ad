"""Batches built and read back: what goes in comes out, and damage never passes."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.records import (
    Compression,
    CorruptBatch,
    Record,
    TimestampType,
    build_batch,
    build_values_batch,
    check_crc,
    iter_batches,
    iter_records,
    read_header,
)

from .strategies import NOW, batch_of, data, header_items

Item = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
record_items: st.SearchStrategy[Item] = st.tuples(data, data, header_items, st.integers(-1, 2**62))


@given(
    st.lists(record_items, min_size=1, max_size=30),
    st.sampled_from(Compression),
    st.integers(0, 2**62),
)
def test_round_trip(items: list[Item], codec: Compression, base_offset: int) -> None:
    batch = build_batch(items, compression=codec, base_offset=base_offset)
    header = read_header(batch)
    check_crc(batch, header)
    assert header.size == len(batch)
    assert header.records_count == header.last_offset_delta + 1 == len(items)
    assert header.max_timestamp == max(item[3] for item in items)
    assert list(iter_records(batch)) == [
        Record(base_offset + delta, timestamp, key, value, headers, TimestampType.CREATE_TIME)
        for delta, (key, value, headers, timestamp) in enumerate(items)
    ]


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=200), st.sampled_from(Compression))
def test_values_alone_make_the_same_bytes(values: list[bytes], codec: Compression) -> None:
    assert build_values_batch(values, NOW, compression=codec) == build_batch(
        [(None, value, (), NOW) for value in values], compression=codec
    )


def test_buffers_of_any_kind_are_taken() -> None:
    batch = build_batch([(bytearray(b"k"), memoryview(b"v"), [("h", memoryview(b"x"))], NOW)])
    (read,) = iter_records(batch)
    assert (read.key, read.value, read.headers) == (b"k", b"v", (("h", b"x"),))
    assert build_values_batch([memoryview(b"v")], NOW) == build_values_batch([b"v"], NOW)


def test_a_batch_has_records() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])
    with pytest.raises(ValueError, match="at least one"):
        build_values_batch([], NOW)


def test_attributes_are_kept_beside_the_codec() -> None:
    header = read_header(
        build_batch([(b"", b"", (), 0)], attributes=0x30, compression=Compression.LZ4)
    )
    assert header.is_control
    assert header.is_transactional
    assert header.compression is Compression.LZ4


def test_batches_are_iterated_in_place() -> None:
    first, second = build_values_batch([b"a"], NOW), build_values_batch([b"b", b"c"], NOW)
    batches = list(iter_batches(first + second))
    assert [bytes(batch) for _, batch in batches] == [bytes(first), bytes(second)]
    assert [header.records_count for header, _ in batches] == [1, 2]
    assert list(iter_batches(b"")) == []


def test_a_cut_last_batch_is_an_error_unless_it_is_expected() -> None:
    whole = bytes(build_values_batch([b"a"], NOW))
    for cut in range(1, len(whole)):
        with pytest.raises(CorruptBatch):
            list(iter_batches(whole + whole[:cut]))
        assert len(list(iter_batches(whole + whole[:cut], partial_tail=True))) == 1


RICH = bytes(
    build_batch(
        [
            (b"key", b"value" * 30, (("trace", b"1"), ("empty", None)), NOW),
            (None, None, (), NOW + 100),
            (b"", b"", (), NOW - 70),
        ],
        base_offset=41,
    )
)


def test_every_truncation_is_detected() -> None:
    for cut in range(len(RICH)):
        with pytest.raises(CorruptBatch):
            check_crc(RICH[:cut], read_header(RICH[:cut]))
        with pytest.raises(CorruptBatch):
            list(iter_records(RICH[:cut]))
        shortened = RICH[:8] + struct.pack(">i", cut - 12) + RICH[12:cut]
        with pytest.raises(CorruptBatch):
            list(iter_records(shortened))


@pytest.mark.parametrize("at", range(len(RICH)))
def test_every_bit_flip_is_detected_or_outside_the_crc(at: int) -> None:
    for bit in range(8):
        damaged = bytearray(RICH)
        damaged[at] ^= 1 << bit
        detected = False
        try:
            check_crc(damaged, read_header(damaged))
        except CorruptBatch:
            detected = True
        assert detected or at < 8 or 12 <= at < 16  # base offset, leader epoch
        with contextlib.suppress(CorruptBatch):
            list(iter_records(damaged))  # who skips the CRC still meets no other exception


@given(st.binary(max_size=120), st.integers(0, 5))
def test_garbage_records_raise_nothing_else(payload: bytes, count: int) -> None:
    with contextlib.suppress(CorruptBatch):
        list(iter_records(batch_of(payload, count)))


@given(st.binary(max_size=200))
def test_garbage_batches_raise_nothing_else(garbage: bytes) -> None:
    with contextlib.suppress(CorruptBatch):
        for _, batch in iter_batches(garbage, partial_tail=True):
            list(iter_records(batch))
