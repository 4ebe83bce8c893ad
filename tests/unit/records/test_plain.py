"""Plain batches: which they are, and that both twins agree for any bytes."""

import itertools
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.errors import CorruptBatch
from qbus.records import BatchHeader, Buffer, Compression, build_batch, plain, read_header
from qbus.records.encode import encode_records
from qbus.records.header import HEADER_SIZE, write_header
from qbus.records.plain import (
    portable_may_have_header,
    portable_plain_header,
    portable_record_positions,
)
from tests.support.logs import batch

Twin = Callable[[bytes], BatchHeader | None]


def twins() -> list[Twin]:
    try:
        from qbus.records import _header
    except ImportError:
        return [portable_plain_header]
    assert _header.REVISION == plain.REVISION, "built from other sources"
    return [portable_plain_header, _header.plain_header]


@pytest.fixture(params=twins(), ids=lambda twin: str(twin.__module__))
def plain_header(request: pytest.FixtureRequest) -> Twin:
    twin: Twin = request.param
    return twin


def changed(sent: Buffer, **fields: int) -> bytes:
    """A batch with other fields in its header, and the CRC that is right then."""
    made = bytearray(sent)
    write_header(made, read_header(made)._replace(**fields))
    return bytes(made)


@pytest.mark.parametrize("compression", Compression)
def test_a_batch_of_any_codec(plain_header: Twin, compression: Compression) -> None:
    sent = bytes(batch(b"a" * 100, b"b", compression=compression))
    assert plain_header(sent) == read_header(sent)


def test_a_batch_of_an_idempotent_producer(plain_header: Twin) -> None:
    sent = bytes(batch(b"a", producer_id=7, producer_epoch=1, base_sequence=3))
    found = plain_header(sent)
    assert found == read_header(sent)
    assert found is not None
    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (7, 1, 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"attributes": 5},
        {"attributes": 0x08},
        {"attributes": 0x10},
        {"attributes": 0x20},
        {"attributes": 0x40},
        {"attributes": -1},
        {"records_count": 3},
        {"last_offset_delta": 0},
        {"last_offset_delta": -1, "records_count": 0},
        {"last_offset_delta": 2**31 - 1, "records_count": -(2**31)},
        {"producer_id": 7},
        {"producer_id": 7, "producer_epoch": 0},
        {"producer_id": 7, "producer_epoch": -1, "base_sequence": 0},
    ],
    ids=str,
)
def test_what_is_to_be_looked_at_more_closely(plain_header: Twin, fields: dict[str, int]) -> None:
    sent = batch(b"a", b"b")
    assert plain_header(bytes(sent)) is not None
    assert plain_header(changed(sent, **fields)) is None


def test_another_magic(plain_header: Twin) -> None:
    sent = bytearray(batch(b"a"))
    sent[16] = 1
    assert plain_header(bytes(sent)) is None


def test_what_is_cut_or_goes_on(plain_header: Twin) -> None:
    sent = bytes(batch(b"a"))
    for size in range(len(sent)):
        assert plain_header(sent[:size]) is None
    assert plain_header(sent + b"\0") is None
    assert plain_header(sent + sent) is None


def test_any_changed_bit_that_the_sum_covers(plain_header: Twin) -> None:
    sent = bytes(batch(b"some value"))
    for position in range(17, len(sent)):
        for bit in range(8):
            damaged = bytearray(sent)
            damaged[position] ^= 1 << bit
            assert plain_header(bytes(damaged)) is None


@given(
    st.dictionaries(
        st.sampled_from([name for name in BatchHeader._fields if name not in {"crc", "magic"}]),
        st.integers(-(2**15), 2**15 - 1) | st.sampled_from([0, 1, 2, 48, 49, 60]),
        max_size=3,
    )
)
def test_the_twins_agree(fields: dict[str, int]) -> None:
    sent = bytearray(build_batch([(None, b"v", (), 5), (b"k", None, (), 6)]))
    header = read_header(sent)._replace(**fields)
    if not 0 < header.size <= len(sent):
        return
    write_header(sent, header)
    found = [twin(bytes(sent)) for twin in twins()]
    assert all(one == found[0] for one in found)


# Whether records have headers that matter

Look = Callable[[Buffer, int, bytes], bool]


def looks() -> list[Look]:
    try:
        from qbus.records import _header
    except ImportError:
        return [portable_may_have_header]
    return [portable_may_have_header, _header.may_have_header]


@pytest.fixture(params=looks(), ids=lambda look: str(look.__module__))
def may_have_header(request: pytest.FixtureRequest) -> Look:
    look: Look = request.param
    return look


ITEMS = st.none() | st.binary(max_size=300)
NAMES = st.text(max_size=3) | st.sampled_from(["ab", "abc", "a", "Ab"])
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=3)), max_size=3)
RECORDS = st.lists(st.tuples(ITEMS, ITEMS, HEADERS, st.integers(-(2**40), 2**40)), min_size=1)


def payload_of(records: list[tuple[bytes | None, bytes | None, Any, int]]) -> bytes:
    keys, values, headers, times = (list(column) for column in zip(*records, strict=True))
    made = encode_records(
        values, keys, headers, times, base_timestamp=0, compression=Compression.NONE
    )
    return bytes(made[HEADER_SIZE:])


@given(records=RECORDS, prefix=st.sampled_from([b"", b"a", b"ab"]))
def test_headers_are_found_by_what_their_names_begin_with(
    records: list[tuple[bytes | None, bytes | None, Any, int]], prefix: bytes
) -> None:
    payload = payload_of(records)
    names = [name.encode() for _, _, headers, _ in records for name, _ in headers]
    for look in looks():
        assert look(payload, len(records), prefix) is any(name.startswith(prefix) for name in names)
        assert look(payload, len(records) + 1, prefix)
        assert look(payload + b"x", len(records), prefix)
        assert look(payload[:-1], len(records), prefix)


def test_keys_and_values_are_not_taken_for_headers(may_have_header: Look) -> None:
    payload = payload_of([(b"qbus-key", b"qbus-value", [("name", b"qbus-value")], 0)])
    assert not may_have_header(payload, 1, b"qbus-")


@given(records=RECORDS, data=st.data())
def test_the_twins_agree_on_damaged_records(
    records: list[tuple[bytes | None, bytes | None, Any, int]], data: st.DataObject
) -> None:
    damaged = bytearray(payload_of(records))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    assert len({look(bytes(damaged), len(records), b"a") for look in looks()}) == 1


@given(payload=st.binary(max_size=100), count=st.integers(-1, 5))
def test_the_twins_agree_on_any_bytes(payload: bytes, count: int) -> None:
    assert len({look(payload, count, b"a") for look in looks()}) == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff" * 12,
        b"\x80" * 9 + b"\x02",
        b"\x80" * 9 + b"\x01",
        b"\x01",
        b"\x00",
        b"\x0c" + b"\0" * 5,
    ],
)
def test_what_is_no_record_may_have_headers(may_have_header: Look, payload: bytes) -> None:
    assert may_have_header(payload, 1, b"qbus-")


# Where records begin

Positions = Callable[[Buffer, int], "array[int]"]


def positions_of() -> list[Positions]:
    try:
        from qbus.records import _header
    except ImportError:
        return [portable_record_positions]
    return [portable_record_positions, _header.record_positions]


@given(records=RECORDS)
def test_records_are_found_where_they_begin(
    records: list[tuple[bytes | None, bytes | None, Any, int]],
) -> None:
    payload = payload_of(records)
    for find in positions_of():
        positions = find(payload, len(records))
        assert (positions[0], positions[-1], len(positions)) == (0, len(payload), len(records) + 1)
        for begin, end in itertools.pairwise(positions):
            assert find(payload[begin:end], 1).tolist() == [0, end - begin]
        for damaged in (payload[:-1], payload[:-2], b""):
            with pytest.raises(CorruptBatch):
                find(damaged, len(records))
        with pytest.raises(CorruptBatch):
            find(payload, len(records) + 1)


@given(payload=st.binary(max_size=100), count=st.integers(-1, 5) | st.just(2**31 - 1))
def test_the_twins_agree_where_any_bytes_begin(payload: bytes, count: int) -> None:
    found: list[list[int] | None] = []
    for find in positions_of():
        try:
            found.append(find(payload, count).tolist())
        except CorruptBatch:
            found.append(None)
    assert all(one == found[0] for one in found)
