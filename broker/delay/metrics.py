"""The metrics of delayed records."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from qbus.clock import Clock

from ..metrics import Metrics
from .delayed_partition import Lateness
from .fold import DelayFold
from .service import DelayService

_AHEAD_S: Final = (60, 600, 3_600, 86_400, 604_800, 2_592_000, 31_536_000)

Samples = Iterable[tuple[Sequence[str], float]]


def register_metrics(metrics: Metrics, delays: DelayService, clock: Clock) -> None:
    """Add the metrics of the partitions that this broker leads."""

    def of_each(read: Callable[[DelayFold], float]) -> Callable[[], Samples]:
        def samples() -> Samples:
            for one in delays:
                fold, partition = one.fold, one.partition
                log = partition.log
                if fold.pending or log.has_hidden or log.config.qbus_delay_enable:
                    yield (partition.topic, str(partition.index)), read(fold)

        return samples

    def late() -> Samples:
        total = 0
        names = [str(bound / 1000) for bound in Lateness.BOUNDS_MS]
        for name, count in zip([*names, "+Inf"], delays.lateness.counts, strict=True):
            total += count
            yield (name,), total

    partition = ("topic", "partition")
    gauges, counters = metrics.gauges_by, metrics.counters_by
    gauges(partition, "delayed_records", "Delayed records held back.", of_each(_pending))
    counters(
        partition, "delayed_records_delivered", "Delayed records delivered.", of_each(_delivered)
    )
    counters(
        partition, "delayed_records_cancelled", "Delayed records cancelled.", of_each(_cancelled)
    )
    counters(
        partition,
        "delayed_records_expired",
        "Delayed records given up, as they were due longer ago than their qbus-ttl: dropped, or"
        " moved to the dead letter topic.",
        of_each(_expired),
    )
    counters(
        partition,
        "delayed_records_carried",
        "Delayed records appended again because retention took where they were.",
        of_each(_carried),
    )
    gauges(
        ["within_seconds"],
        "delayed_records_ahead",
        "Delayed records that are due within so many seconds, at most.",
        lambda: _ahead(delays, clock),
    )
    counters(
        ["le"],
        "delayed_records_late",
        "Delayed records delivered at most so many seconds after they were due.",
        late,
    )


def _ahead(delays: DelayService, clock: Clock) -> Samples:
    now_ms = clock.time_ms()
    bounds = [now_ms + seconds * 1000 for seconds in _AHEAD_S]
    totals = [0] * len(bounds)
    for one in delays:
        if not one.is_inert:
            counts = one.fold.schedule.ahead(bounds)
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
    for seconds, total in zip(_AHEAD_S, totals, strict=True):
        yield (str(seconds),), total


def _pending(fold: DelayFold) -> float:
    return fold.pending


def _delivered(fold: DelayFold) -> float:
    return fold.delivered_count


def _cancelled(fold: DelayFold) -> float:
    return fold.cancelled


def _expired(fold: DelayFold) -> float:
    return fold.expired


def _carried(fold: DelayFold) -> float:
    return fold.carried_count
