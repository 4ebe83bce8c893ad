"""Lines that are JSON objects."""

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType, StringType, StructField, StructType

from qbus.errors import ConfigError

from ..failures import reason

_BROKEN = "_broken"

_EPOCH_UNITS = {"seconds": 1, "milliseconds": 1000}


def fields(line: Column, types: Mapping[str, str]) -> tuple[dict[str, Column], Column]:
    """The fields of a line, and whether it is an object whose fields have these types.

    types: Spark's name of the type of each field. A missing field is null.

    Raises :class:`~qbus.errors.ConfigError` for an invalid type.
    """
    schema = StructType([_field(name, kind) for name, kind in types.items()])
    schema = schema.add(_BROKEN, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN, "timeZone": "UTC"}
    read = sql.from_json(line, schema, options)
    is_whole = read.isNotNull() & read[_BROKEN].isNull()
    return {name: read[name] for name in types}, is_whole


def moment(value: Column, form: str) -> Column:
    """The time of the event, or null for an invalid time.

    form: ``iso``, ``seconds`` or ``milliseconds`` since the epoch, or a pattern of Spark's.
    """
    if form in _EPOCH_UNITS:
        number = value.try_cast("double") / _EPOCH_UNITS[form]
        return number.try_cast("timestamp")
    if form == "iso":
        return value.try_cast("timestamp")
    return sql.try_to_timestamp(value.cast("string"), sql.lit(form))


def _field(name: str, kind: str) -> StructField:
    try:
        return StructField(name, DataType.fromDDL(kind))
    except PySparkException as error:
        raise ConfigError(
            f"lines.fields.{name} = {kind!r}: expected a type of Spark: {reason(error)}"
        ) from error
