"""Sums of records by topic, partition and interval: the same for the same records, in any order."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

KEYS = ("topic", "partition", "start")
SIDES = ("left", "right")
_SUMS = ("count", "first", "last", "checksum")


def fingerprinted(records: DataFrame, *, interval: int, content: bool) -> DataFrame:
    """Each record's place, the start of its interval, and a hash of what counts of it.

    The start is in microseconds since 1970: in Python, Spark's timestamps depend on the machine's
    time zone, and years end with 9999.

    interval: in milliseconds. content: whether all of a record counts, or its offset alone.
    """
    micros = sql.coalesce(sql.unix_micros("timestamp"), sql.lit(0))
    return records.select(
        "topic",
        "partition",
        "offset",
        (micros - sql.pmod(micros, sql.lit(interval * 1000))).alias("start"),
        _fingerprint(content=content).alias("fingerprint"),
    )


def summarized(records: DataFrame) -> DataFrame:
    """How many fingerprints there are of each interval, from which to which offset, their sum."""
    wide = sql.col("fingerprint").cast("decimal(38,0)")
    return records.groupBy(*KEYS).agg(
        sql.count(sql.lit(1)).alias("count"),
        sql.min("offset").alias("first"),
        sql.max("offset").alias("last"),
        sql.sum(wide).alias("checksum"),
    )


def compared(left: DataFrame, right: DataFrame) -> DataFrame:
    """The summaries of two sides beside each other, and whether they are equal."""
    sides = [
        rows.select(*KEYS, *(sql.col(name).alias(f"{side}_{name}") for name in _SUMS))
        for side, rows in zip(SIDES, (left, right), strict=True)
    ]
    both = sides[0].join(sides[1], list(KEYS), "full_outer")
    same = sql.lit(True)
    for name in _SUMS:
        same &= sql.col(f"left_{name}").eqNullSafe(sql.col(f"right_{name}"))
    return both.withColumn("equal", same)


def _fingerprint(*, content: bool) -> Column:
    if not content:
        return sql.xxhash64("topic", "partition", "offset")
    headers = sql.transform(
        sql.coalesce("headers", sql.array()),
        lambda header: sql.struct(
            header["key"], header["value"].isNull(), sql.coalesce(header["value"], sql.lit(b""))
        ),
    )
    # Hashes pass over nulls: without these flags, no key and no value would be as an empty one.
    return sql.xxhash64(
        "topic",
        "partition",
        "offset",
        "timestamp",
        sql.col("key").isNull(),
        "key",
        sql.col("value").isNull(),
        "value",
        headers,
    )
