"""The metrics of internal logs, by topic."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..metrics import Metrics
from .internal_log import InternalLog

Samples = Callable[[], Iterable[tuple[Sequence[str], float]]]
Read = Callable[[InternalLog[Any]], float]


def register_metrics(metrics: Metrics, logs: Sequence[InternalLog[Any]]) -> None:
    """Show the numbers of internal logs."""

    def samples(read: Read) -> Samples:
        return lambda: [((log.name,), read(log)) for log in logs]

    gauge, counter = metrics.gauges_by, metrics.counters_by
    gauge(
        ["topic"],
        "internal_log_shards",
        "Partitions of an internal topic that this broker leads and has loaded.",
        samples(lambda log: sum(1 for _ in log.shards())),
    )
    gauge(
        ["topic"],
        "internal_log_loading",
        "Partitions of an internal topic that this broker leads and is loading.",
        samples(lambda log: log.loading),
    )
    counter(
        ["topic"],
        "internal_log_loads",
        "How often a partition of an internal topic was loaded.",
        samples(lambda log: log.counts.loads),
    )
    counter(
        ["topic"],
        "internal_log_load_failures",
        "Failed attempts to load a partition of an internal topic.",
        samples(lambda log: log.counts.load_failures),
    )
    counter(
        ["topic"],
        "internal_log_load_seconds",
        "Time that loading partitions of an internal topic took, in seconds.",
        samples(lambda log: log.counts.load_s),
    )
    counter(
        ["topic"],
        "internal_log_records_replayed",
        "Records of an internal topic that were read to load its partitions.",
        samples(lambda log: log.counts.replayed),
    )
    counter(
        ["topic"],
        "internal_log_records_written",
        "Records that coordinators on this broker wrote to an internal topic.",
        samples(lambda log: log.counts.written),
    )
    counter(
        ["topic"],
        "internal_log_writes",
        "Writes of coordinators on this broker to an internal topic; each has many records.",
        samples(lambda log: log.counts.writes),
    )
