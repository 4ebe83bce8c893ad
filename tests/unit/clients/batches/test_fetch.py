"""What of a fetch's bytes is handed on: whole, sound, in order, and wanted."""

import pytest

from qbus.clients.batches import whole_batches
from qbus.records import CorruptBatch, build_batch, read_header, set_base_offset
from qbus.records.header import write_header


def batch(base_offset: int, count: int = 1) -> bytes:
    made = build_batch([(None, b"value", (), 1_700_000_000_000)] * count)
    set_base_offset(made, base_offset, 0)
    return bytes(made)


LOG = batch(10, 5) + batch(15, 5) + batch(30, 5)  # with a gap from 20 to 30


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (10, None, [10, 15, 30]),
        (0, None, [10, 15, 30]),
        (14, None, [10, 15, 30]),
        (15, None, [15, 30]),
        (20, None, [30]),
        (34, None, [30]),
        (35, None, []),
        (10, 15, [10]),
        (10, 16, [10, 15]),
        (10, 20, [10, 15]),
        (10, 30, [10, 15]),
        (10, 31, [10, 15, 30]),
        (20, 30, []),
        (10, 10, []),
    ],
)
def test_batches_that_reach_into_a_range(start: int, end: int | None, expected: list[int]) -> None:
    assert [header.base_offset for header, _ in whole_batches(LOG, start, end)] == expected


def test_the_bytes_are_those_that_came() -> None:
    assert b"".join(data for _, data in whole_batches(LOG, 0)) == LOG


@pytest.mark.parametrize("cut", range(1, len(batch(30, 5)) + 1, 7))
def test_a_cut_tail_is_left_out(cut: int) -> None:
    assert [header.base_offset for header, _ in whole_batches(LOG[:-cut], 0)] == [10, 15]


def test_every_flipped_byte_after_the_place_in_the_log_is_noticed() -> None:
    for index in range(16, len(batch(10))):
        broken = bytearray(batch(10))
        broken[index] ^= 0x40
        with pytest.raises(CorruptBatch):
            list(whole_batches(broken, 0))


def test_what_was_good_before_the_damage_comes_first() -> None:
    broken = bytearray(LOG)
    broken[-1] ^= 1
    batches = whole_batches(broken, 0)
    assert [next(batches)[0].base_offset, next(batches)[0].base_offset] == [10, 15]
    with pytest.raises(CorruptBatch):
        next(batches)


@pytest.mark.parametrize("second", [9, 10, 14])
def test_batches_that_overlap(second: int) -> None:
    with pytest.raises(CorruptBatch):
        list(whole_batches(batch(10, 5) + batch(second, 5), 10))


def test_a_negative_last_offset_delta() -> None:
    broken = bytearray(batch(10))
    write_header(broken, read_header(broken)._replace(last_offset_delta=-3))
    with pytest.raises(CorruptBatch):
        list(whole_batches(broken, 0))
