"""Metrics for Prometheus, over HTTP."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Collector(Protocol):
    """A source of metrics."""

    def collect(self) -> Iterable["Metric"]:
        """Return the Prometheus families; called from other threads."""


def serve(
    metrics: Collector, host: str, port: int, *, of_process: bool = True
) -> Callable[[], None]:
    """Serve ``metrics`` over HTTP from a thread; return the function that stops it.

    ``of_process``: with what this process takes of processor and memory.

    Raises:
        OSError: the address cannot be listened on; the message names it.
    """
    from prometheus_client import (  # noqa: PLC0415 - only where metrics are served
        CollectorRegistry,
        GCCollector,
        PlatformCollector,
        ProcessCollector,
        start_http_server,
    )

    registry = CollectorRegistry()
    registry.register(metrics)
    if of_process:
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        message = f"cannot serve metrics on {host}:{port}: {error.strerror}"
        raise OSError(error.errno, message) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
