"""Batches for Spark: its columns in its types and order, as PySpark itself would build them."""

import datetime as dt
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StructType, TimestampType

from qbus.clients.spark.schema import source_schema
from qbus.clients.spark.source.arrow import RowsForSpark, before
from qbus.records import RecordColumns, build_batch, read_header, to_arrow

ALL = source_schema(include_headers=True)
RECORDS = [
    (b"key", b"value", [("name", b"1"), ("name", None)], 1_700_000_000_123),
    (None, None, (), -1),
]


def decoded(records: Any = RECORDS) -> Any:
    """Records as the SDK makes an Arrow batch of them."""
    columns = RecordColumns()
    batch = bytes(build_batch(records))
    columns.append(batch, read_header(batch))
    return to_arrow(columns, "t", 3)


def test_every_column_is_as_spark_wants_it() -> None:
    batch = RowsForSpark(ALL).convert(decoded(), "t", 3)
    batch.validate(full=True)
    assert batch.schema.equals(to_arrow_schema(ALL, timezone="UTC"))
    first, second = batch.to_pylist()
    when = dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, dt.UTC)
    assert first == {
        "key": b"key",
        "value": b"value",
        "topic": "t",
        "partition": 3,
        "offset": 0,
        "timestamp": when,
        "timestampType": 0,
        "headers": [{"key": "name", "value": b"1"}, {"key": "name", "value": None}],
    }
    assert [second["key"], second["value"], second["headers"]] == [None, None, []]


def test_only_chosen_columns_are_read_in_their_order() -> None:
    schema = StructType().add("offset", LongType(), False).add("value", BinaryType())
    batch = RowsForSpark(schema).convert(decoded(), "t", 3)
    assert batch.to_pydict() == {"offset": [0, 1], "value": [b"value", None]}
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))


def test_times_that_microseconds_cannot_tell_are_cut() -> None:
    largest, smallest = (1 << 63) - 1, -(1 << 63)
    times = pa.array([largest, 5, smallest], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    source = pa.RecordBatch.from_arrays([times], ["timestamp"])
    batch = RowsForSpark(StructType().add("timestamp", TimestampType())).convert(source, "t", 3)
    found = batch.column(0).cast(pa.int64()).to_pylist()
    assert found == [largest // 1000 * 1000, 5000, -(largest // 1000) * 1000]


@pytest.mark.parametrize(("end", "rows"), [(0, 0), (1, 1), (5, 5), (9, 9), (10, 10), (99, 10)])
def test_rows_behind_the_end_are_cut_off(end: int, rows: int) -> None:
    batch = decoded([(None, b"", (), 0)] * 10)
    assert before(batch, end).column("offset").to_pylist() == list(range(rows))


def test_a_slice_is_cut_too() -> None:
    batch = decoded([(None, b"", (), 0)] * 10).slice(4, 5)
    assert before(batch, 7).column("offset").to_pylist() == [4, 5, 6]
    assert before(batch.slice(0, 0), 7).num_rows == 0
