"""The records of a fetch: those acquired, once, and what is said of the others."""

from collections.abc import Iterator
from typing import Any

import pytest

from qbus.clients.share import acquired as module
from qbus.clients.share.acknowledgements import AckType
from qbus.clients.share.acquired import AcquiredRange, AcquiredRecords
from qbus.clients.types import TopicPartition
from qbus.records import (
    Compression,
    ConsumerRecord,
    CorruptBatch,
    RecordColumns,
    build_batch,
    decode_some,
    read_header,
    set_base_offset,
)
from qbus.records.control import empty_batch
from qbus.records.header import write_header

P0 = TopicPartition("t", 0)


def batch(first: int, count: int) -> bytes:
    data = build_batch([(None, b"%d" % (first + number), (), 5) for number in range(count)])
    set_base_offset(data, first, 0)
    return bytes(data)


def acquired(data: bytes, *ranges: tuple[int, int, int]) -> AcquiredRecords:
    spans = [AcquiredRange(*span) for span in ranges]
    return AcquiredRecords(P0, memoryview(data), spans, check_crcs=True)


def offsets(records: AcquiredRecords, limit: int = 1000) -> list[int]:
    return [record.offset for record in records.take(limit)]


def said(records: AcquiredRecords) -> list[tuple[int, AckType]]:
    return [(ack.offset, ack.type) for ack in records.leftovers]


def test_only_what_was_acquired_with_its_number_of_deliveries() -> None:
    records = acquired(batch(10, 5) + batch(15, 5), (11, 12, 1), (14, 16, 3))
    found = records.take(100)
    assert [(record.offset, record.deliveries) for record in found] == [
        (11, 1),
        (12, 1),
        (14, 3),
        (15, 3),
        (16, 3),
    ]
    assert [record.value for record in found] == [b"11", b"12", b"14", b"15", b"16"]
    assert not records.look_ahead()
    assert records.leftovers == []


def test_bit_by_bit() -> None:
    records = acquired(batch(0, 5) + batch(5, 5), (0, 9, 1))
    assert offsets(records, 3) == [0, 1, 2]
    assert records.look_ahead()
    assert offsets(records, 4) == [3, 4, 5, 6]
    assert offsets(records, 4) == [7, 8, 9]
    assert not records.look_ahead()
    assert offsets(records) == []


def test_of_a_large_batch_only_what_was_acquired_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 100)
    decoded: list[int] = []

    def decode(*args: Any) -> Iterator[list[ConsumerRecord]]:
        for some in decode_some(*args):
            decoded.extend(record.offset for record in some)
            yield some

    monkeypatch.setattr(module, "decode_some", decode)
    records = acquired(batch(0, 1000), (500, 501, 1), (503, 503, 2))
    assert offsets(records) == [500, 501, 503]
    assert decoded[0] == 500
    assert decoded[-1] < 600
    assert not records.look_ahead()
    assert records.leftovers == []


def test_offsets_without_a_record_are_gaps() -> None:
    data = batch(0, 2) + empty_batch(2, 5, 0) + batch(6, 2)
    records = acquired(data, (0, 7, 1))
    assert offsets(records) == [0, 1, 6, 7]
    assert not records.look_ahead()
    assert said(records) == [(2, AckType.GAP), (3, AckType.GAP), (4, AckType.GAP), (5, AckType.GAP)]


def test_what_did_not_come_is_released() -> None:
    records = acquired(batch(0, 2) + batch(2, 2)[:-5], (0, 3, 1))
    assert offsets(records) == [0, 1]
    assert not records.look_ahead()
    assert said(records) == [(2, AckType.RELEASE), (3, AckType.RELEASE)]


def test_damage_is_raised_behind_what_is_before_and_what_is_behind_follows() -> None:
    broken = bytearray(batch(2, 2))
    broken[-1] ^= 1
    records = acquired(batch(0, 2) + broken + batch(4, 2), (0, 5, 1))
    assert offsets(records) == [0, 1]
    assert records.is_damaged
    with pytest.raises(CorruptBatch, match="t-0 at offset 2") as caught:
        records.take(10)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 2)
    assert said(records) == [(2, AckType.RELEASE), (3, AckType.RELEASE)]
    assert offsets(records) == [4, 5]
    assert not records.look_ahead()


def test_nothing_is_found_behind_a_broken_header() -> None:
    broken = bytearray(batch(2, 2))
    broken[16] = 9  # the magic
    records = acquired(batch(0, 2) + broken + batch(4, 2), (0, 5, 1))
    assert offsets(records) == [0, 1]
    with pytest.raises(CorruptBatch):
        records.take(10)
    assert not records.look_ahead()
    assert [offset for offset, _ in said(records)] == [2, 3, 4, 5]


def test_dropping_returns_what_nobody_took() -> None:
    broken = bytearray(batch(2, 2))
    broken[-1] ^= 1
    records = acquired(batch(0, 2) + broken + batch(4, 2), (0, 5, 1))
    assert offsets(records, 1) == [0]
    assert records.drop() == [1, 4, 5]
    assert not records.look_ahead()


def test_columns_of_what_is_left() -> None:
    pytest.importorskip("pyarrow")
    records = acquired(batch(0, 5) + batch(5, 5), (0, 3, 1), (6, 9, 2))
    assert offsets(records, 1) == [0]
    taken = records.take_arrow(RecordColumns(), 100)
    assert taken is not None
    table, found = taken
    assert found == table.column("offset").to_pylist() == [1, 2, 3, 6, 7, 8, 9]
    assert table.column("deliveries").to_pylist() == [1, 1, 1, 2, 2, 2, 2]
    assert table.column("value").to_pylist() == [b"%d" % offset for offset in found]
    assert records.take_arrow(RecordColumns(), 100) is None


def test_columns_of_a_batch_that_is_damaged_behind_what_was_acquired() -> None:
    pytest.importorskip("pyarrow")
    damaged = bytearray(build_batch([(None, bytes(9000), (), 5) for _ in range(100)]))
    damaged[-1] = 2  # a header that is not there
    write_header(damaged, read_header(damaged))
    set_base_offset(damaged, 5, 0)
    records = acquired(batch(0, 5) + damaged + batch(105, 5), (0, 6, 1), (105, 109, 1))
    taken = records.take_arrow(RecordColumns(), 100)
    assert taken is not None
    assert taken[1] == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptBatch, match="t-0 at offset 5"):
        records.take_arrow(RecordColumns(), 100)
    assert said(records) == [(5, AckType.RELEASE), (6, AckType.RELEASE)]
    taken = records.take_arrow(RecordColumns(), 100)
    assert taken is not None
    assert taken[1] == [105, 106, 107, 108, 109]


def test_columns_have_whole_batches() -> None:
    pytest.importorskip("pyarrow")
    records = acquired(batch(0, 5) + batch(5, 5), (0, 9, 1))
    taken = records.take_arrow(RecordColumns(), 1)
    assert taken is not None
    assert taken[1] == [0, 1, 2, 3, 4]
    assert offsets(records) == [5, 6, 7, 8, 9]


def test_a_batch_that_decompresses_to_more_than_its_bound_is_released() -> None:
    bomb = bytes(build_batch([(None, bytes(2_000_000), (), 0)], compression=Compression.ZSTD))
    span = AcquiredRange(0, 0, 1)
    records = AcquiredRecords(P0, memoryview(bomb), [span], check_crcs=True, max_size=1_000_000)
    with pytest.raises(CorruptBatch, match="larger than 1000000"):
        records.take(10)
    assert said(records) == [(0, AckType.RELEASE)]
