"""A chunk is made of the fetched bytes, from the right offset on, whole and undamaged."""

import pytest

from qbus.clients.mirror.chunks import Chunk, chunk_of
from qbus.records import CorruptBatch, build_batch, set_base_offset, set_log_append_time

NOW = 1_700_000_000_000


def batch(base_offset: int, count: int = 5, at: int = NOW) -> bytes:
    made = build_batch([(None, b"value", (), at + i) for i in range(count)])
    set_base_offset(made, base_offset, 3)
    return bytes(made)


LOG = batch(10) + batch(15, at=NOW + 100) + batch(30)  # a gap from 20 to 30


def chunk(data: bytes, position: int, follows: int | None = None) -> Chunk:
    found = chunk_of(memoryview(data), position, position if follows is None else follows)
    assert found is not None
    return found


def test_the_bytes_are_not_copied() -> None:
    data = bytearray(LOG)
    found = chunk_of(memoryview(data), 10, 10)
    assert found is not None
    assert found.records.obj is data
    assert found.records == LOG
    assert (found.end, found.batches, found.records_count) == (35, 3, 15)
    assert (found.oldest_ms, found.newest_ms) == (NOW, NOW + 104)


def test_batches_before_the_position_are_left_out() -> None:
    found = chunk(LOG, 15)
    assert found.records == LOG[len(batch(10)) :]
    assert (found.end, found.batches) == (35, 2)


@pytest.mark.parametrize("position", [20, 25, 30])
def test_across_a_gap(position: int) -> None:
    found = chunk(LOG, position)
    assert found.records == batch(30)
    assert (found.follows, found.end) == (position, 35)


def test_a_gap_that_was_left_before() -> None:
    assert chunk(LOG, 10, follows=4).follows == 4


@pytest.mark.parametrize("cut", [1, 40, len(batch(30)) - 1])
def test_a_cut_tail_is_left_for_the_next_fetch(cut: int) -> None:
    found = chunk(LOG[:-cut], 10)
    assert (found.end, found.batches) == (20, 2)


@pytest.mark.parametrize("data", [b"", LOG[:20], LOG])
def test_nothing_to_send(data: bytes) -> None:
    assert chunk_of(memoryview(data), 35, 35) is None


@pytest.mark.parametrize("position", [11, 14, 16, 31])
def test_a_batch_that_begins_before_the_position(position: int) -> None:
    with pytest.raises(CorruptBatch):
        chunk_of(memoryview(LOG), position, position)


def test_a_log_that_starts_within_a_batch() -> None:
    found = chunk(LOG, 12, follows=4)
    assert found.records == LOG
    assert (found.follows, found.end) == (4, 35)
    with pytest.raises(CorruptBatch):
        chunk_of(memoryview(LOG), 12, 11)


def test_damage_at_the_head() -> None:
    for index in range(16, 80):
        data = bytearray(LOG)
        data[index] ^= 0x10
        with pytest.raises(CorruptBatch):
            chunk_of(memoryview(data), 10, 10)


def test_damage_behind_a_sound_batch_is_left_for_the_next_fetch() -> None:
    data = bytearray(LOG)
    data[-3] ^= 0x10
    assert chunk(bytes(data), 10).end == 20
    with pytest.raises(CorruptBatch):
        chunk_of(memoryview(data), 20, 20)


@pytest.mark.parametrize("second", [5, 10, 14])
def test_batches_out_of_order_are_not_sent(second: int) -> None:
    assert chunk(batch(10) + batch(second), 10).end == 15


def test_the_brokers_time_where_that_is_the_records() -> None:
    stamped = bytearray(batch(10))
    set_log_append_time(stamped, NOW + 5000)
    assert chunk(bytes(stamped), 10).oldest_ms == NOW + 5000
