"""Batches to lists of records, by both twins."""

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.records import (
    Compression,
    ConsumerRecord,
    CorruptBatch,
    TimestampType,
    decode_records,
    decode_some,
    encode_records,
    iter_records,
    read_header,
    set_log_append_time,
)

from .strategies import EMPTY, HOSTILE, NOW, batch_of, record, rows

pytestmark = pytest.mark.usefixtures("twin")


def decoded(batch: Any, from_offset: int = 0) -> list[ConsumerRecord]:
    return decode_records(batch, read_header(batch), "topic", 3, from_offset)


@given(st.lists(rows, min_size=1, max_size=30), st.sampled_from(Compression), st.integers(0, 30))
def test_what_was_encoded_is_decoded(items: list[Any], codec: Compression, start: int) -> None:
    keys, values, headers, times = map(list, zip(*items, strict=True))
    batch = encode_records(values, keys, headers, times, base_timestamp=NOW, compression=codec)
    assert decoded(batch, start) == [
        ("topic", 3, offset, NOW if time is None else time, key, value, head or (), 0)
        for offset, (key, value, head, time) in enumerate(items)
        if offset >= start
    ]


@given(st.lists(rows, min_size=1, max_size=30), st.integers(0, 30), st.integers(-1, 200))
def test_some_at_a_time_are_the_same(items: list[Any], start: int, size: int) -> None:
    keys, values, headers, times = map(list, zip(*items, strict=True))
    batch = encode_records(values, keys, headers, times, base_timestamp=NOW)
    some = list(decode_some(batch, read_header(batch), "topic", 3, start, size))
    assert all(some)
    assert [record for records in some for record in records] == decoded(batch, start)
    if size <= 0:
        assert all(len(records) == 1 for records in some)


def test_records_before_the_damage_are_decoded() -> None:
    batch = encode_records([b"a", b"b", b"c"], base_timestamp=NOW)
    batch[-1] = 2  # headers of which there are none
    some = decode_some(batch, read_header(batch), "topic", 3, 0, 1)
    assert [next(some)[0].value, next(some)[0].value] == [b"a", b"b"]
    with pytest.raises(CorruptBatch):
        next(some)
    with pytest.raises(CorruptBatch):
        decoded(batch)


def test_missing_records_at_the_end_are_an_error() -> None:
    batch = encode_records([b"a", b"b"], base_timestamp=NOW)
    header = read_header(batch)._replace(records_count=3)
    with pytest.raises(CorruptBatch, match="cut"):
        decode_records(batch, header, "topic", 3)
    with pytest.raises(CorruptBatch, match="cut"):
        list(decode_some(batch, header, "topic", 3, 0, 1))


def test_a_batch_without_records_yields_nothing() -> None:
    batch = batch_of(b"", 0, last_offset_delta=5)
    assert list(decode_some(batch, read_header(batch), "topic", 3, 0, 1)) == []


def test_records_are_whole_named_tuples() -> None:
    batch = encode_records([b"v"], [b"k"], [(("h", b"x"),)], base_timestamp=5)
    (read,) = decoded(memoryview(batch))
    twin = ConsumerRecord("topic", 3, 0, 5, b"k", b"v", (("h", b"x"),), TimestampType.CREATE_TIME)
    assert type(read) is ConsumerRecord
    assert (read, hash(read), repr(read)) == (twin, hash(twin), repr(twin))
    assert (read.timestamp_type, read._replace(key=None).key) == (TimestampType.CREATE_TIME, None)
    assert copy.copy(read) == pickle.loads(pickle.dumps(read)) == twin


def test_the_broker_s_time_is_that_of_every_record() -> None:
    batch = encode_records([b"a", b"b"], timestamps=[1, 2], base_timestamp=0)
    set_log_append_time(batch, 77)
    assert [(r.timestamp, r.timestamp_type) for r in decoded(batch)] == [(77, 1), (77, 1)]


def test_batches_after_compaction() -> None:
    assert decoded(batch_of(b"", 0, last_offset_delta=5)) == []
    payload = record(EMPTY) + record(b"\0\0\x0a\1\0\0")
    assert [r.offset for r in decoded(batch_of(payload, 2, last_offset_delta=5))] == [0, 5]


def test_integers_with_needless_bytes_are_read() -> None:
    payload = record(b"\0" + b"\x80\x00" * 2 + b"\x81\x00" + b"\x80\x80\x00" * 2)
    assert decoded(batch_of(payload))[0][2:6] == (0, NOW, None, b"")


def test_a_header_s_name_that_is_not_utf8_is_replaced() -> None:
    (read,) = decoded(batch_of(record(b"\0\0\0\1\0\2\2\xff\1")))
    assert read.headers == (("\ufffd", None),)


@pytest.mark.parametrize(
    ("batch", "message"), [it[1:] for it in HOSTILE], ids=[it[0] for it in HOSTILE]
)
def test_hostile_records(batch: bytes, message: str) -> None:
    with pytest.raises(CorruptBatch, match=message):
        decoded(batch)
    with pytest.raises(CorruptBatch, match=message):
        list(iter_records(batch))


RICH = bytes(
    encode_records(
        [b"value" * 30, None, b""],
        [b"key", None, b""],
        [(("trace", b"1"), ("empty", None)), None, ()],
        [NOW, NOW + 100, NOW - 70],
        base_timestamp=NOW,
    )
)


def test_every_truncation_is_detected() -> None:
    payload = RICH[61:]
    for cut in range(len(payload)):
        with pytest.raises(CorruptBatch):
            decoded(batch_of(payload[:cut], 3))
