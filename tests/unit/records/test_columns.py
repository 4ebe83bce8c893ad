"""Batches to columns, and those to Arrow, by both twins."""

import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.errors import MissingExtra
from qbus.records import (
    CorruptBatch,
    RecordColumns,
    decode_records,
    encode_records,
    read_header,
    set_base_offset,
    to_arrow,
)

from .strategies import HOSTILE, NOW, batch_of, record, rows

pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("twin")


def arrow_of(*batches: Any, start: int = 0) -> Any:
    columns = RecordColumns()
    taken = [columns.append(batch, read_header(batch), start) for batch in batches]
    assert sum(taken) == columns.rows
    table = to_arrow(columns, "topic", 3)
    table.validate(full=True)
    return table


@given(st.lists(st.lists(rows, min_size=1, max_size=12), max_size=3), st.integers(0, 15))
def test_columns_hold_what_records_do(batches: list[list[Any]], start: int) -> None:
    encoded, expected, offset = [], [], 0
    for items in batches:
        keys, values, headers, times = map(list, zip(*items, strict=True))
        batch = encode_records(values, keys, headers, times, base_timestamp=NOW)
        set_base_offset(batch, offset, 0)
        offset += len(items)
        encoded.append(batch)
        expected += decode_records(batch, read_header(batch), "topic", 3, start)
    table = arrow_of(*encoded, start=start)
    rows_read = table.set_column(
        table.schema.get_field_index("timestamp"), "timestamp", table["timestamp"].cast(pa.int64())
    ).to_pylist()
    assert rows_read == [
        r._asdict() | {"headers": [{"key": k, "value": v} for k, v in r.headers]} for r in expected
    ]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 300])
@pytest.mark.parametrize("keys", ["none", "all", "first", "last", "every third", "two runs"])
def test_many_records_with_and_without_keys(count: int, keys: str) -> None:
    has_key = {
        "none": lambda index: False,
        "all": lambda index: True,
        "first": lambda index: index == 0,
        "last": lambda index: index == count - 1,
        "every third": lambda index: index % 3 == 0,
        "two runs": lambda index: index < 70,
    }[keys]
    wanted = [b"%d" % index if has_key(index) else None for index in range(count)]
    values = [None if index % 5 == 4 else bytes(index) for index in range(count)]
    headers = [(("h", b"%d" % index),) if index % 50 == 49 else () for index in range(count)]
    batch = encode_records(values, wanted, headers, base_timestamp=NOW)
    for start in (0, 1, 64, 200):
        table = arrow_of(batch, batch, start=start)
        assert table["key"].to_pylist() == 2 * wanted[start:]
        assert table["value"].to_pylist() == 2 * values[start:]
        assert table["offset"].to_pylist() == 2 * list(range(start, count))
        read = [
            [(each["key"], each["value"]) for each in row] for row in table["headers"].to_pylist()
        ]
        assert read == 2 * [list(row) for row in headers[start:]]


def test_the_schema() -> None:
    header = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
    assert arrow_of().schema == pa.schema(
        {
            "key": pa.binary(),
            "value": pa.binary(),
            "headers": pa.list_(header),
            "topic": pa.dictionary(pa.int32(), pa.string()),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("ms", "UTC"),
            "timestamp_type": pa.int8(),
        }
    )


def test_a_header_s_name_that_is_not_utf8_is_replaced() -> None:
    table = arrow_of(batch_of(record(b"\0\0\0\1\0\4\2\xff\1\2h\2v")))
    names = [header["key"] for header in table["headers"][0].as_py()]
    assert names == ["\ufffd", "h"]


@pytest.mark.parametrize(
    ("batch", "message"), [it[1:] for it in HOSTILE], ids=[it[0] for it in HOSTILE]
)
def test_hostile_records_leave_nothing(batch: bytes, message: str) -> None:
    columns = RecordColumns()
    good = encode_records([b"value", None, b""], [None, b"k", b""], base_timestamp=1)
    columns.append(good, read_header(good))
    size = columns.nbytes
    with pytest.raises(CorruptBatch, match=message):
        columns.append(batch, read_header(batch))
    assert (columns.rows, columns.nbytes) == (3, size)
    columns.append(good, read_header(good), 1)
    values = to_arrow(columns, "t", 0)["value"].to_pylist()
    assert values == [b"value", None, b"", None, b""]


def test_what_is_shared_never_changes() -> None:
    batch = encode_records([b"value"] * 10, base_timestamp=1)
    columns = RecordColumns()
    columns.append(batch, read_header(batch))
    table = to_arrow(columns, "t", 0)
    with pytest.raises(BufferError):
        columns.append(batch, read_header(batch))
    with pytest.raises(BufferError):
        columns.buffers.extend(batch[61:], read_header(batch), 0)
    del columns
    assert table["value"].to_pylist() == [b"value"] * 10


def test_memory_is_used_again_once_nobody_has_a_part_of_it(twin: ModuleType) -> None:
    first = encode_records([b"first", None], [b"k", b"l"], [[("h", b"v")], []], base_timestamp=1)
    second = encode_records([b"2nd"] * 3, base_timestamp=1)
    columns = RecordColumns()
    columns.append(first, read_header(first))
    table = to_arrow(columns, "t", 0)
    part = table.slice(1)["value"]
    del table
    assert not columns.reuse(), "a part of a column is left"
    assert part.to_pylist() == [None]
    del part
    size = columns.nbytes
    assert columns.reuse()
    assert (columns.rows, columns.nbytes) == (0, size), "the memory is kept"
    columns.append(second, read_header(second))
    again = to_arrow(columns, "t", 0)
    again.validate(full=True)
    assert again["value"].to_pylist() == [b"2nd"] * 3
    assert again["key"].to_pylist() == [None] * 3
    assert again["headers"].to_pylist() == [[]] * 3


def test_threads_that_share_columns_by_mistake_do_no_harm(twin: ModuleType) -> None:
    if twin.__name__.endswith("pure"):
        pytest.skip("plain Python keeps memory whole by itself")
    batch = encode_records([b"value" * 10] * 2000, base_timestamp=1)
    header, columns = read_header(batch), RecordColumns()

    def append() -> int:
        rows = 0
        for _ in range(50):
            with contextlib.suppress(BufferError):
                rows += columns.append(batch, header)
        return rows

    def look() -> int:
        for _ in range(500):
            with contextlib.suppress(BufferError):
                bytes(columns.buffers.offset)[-8:]
        return 0

    with ThreadPoolExecutor(3) as pool:
        taken = sum(job.result() for job in [pool.submit(it) for it in (append, append, look)])
    assert columns.rows == taken
    table = to_arrow(columns, "t", 0)
    table.validate(full=True)
    assert set(table["value"].to_pylist()) == {b"value" * 10}


def test_pyarrow_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'qbus\[arrow\]'"):
        to_arrow(RecordColumns(), "t", 0)
