"""Batches to columns, and those to Arrow, by both twins."""

import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.records import (
    CorruptBatch,
    RecordColumns,
    decode_records,
    encode_records,
    read_header,
    set_base_offset,
    to_arrow,
)
from qbus.records.extras import MissingExtra

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
    assert columns.reuse()
    assert (columns.rows, columns.nbytes) == (0, RecordColumns().nbytes)
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
    with pytest.raises(MissingExtra, match=r"pip install qbus\[arrow\]"):
        to_arrow(RecordColumns(), "t", 0)
