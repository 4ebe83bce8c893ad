"""The metrics of a broker's replica fetchers."""

from collections.abc import Callable, Iterable

from ..metrics import Metrics
from .partition_fetch_state import PartitionFetchState


class FetchMetrics:
    """Sums since the start, over all leaders."""

    __slots__ = ("bytes", "corrupt", "failures", "repairs", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0
        self.failures = 0
        self.corrupt = 0
        self.repairs = 0

    def register(
        self, metrics: Metrics, partitions: Callable[[], Iterable[PartitionFetchState]]
    ) -> None:
        """Register all of them; ``partitions`` returns those that are fetched now."""
        metrics.gauge(
            "followed_partitions",
            "Number of partitions that this broker follows",
            lambda: sum(1 for _ in partitions()),
        )
        metrics.gauge(
            "replica_lag_max",
            "Largest lag of a partition that this broker follows, in records",
            lambda: max((state.lag for state in partitions()), default=0),
        )
        metrics.gauge(
            "replica_lag",
            "Sum of the lags of the partitions that this broker follows, in records",
            lambda: sum(state.lag for state in partitions()),
        )
        metrics.gauge(
            "failed_replicas",
            "Number of partitions that this broker follows and whose last fetch failed",
            lambda: sum(state.is_failing for state in partitions()),
        )
        metrics.counter("replica_fetches", "Fetch requests sent to leaders", lambda: self.requests)
        metrics.counter(
            "replica_fetched_bytes", "Bytes of batches copied from leaders", lambda: self.bytes
        )
        metrics.counter(
            "replica_fetch_failures",
            "Failures to copy a partition from its leader; each is retried after a pause",
            lambda: self.failures,
        )
        metrics.counter(
            "replica_corrupt_batches",
            "Corrupt batches that leaders sent or reported",
            lambda: self.corrupt,
        )
        metrics.counter(
            "repairs",
            "Corrupt ranges of batches that were replaced by a copy from another replica",
            lambda: self.repairs,
        )
