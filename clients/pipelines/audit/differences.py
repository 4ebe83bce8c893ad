"""Which records differ, in intervals whose sums do."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from .summaries import KEYS, SIDES

PLACE = ("topic", "partition", "offset")
MISSING, EXTRA, CHANGED, DUPLICATE = "missing", "extra", "changed", "duplicate"


def differing(left: DataFrame, right: DataFrame, intervals: DataFrame) -> DataFrame:
    """A row for each offset that is not the same on both sides, and ``what`` it is.

    missing: only left. extra: only right. duplicate: right more than once. changed: another record.

    left, right: fingerprinted records. intervals: the keys of those to look at.
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
    """Offsets that follow one on the other as one row, from ``begin`` to ``end``, both included.

    offsets: with PLACE and the columns ``kinds``; only what has the same kinds goes together.
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
    """The offsets that no record has, between those of each partition, by the start before it."""
    order = Window.partitionBy("topic", "partition").orderBy("offset")
    following = records.select("topic", "partition", "start", "offset").withColumn(
        "next", sql.lead("offset").over(order)
    )
    return following.where("next > offset + 1").select(
        *KEYS, (sql.col("offset") + 1).alias("begin"), (sql.col("next") - 1).alias("end")
    )
