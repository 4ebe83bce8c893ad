"""The audit as a pipeline: reads two sides, compares them, and reports."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from ...types import TopicPartition
from ..config import AuditConfig
from ..config.checks import originals
from ..run import PipelineRun
from .comparison import KEYS, compared, differing, fingerprinted, gaps, ranges, summarized
from .report import SKIPPED, Report, interval_rows
from .sides import (
    AuditedCluster,
    Extents,
    aligned,
    in_time,
    of_archive,
    of_cluster,
    renamed,
    within,
)


class _Sides(NamedTuple):
    left: DataFrame
    right: DataFrame
    extents: Extents
    """The offsets of the left side that are compared."""
    copy: str
    skipped: Mapping[TopicPartition, tuple[int, int]]
    """The numbers of offsets on both sides before those that are compared."""


def run_audit(spark: SparkSession, config: AuditConfig, run: PipelineRun) -> Report:
    """Compare; raises Spark's errors, :class:`~.extent.NothingToAudit`, and
    :class:`~..archive.log.ArchiveError` for an archive that cannot be read.
    """
    sides = _sides(spark, config)
    offsets = sum(end - begin for begin, end in sides.extents.values())
    run.watcher.note(
        f"Comparing {offsets:,} offsets in {len(sides.extents):,} partitions with {sides.copy} ..."
    )
    return _report(spark, config, sides)


def _sides(spark: SparkSession, config: AuditConfig) -> _Sides:
    original = AuditedCluster(config.bootstrap, config.security)
    topics = original.topics(config.source)
    options = dict(config.source.options)
    # The copy first: records that arrive in between are in the original already.
    if config.copy.archive:
        copy = of_archive(spark, config.copy.archive, original.topic_ids(topics))
        extents = original.extents(topics)
        left = of_cluster(spark, original, extents, options)
        return _Sides(left, within(copy, extents), extents, config.copy.archive, {})
    names = dict(config.copy.topics)
    back = originals(topics, config)
    there = AuditedCluster(config.copy.bootstrap, config.copy.security)
    right_extents = {
        TopicPartition(back[partition.topic], partition.partition): extent
        for partition, extent in there.extents(back).items()
    }
    left_extents = original.extents(topics)
    compared_extents, copied = aligned(left_extents, right_extents)
    as_there = {
        TopicPartition(names.get(partition.topic, partition.topic), partition.partition): extent
        for partition, extent in copied.items()
    }
    right = renamed(of_cluster(spark, there, as_there, dict(config.copy.options)), config)
    left = of_cluster(spark, original, compared_extents, options)
    skipped = {
        partition: (
            _before(partition, left_extents, compared_extents),
            _before(partition, right_extents, copied),
        )
        for partition in compared_extents
    }
    return _Sides(left, right, compared_extents, config.copy.bootstrap, skipped)


def _before(partition: TopicPartition, there: Extents, compared: Extents) -> int:
    return compared[partition][0] - there[partition][0] if partition in there else 0


def _report(spark: SparkSession, config: AuditConfig, sides: _Sides) -> Report:
    until = _until(config)
    whole = [
        fingerprinted(records, interval=config.interval, content=config.content)
        for records in (sides.left, sides.right)
    ]
    left, right = (
        fingerprinted(
            in_time(records, config.since, until), interval=config.interval, content=config.content
        )
        for records in (sides.left, sides.right)
    )
    sums = [row.asDict() for row in compared(summarized(left), summarized(right)).collect()]
    counts, listed = [], []
    if unequal := [tuple(row[key] for key in KEYS) for row in sums if not row["equal"]]:
        intervals = spark.createDataFrame(unequal, "topic string, partition int, start bigint")
        found = differing(left, right, intervals).cache()
        counted = found.groupBy(*KEYS, "what").agg(
            sql.sum(sql.when(found["what"] == "duplicate", found["more"]).otherwise(1)).alias(
                "records"
            )
        )
        counts = [row.asDict() for row in counted.collect()]
        order = ("topic", "partition", "begin")
        some = ranges(found, "what").orderBy(*order).limit(config.differences)
        listed = [row.asDict() for row in some.collect()]
        found.unpersist()
    absent = {
        side: [row.asDict() for row in gaps(records).collect()] if _has_gaps(sums, side) else []
        for side, records in zip(("left", "right"), whole, strict=True)
    }
    return Report(
        left=config.bootstrap,
        right=sides.copy,
        partitions=[
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "begin": begin,
                "end": end,
                **dict(zip(SKIPPED, sides.skipped.get(partition, (0, 0)), strict=True)),
            }
            for partition, (begin, end) in sorted(sides.extents.items())
        ],
        intervals=interval_rows(sums, counts, absent),
        differences=listed,
    )


def _has_gaps(sums: list[dict[str, object]], side: str) -> bool:
    """Whether a partition may have gaps: its records and its offsets differ in number."""
    spans: dict[tuple[object, object], list[tuple[int, int, int]]] = {}
    for row in sums:
        count, first, last = (row[f"{side}_{name}"] for name in ("count", "first", "last"))
        if isinstance(count, int) and isinstance(first, int) and isinstance(last, int):
            key = (row["topic"], row["partition"])
            spans.setdefault(key, []).append((count, first, last))
    return any(
        sum(count for count, _, _ in parts)
        != max(last for _, _, last in parts) - min(first for _, first, _ in parts) + 1
        for parts in spans.values()
    )


def _until(config: AuditConfig) -> datetime | None:
    if not config.settle:
        return config.until
    settled = datetime.now(UTC) - timedelta(milliseconds=config.settle)
    return min(settled, config.until) if config.until else settled
