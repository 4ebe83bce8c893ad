"""Metrics of the clients of jobs. Those of the queues are in :mod:`qbus.broker.queues.metrics`."""

from ..metrics import Metrics
from .service import DisqueService


def register_metrics(metrics: Metrics, service: DisqueService) -> None:
    """Register what is counted of clients and their commands; other threads may read it."""

    def connections() -> int:
        return 0 if service.clients is None else service.clients.connections

    metrics.gauge("jobs_clients", "Number of connected clients of jobs.", connections)
    metrics.gauge(
        "jobs_blocked_clients",
        "Number of clients that wait for a job; one that waits at several queues counts at each.",
        lambda: sum(queue.blocked for queue in service.known_queues()),
    )
    metrics.counter(
        "jobs_connections_refused",
        "Number of connections of clients of jobs that a limit refused.",
        lambda: 0 if service.clients is None else service.clients.refused,
    )
    metrics.counter(
        "jobs_failed_handshakes",
        "Number of connections of clients of jobs whose TLS handshakes failed.",
        lambda: 0 if service.clients is None else service.clients.failed_handshakes,
    )
    metrics.counter(
        "jobs_authentication_failures",
        "Number of wrong passwords that clients of jobs have given.",
        lambda: service.authentication.failed,
    )
    metrics.counter(
        "jobs_added", "Number of jobs added through this broker.", lambda: service.adder.added
    )
