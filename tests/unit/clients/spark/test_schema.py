"""Columns: some of those that there are, of the types that they have."""

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from qbus.clients.spark.schema import (
    HEADERS_TYPE,
    SchemaError,
    check_columns,
    check_source_schema,
    source_schema,
)


def test_the_columns_are_those_of_spark_s_kafka_connector() -> None:
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert source_schema(include_headers=False).names == names
    assert source_schema(include_headers=True).names == [*names, "headers"]


def test_some_columns_in_any_order_will_do() -> None:
    check_source_schema(StructType().add("offset", LongType(), False).add("value", BinaryType()))
    check_source_schema(StructType().add("headers", HEADERS_TYPE))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (StructType(), "no columns"),
        (StructType().add("Value", BinaryType()), "no column Value: the columns are key, value"),
        (StructType().add("value", StringType()), "value is string and must be binary: cast it"),
        (StructType().add("value", BinaryType(), False), "value is NOT NULL"),
        (StructType().add("headers", MapType(StringType(), BinaryType())), "must be array<struct"),
        (StructType([StructField("offset", LongType())] * 2), "more than one column offset"),
    ],
)
def test_other_columns_are_refused(schema: StructType, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check_source_schema(schema)


def test_a_column_may_be_required() -> None:
    allowed = {"value": (BinaryType(), StringType())}
    check_columns(StructType().add("value", StringType()), allowed, ["value"])
    with pytest.raises(SchemaError, match="column value is missing"):
        check_columns(StructType(), allowed, ["value"])
