"""Compares two sides: summaries by interval, then records in intervals that differ."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

KEYS = ("topic", "partition", "start")
SIDES = ("left", "right")
_SUMS = ("count", "first", "last", "checksum")


def fingerprinted(records: DataFrame, *, interval: int, content: bool) -> DataFrame:
    """The place of each record, the start of its interval, and a hash of its content.

    The start is in microseconds since 1970, because Spark's timestamps in Python depend on the
    machine's time zone and end with the year 9999.

    interval: in milliseconds. content: whether the hash has the whole record, or its offset alone.
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
    """The count, the first and last offset, and the checksum of each interval."""
    wide = sql.col("fingerprint").cast("decimal(38,0)")
    return records.groupBy(*KEYS).agg(
        sql.count(sql.lit(1)).alias("count"),
        sql.min("offset").alias("first"),
        sql.max("offset").alias("last"),
        sql.sum(wide).alias("checksum"),
    )


def compared(left: DataFrame, right: DataFrame) -> DataFrame:
    """The summaries of two sides side by side, and whether they are equal."""
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
    # Hashes ignore nulls: the flags distinguish a null key or value from an empty one.
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


PLACE = ("topic", "partition", "offset")
MISSING, EXTRA, CHANGED, DUPLICATE = "missing", "extra", "changed", "duplicate"


def differing(left: DataFrame, right: DataFrame, intervals: DataFrame) -> DataFrame:
    """A row for each offset that differs, and the kind of difference in ``what``.

    missing: only left. extra: only right. duplicate: more often right. changed: another record.

    left, right: fingerprinted records. intervals: the keys of the intervals to compare.
    """
    sides = []
    for side, records in zip(SIDES, (left, right), strict=True):
        records = records.join(sql.broadcast(intervals.select(*KEYS)), list(KEYS), "left_semi")
        sides.append(
            records.groupBy(*PLACE).agg(
                sql.count(sql.lit(1)).alias(f"{side}_times"),
                sql.min("start").alias(f"{side}_start"),
                sql.sort_array(sql.collect_set("fingerprint")).alias(f"{side}_fingerprints"),
            )
        )
    both = sides[0].join(sides[1], list(PLACE), "full_outer")
    what = (
        sql.when(sql.col("right_times").isNull(), MISSING)
        .when(sql.col("left_times").isNull(), EXTRA)
        .when(sql.col("right_times") > sql.col("left_times"), DUPLICATE)
        .when(sql.col("left_fingerprints") != sql.col("right_fingerprints"), CHANGED)
    )
    start = sql.coalesce("left_start", "right_start").alias("start")
    more = (sql.col("right_times") - sql.coalesce("left_times", sql.lit(0))).alias("more")
    return both.select(*PLACE, start, what.alias("what"), more).where("what IS NOT NULL")


def ranges(offsets: DataFrame, *kinds: str) -> DataFrame:
    """Consecutive offsets as one row, from ``begin`` to ``end``, both included.

    offsets: with PLACE and the columns ``kinds``; a range has equal ``kinds``.
    """
    order = Window.partitionBy("topic", "partition", *kinds).orderBy("offset")
    island = sql.col("offset") - sql.row_number().over(order)
    return (
        offsets.withColumn("island", island)
        .groupBy("topic", "partition", *kinds, "island")
        .agg(sql.min("offset").alias("begin"), sql.max("offset").alias("end"))
        .drop("island")
    )


def gaps(records: DataFrame) -> DataFrame:
    """Gaps between the offsets of each partition, with the interval of the record before."""
    order = Window.partitionBy("topic", "partition").orderBy("offset")
    following = records.select("topic", "partition", "start", "offset").withColumn(
        "next", sql.lead("offset").over(order)
    )
    return following.where("next > offset + 1").select(
        *KEYS, (sql.col("offset") + 1).alias("begin"), (sql.col("next") - 1).alias("end")
    )
