"""The batch header: every field where Kafka has it, in-place changes, and known checksums."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.errors import ErrorCode
from qbus.records import (
    HEADER_SIZE,
    BatchHeader,
    Compression,
    CorruptBatch,
    TimestampType,
    build_batch,
    check_crc,
    crc32c,
    iter_records,
    read_header,
    set_base_offset,
    set_log_append_time,
)
from qbus.records import header as header_module
from qbus.records.header import portable_crc32c

# One record "k" -> "v" at offset 7, written down field by field.
GOLDEN = bytes.fromhex(
    "0000000000000007"  # base offset
    "0000003a"  # batch length: 58
    "00000003"  # leader epoch
    "02"  # magic
    "f11246de"  # CRC
    "0000"  # attributes
    "00000000"  # last offset delta
    "0000018bcfe56800"  # base timestamp: 1 700 000 000 000
    "0000018bcfe56800"  # max timestamp
    "0000000000000009"  # producer id
    "0002"  # producer epoch
    "0000000b"  # base sequence
    "00000001"  # records count
    "10000000026b027600"  # length 8, attributes, deltas 0 and 0, "k", "v", no headers
)
HEADER = BatchHeader(
    base_offset=7,
    batch_length=58,
    partition_leader_epoch=3,
    magic=2,
    crc=0xF11246DE,
    attributes=0,
    last_offset_delta=0,
    base_timestamp=1_700_000_000_000,
    max_timestamp=1_700_000_000_000,
    producer_id=9,
    producer_epoch=2,
    base_sequence=11,
    records_count=1,
)


def header(**fields: int) -> BatchHeader:
    return HEADER._replace(**fields)


def test_golden_bytes_are_read_and_built() -> None:
    assert read_header(GOLDEN) == HEADER
    check_crc(GOLDEN, HEADER)
    built = build_batch(
        [(b"k", b"v", (), 1_700_000_000_000)],
        base_offset=7,
        leader_epoch=3,
        producer_id=9,
        producer_epoch=2,
        base_sequence=11,
    )
    assert built == GOLDEN


def test_derived_properties() -> None:
    assert HEADER.size == len(GOLDEN) == 70
    assert header(last_offset_delta=4).last_offset == 11
    assert header(last_offset_delta=4).last_sequence == 15
    assert HEADER.has_producer_id
    assert not header(producer_id=-1).has_producer_id


def test_sequences_wrap_to_zero_and_may_be_absent() -> None:
    assert header(base_sequence=2**31 - 1, last_offset_delta=1).last_sequence == 0
    assert header(base_sequence=2**31 - 2, last_offset_delta=1).last_sequence == 2**31 - 1
    assert header(base_sequence=-1, last_offset_delta=5).last_sequence == -1


@pytest.mark.parametrize("codec", Compression)
def test_attributes(codec: Compression) -> None:
    plain = header(attributes=codec)
    assert plain.compression is codec
    assert plain.timestamp_type is TimestampType.CREATE_TIME
    assert not plain.is_log_append_time
    assert not plain.is_transactional
    assert not plain.is_control
    assert header(attributes=codec | 8).is_log_append_time
    assert header(attributes=codec | 8).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header(attributes=codec | 16).is_transactional
    assert header(attributes=codec | 32).is_control


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_corrupt(codec: int) -> None:
    with pytest.raises(CorruptBatch):
        _ = header(attributes=codec).compression


def test_a_header_is_read_at_any_position_without_its_records() -> None:
    assert read_header(b"xxx" + GOLDEN[:HEADER_SIZE], 3) == HEADER


@pytest.mark.parametrize("length", range(HEADER_SIZE))
def test_a_short_buffer_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatch) as caught:
        read_header(GOLDEN[:length])
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("pos", [-1, 10, 1000])
def test_a_position_outside_is_corrupt(pos: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(GOLDEN, pos)


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_corrupt(magic: int) -> None:
    with pytest.raises(CorruptBatch, match="magic"):
        read_header(GOLDEN[:16] + bytes([magic]) + GOLDEN[17:])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatch, match="length"):
        read_header(GOLDEN[:8] + struct.pack(">i", length) + GOLDEN[12:])


def test_a_batch_that_is_cut_fails_its_check() -> None:
    with pytest.raises(CorruptBatch, match="cut"):
        check_crc(GOLDEN[:-1], HEADER)


def test_offset_and_epoch_are_set_without_a_new_sum() -> None:
    buf = bytearray(b"xx" + GOLDEN)
    set_base_offset(memoryview(buf), 2**40, 12, pos=2)
    changed = read_header(buf, 2)
    assert changed == header(base_offset=2**40, partition_leader_epoch=12)
    check_crc(buf, changed, 2)


def test_log_append_time_is_every_records_time() -> None:
    buf = bytearray(b"xx" + build_batch([(None, b"a", (), 5), (None, b"b", (), 9)]))
    set_log_append_time(buf, 1_800_000_000_000, pos=2)
    changed = read_header(buf, 2)
    check_crc(buf, changed, 2)
    assert changed.is_log_append_time
    assert (changed.base_timestamp, changed.max_timestamp) == (5, 1_800_000_000_000)
    records = list(iter_records(memoryview(buf)[2:]))
    assert [record.timestamp for record in records] == [1_800_000_000_000] * 2
    assert {record.timestamp_type for record in records} == {TimestampType.LOG_APPEND_TIME}


# RFC 3720, appendix B.4, and the check value of the Rocksoft model.
SUMS = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
]


@pytest.mark.parametrize(("data", "crc"), SUMS)
def test_known_answers(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc
    assert portable_crc32c(data) == crc


@given(st.binary(max_size=500), st.integers(0, 0xFFFFFFFF))
def test_hardware_and_portable_sums_are_the_same(data: bytes, crc: int) -> None:
    assert crc32c(data, crc) == portable_crc32c(data, crc)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_sum_continues(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer(kind: type) -> None:
    assert crc32c(kind(b"123456789")) == portable_crc32c(kind(b"123456789")) == 0xE3069283


def test_without_the_hardware_package_the_portable_sums_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_module, "find_spec", lambda name: None)
    assert header_module._fastest() is portable_crc32c
