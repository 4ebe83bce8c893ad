"""CRC-32C: known answers, and the two implementations against each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.records import crc, crc32c
from qbus.records.crc import portable_crc32c

# RFC 3720, appendix B.4, and the check value of the Rocksoft model.
KNOWN = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
]


@pytest.mark.parametrize(("data", "crc"), KNOWN)
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
    monkeypatch.setattr(crc, "find_spec", lambda name: None)
    assert crc._fastest() is portable_crc32c
