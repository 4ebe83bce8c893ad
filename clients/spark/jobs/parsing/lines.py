"""From records to lines with fields, by what the configuration says of them."""

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from qbus.errors import ConfigError

from ..config import Lines
from ..config.checks import EVENT_TIME, RECORD_FIELDS
from ..config.common import ACCESS_LOG
from ..failures import reason
from . import access_log, json_lines

MALFORMED = "malformed"
"""The name of the column, and of the metric, that tells of lines which could not be read."""


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
            happened = json_lines.moment(column, lines.time_format)
    return records.select(
        *(column.alias(name) for name, column in found.items()),
        *RECORD_FIELDS,
        happened.alias(EVENT_TIME),
        (~is_whole | happened.isNull()).alias(MALFORMED),
    )


def well_formed(lines: DataFrame, where: str = "") -> DataFrame:
    """Those lines that could be read, and of those what the SQL expression ``where`` holds for.

    Raises :class:`~qbus.errors.ConfigError` for an expression that is none.
    """
    whole = lines.where(~sql.col(MALFORMED)).drop(MALFORMED)
    try:
        return whole.where(sql.expr(where)) if where else whole
    except PySparkException as error:
        raise ConfigError(f"where = {where!r}: {reason(error)}") from error
