"""Unsigned varints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.errors import WireError
from qbus.wire.primitives import read_string_length, read_uvarint, string_length, uvarint

# Kafka's protocol guide and KIP-482 give the first rows; the others are the edges of each length.
TABLE = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**21 - 1, "ffff7f"),
    (2**21, "80808001"),
    (2**28 - 1, "ffffff7f"),
    (2**28, "8080808001"),
    (2**32 - 1, "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "encoded"), TABLE)
def test_table(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert uvarint(value) == data
    assert read_uvarint(b"?" + data + b"?", 1) == (value, 1 + len(data))


@given(st.integers(0, 2**32 - 1))
def test_round_trip(value: int) -> None:
    data = uvarint(value)
    assert read_uvarint(data, 0) == (value, len(data))


def test_more_bytes_than_needed_are_read_as_well() -> None:
    assert read_uvarint(bytes.fromhex("8100"), 0) == (1, 2)


@pytest.mark.parametrize("encoded", ["8080808010", "ffffffff1f", "808080808000", "ffffffffffffff"])
def test_more_than_32_bits_are_refused(encoded: str) -> None:
    with pytest.raises(WireError, match="32 bits"):
        read_uvarint(bytes.fromhex(encoded), 0)


def test_a_string_has_at_most_32767_bytes() -> None:
    longest = string_length(0x8000)
    assert read_string_length(longest, 0) == (0x8000, 3)
    with pytest.raises(WireError):
        string_length(0x8001)
    with pytest.raises(WireError):
        read_string_length(uvarint(0x8001), 0)
