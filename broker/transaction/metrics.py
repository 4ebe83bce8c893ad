"""The metrics of the transaction coordinator."""

from ..metrics import Metrics
from .coordinator import TransactionCoordinator


def register_metrics(metrics: Metrics, transactions: TransactionCoordinator) -> None:
    """Show the numbers of the transactions that this broker coordinates."""
    counts, markers = transactions.counts, transactions.markers
    gauge, counter = metrics.gauge, metrics.counter
    metrics.gauges_by(
        ["state"],
        "transactional_ids",
        "Number of transactional ids of this broker, by the state of their transactions.",
        lambda: [((state.label,), count) for state, count in transactions.count_by_state().items()],
    )
    counter(
        "transactions_committed",
        "Number of transactions that were committed.",
        lambda: counts.committed,
    )
    counter(
        "transactions_aborted",
        "Number of transactions that were aborted, for whatever reason.",
        lambda: counts.aborted,
    )
    counter(
        "transactions_timed_out",
        "Number of transactions that the coordinator aborted after their time-out.",
        lambda: counts.timed_out,
    )
    counter(
        "transactions_fenced",
        "Number of transactions aborted because another producer took the transactional id over.",
        lambda: counts.fenced,
    )
    gauge(
        "transactions_ending",
        "Number of transactions whose end some partitions do not know yet.",
        lambda: len(markers),
    )
    counter(
        "transaction_markers",
        "Number of partitions and groups that were told how a transaction ended.",
        lambda: markers.written,
    )
    counter(
        "transaction_marker_retries",
        "Number of times that a partition or group had to be told again.",
        lambda: markers.retries,
    )
