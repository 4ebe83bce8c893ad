"""Batches from Arrow's buffers, by both twins."""

import datetime as dt
import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.records import ArrowColumns, Compression, encode_arrow, encode_records, partition_for_keys
from qbus.records.arrow_buffers import Lists, Values

from .strategies import NOW, data, header_items

pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("twin")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
times = st.none() | st.integers(-1, 2**50)
items = st.lists(st.tuples(data, data, st.none() | header_items, times), min_size=1, max_size=20)


def pairs(headers: list[Any]) -> list[Any]:
    return [None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers]


@given(items, st.integers(0, 19), st.integers(1, 20), st.integers(1, 7))
def test_rows_are_the_records_of_lists(
    given_items: list[Any], start: int, size: int, chunk: int
) -> None:
    keys, values, headers, stamps = map(list, zip(*given_items, strict=True))
    table = pa.table(
        {
            "k": pa.array(keys, pa.binary()),
            "v": pa.array(values, pa.large_binary()),
            "h": pa.array(pairs(headers), HEADERS),
            "t": pa.array(stamps, pa.int64()),
        }
    )
    start %= len(given_items)
    stop = min(start + size, len(given_items))
    chunks = pa.concat_tables(table[at : at + chunk] for at in range(0, len(table), chunk))
    for source, first in ((table, 0), (chunks, 0), (table[start:], start)):
        columns = ArrowColumns.of(source, value="v", key="k", headers="h", timestamp="t")
        assert len(columns) == len(source)
        assert encode_arrow(columns, start - first, stop - first, base_timestamp=NOW) == (
            encode_records(
                values[start:stop],
                keys[start:stop],
                headers[start:stop],
                stamps[start:stop],
                base_timestamp=NOW,
            )
        )
        assert list(columns.partitions(12)) == partition_for_keys(keys[first:], 12)


TYPES = [
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.string_view(),
    pa.binary_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.binary(3),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_strings_and_bytes_of_any_kind(kind: Any) -> None:
    array = (
        pa.array([None, "abc", None, "xyz", "abc"])
        .cast(pa.string())
        .cast(pa.binary() if kind == pa.binary(3) else pa.string())
    )
    array = array.cast(kind)
    table = pa.table({"v": array, "k": array})[1:]
    columns = ArrowColumns.of(table, value="v", key="k")
    expected = [b"abc", None, b"xyz", b"abc"]
    assert encode_arrow(columns, 0, 4, base_timestamp=0) == encode_records(
        expected, expected, base_timestamp=0
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit(unit: str) -> None:
    moment = dt.datetime(2024, 1, 2, tzinfo=dt.UTC)
    stamps = pa.array([None, moment], pa.timestamp(unit, "UTC"))
    columns = ArrowColumns.of(pa.table({"v": ["a", "b"], "t": stamps}), value="v", timestamp="t")
    expected = [None, int(moment.timestamp() * 1000)]
    assert encode_arrow(columns, 0, 2, base_timestamp=9) == encode_records(
        [b"a", b"b"], timestamps=expected, base_timestamp=9
    )


def test_headers_as_maps_and_in_large_lists() -> None:
    values = [[("h", b"1"), ("i", None)], None, []]
    fields = pa.struct([("value", pa.binary()), ("key", pa.large_string())])
    expected = encode_records([b""] * 3, headers=values, base_timestamp=0)
    for array in (
        pa.array(values, pa.map_(pa.string(), pa.binary())),
        pa.array(pairs(values), pa.large_list(fields)),
    ):
        table = pa.table({"value": [b""] * 3, "h": array})
        columns = ArrowColumns.of(table, headers="h")
        assert encode_arrow(columns, 0, 3, base_timestamp=0) == expected


def test_record_batches_and_what_exports_arrow_are_taken() -> None:
    table = pa.table({"value": ["a", "b"]})

    class Foreign:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return table.__arrow_c_stream__(requested_schema)

    expected = encode_arrow(ArrowColumns.of(table), 0, 2, base_timestamp=0)
    for source in (table.to_batches()[0], Foreign()):
        assert encode_arrow(ArrowColumns.of(source), 0, 2, base_timestamp=0) == expected


def test_what_fits() -> None:
    sizes = [100, 100, 5000, 100, 0, 3]
    table = pa.table({"value": [b"x" * size for size in sizes]})
    chunks = pa.concat_tables([table[:1], table[1:4], table[4:4], table[4:]])
    for columns in (ArrowColumns.of(table), ArrowColumns.of(chunks)):
        assert columns.fit(0, 400) == 2
        assert columns.fit(2, 400) == 3  # one at least
        assert columns.fit(3, 10**9) == columns.fit(3, 400) == 6
        start = 0
        while start < len(columns):
            stop = columns.fit(start, 350)
            batch = encode_arrow(columns, start, stop, base_timestamp=0)
            assert len(batch) <= 350 or stop == start + 1
            start = stop


def test_batches_are_compressed_and_numbered() -> None:
    columns = ArrowColumns.of(pa.table({"value": [b"a" * 1000] * 10}))
    fields: Any = {"producer_id": 1, "producer_epoch": 2, "base_sequence": 3, "level": 9}
    batch = encode_arrow(columns, 0, 10, base_timestamp=0, compression=Compression.GZIP, **fields)
    assert batch == encode_records(
        [b"a" * 1000] * 10, base_timestamp=0, compression=Compression.GZIP, **fields
    )


def test_rows_that_do_not_exist() -> None:
    columns = ArrowColumns.of(pa.table({"value": [b"a"] * 3}))
    for start, stop in ((0, 4), (-1, 2), (3, 2)):
        with pytest.raises(IndexError):
            encode_arrow(columns, start, stop, base_timestamp=0)
    with pytest.raises(ValueError, match="at least one record"):
        encode_arrow(columns, 1, 1, base_timestamp=0)
    assert len(ArrowColumns.of(pa.table({"value": pa.array([], pa.binary())}))) == 0


def test_columns_that_do_not_exist_or_have_another_type() -> None:
    table = pa.table({"n": [1], "v": ["a"], "l": [["a"]], "s": [[{"key": "k", "other": "v"}]]})
    with pytest.raises(KeyError, match="no column 'x'"):
        ArrowColumns.of(table, value="x")
    with pytest.raises(TypeError, match=r"column 'n' is of int64: binary or string"):
        ArrowColumns.of(table, value="n")
    with pytest.raises(TypeError, match="column 'v' is of string: timestamp or int64"):
        ArrowColumns.of(table, value="v", timestamp="v")
    for name in ("l", "s", "v"):
        with pytest.raises(TypeError, match=rf"column '{name}' is of .* list<struct"):
            ArrowColumns.of(table, value="v", headers=name)


def test_a_header_without_a_name() -> None:
    for headers in ([[None]], [[{"key": None, "value": b""}]]):
        table = pa.table({"value": ["a"], "h": pa.array(headers, HEADERS)})
        columns = ArrowColumns.of(table, headers="h")
        with pytest.raises(ValueError, match="a header's key is null in row 0"):
            encode_arrow(columns, 0, 1, base_timestamp=0)


def test_a_timestamp_too_far_from_the_first() -> None:
    table = pa.table({"value": ["a"], "t": pa.array([2**63 - 1], pa.int64())})
    columns = ArrowColumns.of(table, timestamp="t")
    with pytest.raises(ValueError, match="timestamp 0 is out of range"):
        encode_arrow(columns, 0, 1, base_timestamp=-1)


LYING = [(0, 5, 4, 8), (0, -1, 4, 8), (0, 2, 4, 9), (2**31 - 1, 0, 0, 0)]


@pytest.mark.parametrize("offsets", LYING)
@pytest.mark.parametrize(("width", "form"), [(4, "=4i"), (8, "=4q")])
def test_offsets_that_lie(
    twin: ModuleType, offsets: tuple[int, ...], width: int, form: str
) -> None:
    lying = Values(None, struct.pack(form, *offsets), width, b"12345678", 0)
    good = Values(None, bytes(36), 4, b"", 0)
    lists = Lists(None, struct.pack(form, *offsets), width, 0, 8, good, good)
    columns = ArrowColumns([twin.Rows(3, good, lying, None, None)])
    for act in (
        lambda: encode_arrow(columns, 0, 3, base_timestamp=0),
        lambda: columns.fit(0, 1000),
        lambda: columns.partitions(3),
        lambda: twin.Rows(3, lying, None, None, None).encode(bytearray(), 0, 3, 0, 0),
        lambda: twin.Rows(3, good, None, lists, None).encode(bytearray(), 0, 3, 0, 0),
    ):
        with pytest.raises(ValueError, match="impossible offsets"):
            act()
