"""The metrics of compaction."""

from collections.abc import Iterable, Sequence

from ..metrics import Metrics
from .cleaner import LogCleaner


def register_metrics(metrics: Metrics, cleaner: LogCleaner) -> None:
    """Register what there is to know of the compaction of this broker's logs."""
    statistics = cleaner.statistics

    def dirty_ratios() -> Iterable[tuple[Sequence[str], float]]:
        return [((key.topic, str(key.partition)), one.ratio) for key, one in cleaner.dirt()]

    def dirty_bytes() -> Iterable[tuple[Sequence[str], float]]:
        return [((key.topic, str(key.partition)), one.dirty_bytes) for key, one in cleaner.dirt()]

    partition = ("topic", "partition")
    metrics.gauges_by(
        partition,
        "compaction_dirty_ratio",
        "Share of a compacted log that is not compacted yet, and may be.",
        dirty_ratios,
    )
    metrics.gauges_by(
        partition,
        "compaction_dirty_bytes",
        "Size of the part of a compacted log that is not compacted yet, and may be, in bytes.",
        dirty_bytes,
    )
    metrics.gauge(
        "compaction_uncleanable_partitions",
        "Number of partitions that are not compacted because they are damaged.",
        lambda: len(cleaner.troubles()),
    )
    counter = metrics.counter
    counter("compactions", "Number of completed compactions.", lambda: statistics.compactions)
    counter(
        "compaction_failures",
        "Number of compactions that failed: the log is damaged, or the disk full.",
        lambda: statistics.failures,
    )
    counter(
        "compaction_seconds",
        "Duration of all completed compactions, in seconds.",
        lambda: statistics.seconds,
    )
    counter(
        "compaction_read_bytes",
        "Size of the segments that compaction replaced, in bytes.",
        lambda: statistics.bytes_read,
    )
    counter(
        "compaction_written_bytes",
        "Size of the segments that compaction wrote, in bytes.",
        lambda: statistics.bytes_written,
    )
    counter(
        "compaction_removed_records",
        "Number of records that compaction removed.",
        lambda: statistics.records_removed,
    )
