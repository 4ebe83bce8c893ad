"""The columns that make records: those of Spark's Kafka sink, and the timestamp."""

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from ..schema import HEADERS_TYPE, SchemaError, check_columns

_ALLOWED: dict[str, tuple[DataType, ...]] = {
    "value": (BinaryType(), StringType()),
    "key": (BinaryType(), StringType()),
    "headers": (HEADERS_TYPE,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
    "offset": (LongType(),),
    "timestampType": (IntegerType(),),
}
"""The last two mean nothing here, and let what was read be written as it is."""


def check_sink_schema(schema: StructType, topic: str | None) -> None:
    """Raise SchemaError unless the columns make records; ``topic``: where all of them go, if so."""
    check_columns(schema, _ALLOWED, required=["value"])
    if topic is None and "topic" not in schema.names:
        raise SchemaError(
            "nothing says which topic to write to: set the option topic, or add a column topic"
        )
