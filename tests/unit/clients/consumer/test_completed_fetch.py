"""What a fetch brought is handed out in order, once, and only if it is sound."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.clients import TopicPartition
from qbus.clients.consumer import completed_fetch as module
from qbus.clients.consumer.completed_fetch import CompletedFetch
from qbus.records import (
    BatchHeader,
    Compression,
    CorruptBatch,
    RecordColumns,
    build_batch,
    decode_some,
    to_arrow,
)
from qbus.wire.messages.fetch import AbortedTransaction
from tests.support.bombs import batch_of_headers

TRANSACTIONAL = 0x10
CONTROL = 0x20


def batch(base_offset: int, count: int, attributes: int = 0) -> bytes:
    records = [(None, b"%d" % (base_offset + i), (), 0) for i in range(count)]
    return bytes(build_batch(records, base_offset=base_offset, attributes=attributes))


PARTITION = TopicPartition("t", 0)


def fetched(position: int, *batches: bytes, check_crcs: bool = True) -> CompletedFetch:
    return CompletedFetch(PARTITION, position, memoryview(b"".join(batches)), check_crcs=check_crcs)


def offsets(found: CompletedFetch, limit: int = 1000) -> list[int]:
    taken: list[int] = []
    while some := found.decode(limit - len(taken)):
        taken += [record.offset for record in some]
        if len(taken) == limit:
            break
    return taken


@given(st.lists(st.integers(1, 9), max_size=5), st.integers(1, 7), st.integers(0, 12))
def test_everything_from_the_position_on_comes_once(
    sizes: list[int], limit: int, position: int
) -> None:
    batches, end = [], 0
    for size in sizes:
        batches.append(batch(end, size))
        end += size
    found = fetched(position, *batches)
    taken = []
    while not found.is_exhausted:
        some = offsets(found, limit)
        assert len(some) <= limit
        if some:
            assert found.position == some[-1] + 1
        taken += some
    assert taken == list(range(position, end))
    assert found.position == max(position, end)


def test_a_cut_last_batch_is_left_for_the_next_fetch() -> None:
    found = fetched(0, batch(0, 3), batch(3, 3)[:-1])
    assert offsets(found) == [0, 1, 2]
    assert (found.position, found.is_exhausted) == (3, True)


def test_control_batches_are_passed_over() -> None:
    found = fetched(0, batch(0, 2), batch(2, 1, CONTROL), batch(3, 1))
    assert offsets(found) == [0, 1, 3]
    found = fetched(2, batch(2, 1, CONTROL))
    assert offsets(found) == []
    assert (found.position, found.is_exhausted) == (3, True)


def test_the_end_of_a_compacted_batch_is_the_batchs() -> None:
    compacted = bytearray(batch(0, 2))
    compacted[23:27] = (9).to_bytes(4, "big")  # last offset delta
    found = fetched(0, bytes(compacted), check_crcs=False)
    assert offsets(found) == [0, 1]
    assert found.position == 10


def test_damage_is_reported_after_the_records_before_it_and_again() -> None:
    damaged = bytearray(batch(3, 3))
    damaged[-1] ^= 1
    found = fetched(0, batch(0, 3), bytes(damaged))
    assert offsets(found, 3) == [0, 1, 2]
    with pytest.raises(CorruptBatch, match="CRC"):
        found.decode(10)
    assert (found.position, found.is_exhausted) == (3, True)


def test_without_checksums_damage_within_a_batch_is_still_no_record() -> None:
    damaged = bytearray(batch(2, 3))
    damaged[-1] = 0x7F  # the last record's headers count
    found = fetched(0, batch(0, 2), bytes(damaged), check_crcs=False)
    assert offsets(found, 2) == [0, 1]
    with pytest.raises(CorruptBatch):
        found.decode(10)
    assert found.position == 2


def test_columns_go_on_where_records_left_off() -> None:
    pytest.importorskip("pyarrow")
    found = fetched(0, batch(0, 5), batch(5, 5))
    assert offsets(found, 3) == [0, 1, 2]
    columns = RecordColumns()
    found.decode_columns(columns, 100)
    assert to_arrow(columns, "t", 0).column("offset").to_pylist() == list(range(3, 10))
    assert found.position == 10


def test_records_go_on_where_columns_left_off() -> None:
    pytest.importorskip("pyarrow")
    found = fetched(2, batch(0, 5), batch(5, 5))
    columns = RecordColumns()
    found.decode_columns(columns, 1)
    assert columns.rows == 3
    assert offsets(found) == [5, 6, 7, 8, 9]


def test_a_batch_of_countless_records_is_decoded_bit_by_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 40)
    found = fetched(1, batch(0, 10), batch(10, 2))
    assert 1 < len(found.decode(100)) < 9
    found = fetched(1, batch(0, 10), batch(10, 2))
    assert offsets(found, 5) == [1, 2, 3, 4, 5]
    assert offsets(found, 100) == [6, 7, 8, 9, 10, 11]
    assert found.position == 12


def test_records_are_decoded_again_after_a_memory_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = [0]

    def short_of_memory(*args: Any) -> Iterator[Any]:
        tries[0] += 1
        for number, chunk in enumerate(decode_some(*args)):
            if tries[0] == 1 and number == 1:
                raise MemoryError
            yield chunk

    monkeypatch.setattr(module, "AT_ONCE", 40)
    monkeypatch.setattr(module, "decode_some", short_of_memory)
    found = fetched(0, batch(0, 10), batch(10, 2))
    first = [record.offset for record in found.decode(100)]
    with pytest.raises(MemoryError):
        found.decode(100)
    assert first + offsets(found) == list(range(12))


def test_a_batch_that_ends_before_it_begins_is_damage() -> None:
    lying = bytearray(batch(0, 2))
    lying[23:27] = (-5).to_bytes(4, "big", signed=True)  # last offset delta
    with pytest.raises(CorruptBatch, match="last offset delta -5"):
        fetched(0, bytes(lying), check_crcs=False).decode(10)


def test_records_of_an_aborted_transaction_are_hidden_up_to_its_marker() -> None:
    def written(base: int, producer: int) -> bytes:
        return bytes(
            build_batch(
                [(None, b"v", (), 0)],
                base_offset=base,
                attributes=TRANSACTIONAL,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
            )
        )

    def marker(base: int, producer: int, kind: int) -> bytes:
        key = b"\0\0" + kind.to_bytes(2, "big")
        return bytes(
            build_batch(
                [(key, b"\0" * 6, (), 0)],
                base_offset=base,
                attributes=TRANSACTIONAL | CONTROL,
                producer_id=producer,
                producer_epoch=0,
            )
        )

    log = [
        written(0, 7),
        written(1, 8),
        marker(2, 7, 0),
        written(3, 7),
        marker(4, 7, 1),
        marker(5, 8, 1),
    ]
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    found = CompletedFetch(
        PARTITION, 0, memoryview(b"".join(log)), check_crcs=True, aborted=aborted
    )
    assert offsets(found) == [1, 3]
    assert found.position == 6


class Narrow(RecordColumns):
    """Columns that hold few records, as others hold no more than two gigabytes."""

    def append(
        self, batch: Any, header: BatchHeader, from_offset: int = 0, max_size: int = 1 << 20
    ) -> int:
        if self.rows + header.records_count > 3:
            raise OverflowError
        return super().append(batch, header, from_offset, max_size)


def test_a_batch_without_room_in_the_columns_stays_for_the_next_call() -> None:
    found = fetched(0, batch(0, 2), batch(2, 2), batch(4, 2))
    columns = Narrow()
    found.decode_columns(columns, 1000)
    assert (columns.rows, found.position, found.is_exhausted) == (2, 2, False)
    assert offsets(found, 1) == [2]
    again = RecordColumns()
    found.decode_columns(again, 1000)
    assert to_arrow(again, *PARTITION)["offset"].to_pylist() == [3, 4, 5]


def test_a_batch_that_no_columns_can_hold_is_an_error() -> None:
    with pytest.raises(OverflowError):
        fetched(0, batch(0, 4)).decode_columns(Narrow(), 1000)


def test_a_batch_that_decompresses_to_more_than_its_bound_is_refused() -> None:
    small, large = (None, b"v", (), 0), (None, bytes(2_000_000), (), 0)
    first = bytes(build_batch([small]))
    bomb = bytes(build_batch([large], base_offset=1, compression=Compression.ZSTD))
    data = memoryview(first + bomb)
    found = CompletedFetch(PARTITION, 0, data, check_crcs=True, max_size=1_000_000)
    assert [record.offset for record in found.decode(10)] == [0]
    with pytest.raises(CorruptBatch, match="larger than 1000000"):
        found.decode(10)
    found = CompletedFetch(PARTITION, 1, memoryview(bomb), check_crcs=True, max_size=1_000_000)
    with pytest.raises(CorruptBatch, match="larger than 1000000"):
        found.decode_columns(RecordColumns(), 10)
    found = CompletedFetch(PARTITION, 0, data, check_crcs=True, max_size=3_000_000)
    assert offsets(found) == [0, 1]


def test_a_record_of_countless_headers_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="1000001 headers, more than 10000"):
        fetched(0, batch_of_headers(1_000_000)).decode(10)
