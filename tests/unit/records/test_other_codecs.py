"""Our batches read by kafka-python and aiokafka, and theirs by us."""

import warnings
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.records import (
    Compression,
    build_batch,
    build_values_batch,
    check_crc,
    iter_records,
    read_header,
)
from qbus.records.encode import RecordItem

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own, at its import
    import kafka.record.default_records as kafka_records

NOW = 1_700_000_000_000
# Every codec with each, but snappy with kafka-python, which wants one more library for it.
PAIRS = [
    pytest.param(other, codec, id=f"{other.__name__.partition('.')[0]}-{codec.name.lower()}")
    for other in (kafka_records, aiokafka_records)
    for codec in Compression
    if (other, codec) != (kafka_records, Compression.SNAPPY)
]
items = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=100),
        st.none() | st.binary(max_size=100),
        st.lists(st.tuples(st.text(max_size=10), st.binary(max_size=20)), max_size=2).map(tuple),
        st.integers(NOW - 1000, NOW + 1000),
    ),
    min_size=1,
    max_size=20,
)


def built_by(module: Any, records: list[RecordItem], codec: Compression) -> bytes:
    builder = module.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=5,
        producer_epoch=1,
        base_sequence=77,
        batch_size=1 << 20,
    )
    for offset, (key, value, headers, timestamp) in enumerate(records):
        builder.append(offset, timestamp, key, value, list(headers))
    return bytes(builder.build())


@pytest.mark.parametrize(("other", "codec"), PAIRS)
@settings(max_examples=25)
@given(records=items)
def test_theirs_are_read_by_us(other: Any, codec: Compression, records: list[RecordItem]) -> None:
    batch = built_by(other, records, codec)
    header = read_header(batch)
    check_crc(batch, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 77)
    assert [(r.key, r.value, r.headers, r.timestamp) for r in iter_records(batch)] == records


@pytest.mark.parametrize(("other", "codec"), PAIRS)
@settings(max_examples=25)
@given(records=items)
def test_ours_are_read_by_them(other: Any, codec: Compression, records: list[RecordItem]) -> None:
    batch = bytes(build_batch(records, compression=codec, base_offset=3))
    theirs = other.DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    assert [(r.offset, r.key, r.value, tuple(r.headers), r.timestamp) for r in theirs] == [
        (3 + delta, *record) for delta, record in enumerate(records)
    ]


@pytest.mark.parametrize("records", [[(None, b"v" * 100, (), NOW)] * 300])
def test_the_bytes_are_the_same(records: list[RecordItem]) -> None:
    theirs = built_by(kafka_records, records, Compression.NONE)
    values = [value for _, value, _, _ in records if value is not None]
    ours = build_values_batch(values, NOW, producer_id=5, producer_epoch=1, base_sequence=77)
    assert bytes(ours[16:]) == theirs[16:]
