"""Batches under another producer's name: the header changes, the records do not."""

import pytest

from qbus.clients.batches import ProducerSequence, as_produced, with_sequence
from qbus.records import (
    HEADER_SIZE,
    Compression,
    CorruptBatch,
    build_batch,
    check_crc,
    iter_records,
    read_header,
    set_base_offset,
)

RECORDS = [(b"key", b"value", (("h", b"1"),), 1_700_000_000_000 + i) for i in range(3)]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_only_the_producer_and_the_place_change(compression: Compression) -> None:
    stored = build_batch(RECORDS, compression=compression)
    set_base_offset(stored, 1_000_000, 7)
    before = bytes(stored)
    copy = with_sequence(stored, ProducerSequence(5, 2, 0x7FFFFFFF))
    header = read_header(copy)
    check_crc(copy, header)
    assert bytes(stored) == before
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 0x7FFFFFFF)
    assert (header.base_offset, header.partition_leader_epoch) == (0, -1)
    assert copy[HEADER_SIZE:] == before[HEADER_SIZE:]
    original = read_header(before)
    assert header.attributes == original.attributes
    assert header.max_timestamp == original.max_timestamp
    assert [record.value for record in iter_records(bytes(copy))] == [b"value"] * 3


def test_without_its_place_a_batch_keeps_its_producer_and_its_sum() -> None:
    stored = with_sequence(build_batch(RECORDS), ProducerSequence(5, 2, 40))
    set_base_offset(stored, 99, 3)
    copy = as_produced(memoryview(stored))
    check_crc(copy, read_header(copy))
    assert read_header(copy) == read_header(stored)._replace(
        base_offset=0, partition_leader_epoch=-1
    )


@pytest.mark.parametrize("size", [12 + 4, 60])
def test_bytes_that_hold_no_header(size: int) -> None:
    with pytest.raises(CorruptBatch):
        with_sequence(bytes(build_batch(RECORDS))[:size], ProducerSequence(1, 0, 0))
