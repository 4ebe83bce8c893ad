"""From records to lines with fields, as configured."""

from collections.abc import Iterable

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import NumericType

from qbus.errors import ConfigError

from ..config import Lines
from ..config.checks import EVENT_TIME, RECORD_FIELDS
from ..config.common import ACCESS_LOG, ISO
from ..failures import reason
from . import access_log, json_lines

MALFORMED = "malformed"
"""The column and the metric of lines that could not be parsed."""


def parsed(records: DataFrame, lines: Lines) -> DataFrame:
    """The fields of each record's value, ``RECORD_FIELDS``, ``EVENT_TIME`` and ``MALFORMED``.

    records: with the columns ``value``, ``timestamp``, ``topic``, ``partition``.
    """
    text = sql.make_valid_utf8(sql.rtrim(sql.col("value").cast("string"), sql.lit("\r\n")))
    if lines.format == ACCESS_LOG:
        found, is_whole = access_log.fields(text)
        happened = found.pop("time")
    else:
        found, is_whole = json_lines.fields(text, dict(lines.fields))
        happened = sql.col("timestamp")
        if lines.time:
            name, *within = lines.time.split(".")
            column = found.get(name, sql.col(name))
            for part in within:
                column = column[part]
            if lines.time_format == ISO:
                _check_time(records.select(column.alias(lines.time)))
            happened = json_lines.moment(column, lines.time_format)
    return records.select(
        *(column.alias(name) for name, column in found.items()),
        *RECORD_FIELDS,
        happened.alias(EVENT_TIME),
        (~is_whole | happened.isNull() | _is_ahead(happened, lines.ahead)).alias(MALFORMED),
    )


def well_formed(lines: DataFrame) -> DataFrame:
    """The lines that could be parsed."""
    return lines.where(~sql.col(MALFORMED)).drop(MALFORMED)


def only(lines: DataFrame, where: str = "", *more: Column) -> DataFrame:
    """Lines for which an SQL expression and more conditions hold.

    The other lines advance the watermark as well; otherwise windows with rare events would close
    only with the next event. Raises :class:`~qbus.errors.ConfigError` for an invalid expression.
    """
    try:
        lines = _behind_the_watermark(lines, sql.expr(where)) if where else lines
    except PySparkException as error:
        raise ConfigError(f"where = {where!r}: {reason(error)}") from error
    for condition in more:
        lines = _behind_the_watermark(lines, condition)
    return lines


def _behind_the_watermark(lines: DataFrame, condition: Column) -> DataFrame:
    # Spark evaluates conditions before the watermark, unless they depend on the event time.
    return lines.where(sql.when(sql.col(EVENT_TIME).isNotNull(), condition))


def _is_ahead(happened: Column, milliseconds: int) -> Column:
    """Whether a line's time is too far ahead of its record's timestamp, if there is one."""
    if not milliseconds:
        return sql.lit(False)
    written = sql.col("timestamp")
    by = sql.unix_millis(happened) - sql.unix_millis(written)
    return sql.coalesce((sql.unix_millis(written) >= 0) & (by > milliseconds), sql.lit(False))


def _check_time(of: DataFrame) -> None:
    (field,) = of.schema.fields
    if isinstance(field.dataType, NumericType):
        raise ConfigError(
            f"lines.time_format = {ISO!r}: {field.name} is a {field.dataType.simpleString()}:"
            " expected seconds or milliseconds"
        )


def check_numbers(lines: DataFrame, place: str, fields: Iterable[str]) -> None:
    """Raise :class:`~qbus.errors.ConfigError` for a field of another type.

    place: the name of the setting, for errors.
    """
    for field in fields:
        (found,) = lines.select(field).schema.fields
        if not isinstance(found.dataType, NumericType):
            raise ConfigError(
                f"{place} = {field!r}: expected a field of numbers, its type is"
                f" {found.dataType.simpleString()}"
            )
