"""The columns of an archive's files, and their directories: ``topic=T/date=D/hour=H/``."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

from ...spark.schema import source_schema
from .snapshot import Coverage

DIRECTORIES = ("topic", "date", "hour")
ORDER = ("partition", "offset")


def data_schema(*, headers: bool = True) -> StructType:
    """The columns of the files; an archive may lack headers."""
    fields = source_schema(include_headers=headers).fields
    return StructType([field for field in fields if field.name != "topic"])


def archive_schema() -> StructType:
    """The columns of an archive, with those of its directories."""
    directories = [StructField(name, StringType()) for name in DIRECTORIES]
    return StructType([*data_schema().fields, *directories])


def laid_out(records: DataFrame, time_zone: str) -> DataFrame:
    """Records with the date and hour of their timestamp in a time zone, sorted.

    The session's time zone must be UTC.
    """
    local = sql.from_utc_timestamp("timestamp", time_zone)
    return records.select(
        "*",
        sql.date_format(local, "yyyy-MM-dd").alias("date"),
        sql.date_format(local, "HH").alias("hour"),
    ).sortWithinPartitions(*DIRECTORIES, *ORDER)


def without(records: DataFrame, covered: Coverage) -> DataFrame:
    """Records whose offsets are not covered."""
    rows = [
        (topic, partition, begin, end)
        for (topic, partition), intervals in covered.items()
        for begin, end in intervals
    ]
    schema = "topic string, partition int, begin_offset bigint, end_offset bigint"
    known = sql.broadcast(records.sparkSession.createDataFrame(rows, schema))
    return records.join(
        known,
        (records["topic"] == known["topic"])
        & (records["partition"] == known["partition"])
        & (records["offset"] >= known["begin_offset"])
        & (records["offset"] < known["end_offset"]),
        "left_anti",
    )


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """The records of an archive, as of its last commit."""
    return spark.read.schema(archive_schema()).parquet(path)
