"""Batches built and read back: what goes in comes out, and damage never passes."""

import contextlib
import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.records import (
    BatchHeader,
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
from qbus.records.header import write_header
from qbus.records.varint import encode_varint

NOW = 1_700_000_000_000
Item = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
data = st.none() | st.binary(max_size=200)
header_items = st.lists(st.tuples(st.text(max_size=20), data), max_size=3).map(tuple)
record_items: st.SearchStrategy[Item] = st.tuples(data, data, header_items, st.integers(-1, 2**62))


def batch_of(payload: bytes, count: int = 1, last_offset_delta: int | None = None) -> bytearray:
    """A batch with a good header and CRC around whatever bytes."""
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    header = BatchHeader(0, 49 + len(payload), -1, 2, 0, 0, delta, NOW, NOW, -1, -1, -1, count)
    batch = bytearray(61) + payload
    write_header(batch, header)
    return batch


def record(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


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


@pytest.mark.parametrize("count", [64, 65, 8192, 8193, 70_000])
def test_values_where_an_offset_delta_grows_a_byte(count: int) -> None:
    values = [b"%d" % number for number in range(count)]
    batch = build_values_batch(values, NOW, producer_id=1, producer_epoch=2, base_sequence=3)
    header = read_header(batch)
    check_crc(batch, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)
    assert [(r.offset, r.value) for r in iter_records(batch)] == list(enumerate(values))


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 8184, 8185, 8192, 1_048_577])
def test_values_where_a_length_grows_a_byte(size: int) -> None:
    batch = build_values_batch([bytes(size)] * 2, NOW)
    assert [r.value for r in iter_records(batch)] == [bytes(size)] * 2


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


def test_what_compaction_leaves_of_a_batch_is_empty() -> None:
    assert list(iter_records(batch_of(b"", count=0, last_offset_delta=5))) == []


def test_gaps_between_offsets_are_kept() -> None:
    payload = record(b"\0\0\0\1\0\0") + record(b"\0\0" + encode_varint(5) + b"\1\0\0")
    assert [r.offset for r in iter_records(batch_of(payload, 2, 5))] == [0, 5]


HOSTILE: Iterable[tuple[str, bytearray]] = [
    ("no records", batch_of(b"")),
    ("negative count", batch_of(b"", count=-1)),
    ("huge count", batch_of(record(b"\0\0\0\1\0\0"), count=2**31 - 1)),
    ("negative record length", batch_of(b"\x01")),
    ("long negative record length", batch_of(b"\x81\x01" + b"\0\0\0\1\0\0")),
    ("record length over the end", batch_of(b"\x10\0\0\0\1\0\0")),
    ("huge record length", batch_of(encode_varint(2**62) + b"\0\0\0\1\0\0")),
    ("endless record length", batch_of(b"\xff" * 100)),
    ("record shorter than its length", batch_of(record(b"\0\0\0\1\0\0\0"))),
    ("record longer than its length", batch_of(b"\x0a\0\0\0\1\0\0")),
    ("key over the end", batch_of(record(b"\0\0\0\x7ek"))),
    ("key length -2", batch_of(record(b"\0\0\0\3\0\0"))),
    ("value over the end", batch_of(record(b"\0\0\0\1\x7ev"))),
    ("long value over the end", batch_of(record(b"\0\0\0\1\xfe\x01v"))),
    ("value length -2", batch_of(record(b"\0\0\0\1\3\0"))),
    ("no headers count", batch_of(record(b"\0\0\0\1\0"))),
    ("negative headers count", batch_of(record(b"\0\0\0\1\0\1"))),
    ("huge headers count", batch_of(record(b"\0\0\0\1\0" + encode_varint(2**31)))),
    ("null header key", batch_of(record(b"\0\0\0\1\0\2\1\1"))),
    ("header over the end", batch_of(record(b"\0\0\0\1\0\2\x7eh\1"))),
    ("offset delta over the last", batch_of(record(b"\0\0\2\1\0\0"))),
    ("negative offset delta", batch_of(record(b"\0\0\1\1\0\0"))),
    ("offset delta twice", batch_of(record(b"\0\0\0\1\0\0") * 2, 2)),
    ("bytes after the last record", batch_of(record(b"\0\0\0\1\0\0") + b"\0")),
    ("a byte after the batch", batch_of(record(b"\0\0\0\1\0\0")) + b"\0"),
]


@pytest.mark.parametrize(("why", "batch"), HOSTILE, ids=[why for why, _ in HOSTILE])
def test_hostile_records(why: str, batch: bytearray) -> None:
    with pytest.raises(CorruptBatch):
        list(iter_records(batch))


def test_a_header_name_that_is_not_utf8_is_replaced_as_java_does() -> None:
    (read,) = iter_records(batch_of(record(b"\0\0\0\1\0\2\2\xff\1")))
    assert read.headers == (("\ufffd", None),)


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
