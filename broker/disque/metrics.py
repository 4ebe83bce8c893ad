"""Metrics of queues of jobs."""

from collections.abc import Callable, Iterable, Sequence

from ..metrics import Metrics
from .job_queue import JobQueue
from .service import DisqueService


def register_metrics(metrics: Metrics, service: DisqueService) -> None:
    """Register what is counted of each queue on this node, and of the clients of jobs."""

    def by_queue(
        read: Callable[[JobQueue], float],
    ) -> Callable[[], Iterable[tuple[Sequence[str], float]]]:
        return lambda: [((queue.topic,), read(queue)) for queue in service.known_queues()]

    labels = ["topic"]
    metrics.gauges_by(
        labels,
        "jobs_blocked_clients",
        "Number of clients that wait for a job, by queue.",
        by_queue(lambda queue: queue.blocked),
    )
    metrics.gauges_by(
        labels,
        "jobs_queued",
        "Number of jobs that wait to be given out by this broker, by queue.",
        by_queue(lambda queue: queue.length),
    )
    metrics.counters_by(
        labels,
        "jobs_added",
        "Number of jobs added through this broker since its start, by queue.",
        by_queue(lambda queue: queue.jobs_in),
    )
    metrics.counters_by(
        labels,
        "jobs_taken",
        "Number of jobs given out by this broker since its start, by queue.",
        by_queue(lambda queue: queue.jobs_out),
    )

    def connections() -> int:
        return 0 if service.clients is None else service.clients.connections

    metrics.gauge("jobs_clients", "Number of connected clients of jobs.", connections)
