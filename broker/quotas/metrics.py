"""What operators see of quotas."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ..metrics import Metrics
from .client_quotas import ClientQuotas, labels
from .connection_rates import ConnectionRates

_SHOWN: Final = 10
"""Of how many users and clients the use is shown, by kind: of those that use most."""

Samples = Iterable[tuple[Sequence[str], float]]


def register_metrics(
    metrics: Metrics, quotas: ClientQuotas, rates: ConnectionRates, now: Callable[[], float]
) -> None:
    """Register the metrics of quotas. ``now``: monotonic seconds."""

    def throttled() -> Samples:
        return [((kind.kind,), kind.throttled) for kind in quotas.kinds]

    def throttled_seconds() -> Samples:
        return [((kind.kind,), kind.throttled_s) for kind in quotas.kinds]

    def entities() -> Samples:
        return [((kind.kind,), len(kind)) for kind in quotas.kinds]

    def usage() -> Samples:
        at = now()
        return [
            ((kind.kind, *labels(sharers)), rate)
            for kind in quotas.kinds
            for sharers, rate in kind.fastest(_SHOWN, at)
        ]

    metrics.counters_by(
        ["quota"],
        "quota_throttled_requests",
        "Number of requests whose clients were slowed down, by quota.",
        throttled,
    )
    metrics.counters_by(
        ["quota"],
        "quota_throttle_seconds",
        "Time for which clients were slowed down, in seconds, by quota.",
        throttled_seconds,
    )
    metrics.gauges_by(
        ["quota"],
        "quota_entities",
        "Number of users and clients whose use of a quota is measured now.",
        entities,
    )
    metrics.gauges_by(
        ["quota", "user", "client_id"],
        "quota_usage",
        "What those that use most of a quota use of it in a second: bytes, percent of one core, or "
        "partitions created and deleted. An empty label is not part of the quota.",
        usage,
    )
    metrics.counter(
        "connections_over_rate",
        "Number of connections that were closed because their address opened too many.",
        lambda: rates.refused,
    )
    metrics.gauge(
        "connection_rate_addresses",
        "Number of addresses whose rate of new connections is measured now.",
        lambda: len(rates),
    )
