"""Zigzag varints: known bytes, round trip, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.records import CorruptBatch
from qbus.records.fields import decode_varint, encode_varint

KNOWN = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (8191, "fe7f"),
    (8192, "808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "encoded"), KNOWN)
def test_known_bytes(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_anywhere(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    end = len(before) + len(encoded)
    assert decode_varint(before + encoded + after, len(before)) == (value, end)


def test_an_integer_that_does_not_end_is_refused() -> None:
    with pytest.raises(CorruptBatch):
        decode_varint(b"\x80" * 1000, 0)


def test_an_integer_that_is_cut_runs_off_the_buffer() -> None:
    with pytest.raises(IndexError):
        decode_varint(b"\x80\x80", 0)
