"""The columns of records on Spark: names and types are those of Spark's Kafka connector."""

from collections.abc import Iterable, Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from qbus.errors import ConfigError

HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

_COLUMNS: Mapping[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}


class SchemaError(ConfigError):
    """A column is missing, unknown or of the wrong type; the message names it."""


def source_schema(*, include_headers: bool) -> StructType:
    """The columns of a query that does not choose its own."""
    names = [name for name in _COLUMNS if include_headers or name != "headers"]
    return StructType([StructField(name, _COLUMNS[name]) for name in names])


def check_source_schema(schema: StructType) -> None:
    """Raise :class:`SchemaError` unless the columns are some of the source's, in any order."""
    check_columns(schema, {name: (kind,) for name, kind in _COLUMNS.items()})
    if not schema.fields:
        raise SchemaError(f"the schema has no columns: choose some of {', '.join(_COLUMNS)}")
    for field in schema.fields:
        if field.name in {"key", "value"} and not field.nullable:
            raise SchemaError(f"column {field.name} is NOT NULL, but records may have none")


def check_columns(
    schema: StructType, allowed: Mapping[str, Iterable[DataType]], required: Iterable[str] = ()
) -> None:
    """Raise :class:`SchemaError` for columns that are unknown, of a wrong type, or missing.

    Nullability is ignored.
    """
    for field in schema.fields:
        if field.name not in allowed:
            raise SchemaError(f"there is no column {field.name}: {_listed(allowed)}")
        kinds = tuple(allowed[field.name])
        if not any(_is_same(field.dataType, kind) for kind in kinds):
            wanted = " or ".join(kind.simpleString() for kind in kinds)
            found = field.dataType.simpleString()
            raise SchemaError(f"column {field.name} is {found} and must be {wanted}: cast it")
    names = [field.name for field in schema.fields]
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"there is more than one column {name}")
    for name in required:
        if name not in names:
            raise SchemaError(f"column {name} is missing: {_listed(allowed)}")


def _listed(allowed: Iterable[str]) -> str:
    return f"the columns are {', '.join(allowed)}"


def _is_same(left: DataType, right: DataType) -> bool:
    return left.simpleString() == right.simpleString()


_ALLOWED: dict[str, tuple[DataType, ...]] = {
    "value": (BinaryType(), StringType()),
    "key": (BinaryType(), StringType()),
    "headers": (HEADERS_TYPE,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
    "deliver_at": (TimestampType(),),
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
