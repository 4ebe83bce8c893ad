"""The twins compared: for any bytes, both return the same or raise the same error."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.records import BatchHeader, CorruptBatch, encode_records, read_header
from qbus.records.header import HEADER_SIZE

from .strategies import HOSTILE, NOW, batch_of, rows

Twins = tuple[ModuleType, ModuleType]
LIST_COLUMNS = ("header_offsets", "offset", "timestamp", "timestamp_type")
BYTES_COLUMNS = ("key", "value", "header_value")


def outcome(twin: ModuleType, payload: bytes, header: BatchHeader, start: int) -> Any:
    try:
        return twin.Decoder(payload, header, "topic", 1, start).take(len(payload) + 1)
    except CorruptBatch as error:
        return str(error)


def columns_outcome(twin: ModuleType, payload: bytes, header: BatchHeader, start: int) -> Any:
    buffers = twin.ColumnsBuffers()
    message = None
    for delta in (0, start):  # what fails leaves what was there before
        try:
            buffers.extend(payload, header, delta)
        except CorruptBatch as error:
            message = str(error)
    parts = [bytes(getattr(buffers, name)) for name in LIST_COLUMNS]
    for name in BYTES_COLUMNS:
        column = getattr(buffers, name)
        parts += (bytes(column.validity), bytes(column.offsets), bytes(column.data))
    return message, buffers.rows, parts


def assert_same(twins: Twins, batch: bytes, start: int = 0) -> None:
    header, payload = read_header(batch), bytes(batch[HEADER_SIZE:])
    python, compiled = (outcome(twin, payload, header, start) for twin in twins)
    assert compiled == python
    python, compiled = (columns_outcome(twin, payload, header, start) for twin in twins)
    assert compiled == python


@given(st.lists(rows, min_size=1, max_size=30), st.integers(-(2**62), 2**62))
def test_lists_are_encoded_to_the_same_bytes(twins: Twins, items: list[Any], base: int) -> None:
    keys, values, headers, times = map(list, zip(*items, strict=True))
    found = []
    for twin in twins:
        try:
            found.append(twin.encode_lists(values, keys, headers, times, base))
        except ValueError as error:
            found.append(str(error))
    assert found[0] == found[1]


@given(st.binary(max_size=120), st.integers(0, 5), st.integers(0, 3))
def test_garbage(twins: Twins, payload: bytes, count: int, start: int) -> None:
    assert_same(twins, batch_of(payload, count), start)


@settings(max_examples=300)
@given(
    st.lists(rows, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
    st.integers(0, 10**6),
    st.sampled_from([0, 8]),
)
def test_damaged_records(
    twins: Twins, items: list[Any], damage: list[tuple[int, int]], cut: int, attributes: int
) -> None:
    keys, values, headers, times = map(list, zip(*items, strict=True))
    batch = encode_records(values, keys, headers, times, base_timestamp=NOW)
    payload = batch[HEADER_SIZE:]
    for at, byte in damage:
        payload[at % len(payload)] = byte
    if cut % 3 == 0:
        del payload[cut % len(payload) :]
    assert_same(twins, batch_of(bytes(payload), len(items), attributes=attributes), cut % 5)


@pytest.mark.parametrize("batch", [it[1] for it in HOSTILE], ids=[it[0] for it in HOSTILE])
def test_hostile_records(twins: Twins, batch: bytes) -> None:
    assert_same(twins, batch)


@given(st.binary(min_size=1, max_size=12))
def test_integers(twins: Twins, encoded: bytes) -> None:
    assert_same(twins, batch_of(b"\x20\0" + encoded + b"\0\1\0\0" * 4))
