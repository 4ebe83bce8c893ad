"""An agent's metrics for Prometheus: of all its files together.

Ten thousand files would be ten thousand series that come and go; the status lists files.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from qbus.service.control import Configured

from .status import AgentStatus, totals

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_GAUGES = {
    "lag_bytes": "Bytes in files that are not acknowledged yet.",
    "lag_seconds": "Seconds since the oldest undelivered byte of any file was noticed.",
    "memory_bytes": "Bytes in memory: read and not acknowledged yet.",
    "spool_bytes": "Bytes in spools that are not acknowledged yet.",
}
_COUNTERS = {
    "records": ("records", "Records of files acknowledged since the start."),
    "bytes": ("bytes", "Bytes of files acknowledged since the start."),
    "truncations": ("truncations", "Truncations of files noticed since the start."),
    "refused": (
        "refused_records",
        "Records of files set aside since the start: they are too large for their topics.",
    ),
}
_STATES = ("reading", "idle", "finished", "failed")


class AgentMetrics:
    """Makes the metrics from the status at each scrape; they cost nothing otherwise."""

    def __init__(self, status: Callable[[], AgentStatus], configured: Configured[Any]) -> None:
        self._status = status
        self._configured = configured

    def collect(self) -> Iterable["Metric"]:
        """Return the Prometheus families."""
        from prometheus_client.core import (  # noqa: PLC0415 - only where metrics are served
            CounterMetricFamily,
            GaugeMetricFamily,
        )

        status = self._status()
        numbers = totals(status)
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"qbus_agent_{name}", text, value=numbers[name])
        for name, (metric, text) in _COUNTERS.items():
            yield CounterMetricFamily(f"qbus_agent_{metric}", text, value=numbers[name])
        files = GaugeMetricFamily("qbus_agent_files", "Number of files by state.", labels=["state"])
        for state in _STATES:
            files.add_metric([state], numbers[state])
        yield files
        spooled, spool_bytes = (
            CounterMetricFamily(f"qbus_agent_spool_{what}", text, labels=["directory"])
            for what, text in (
                ("records", "Records of spools acknowledged since the start."),
                ("delivered_bytes", "Bytes of spools acknowledged since the start."),
            )
        )
        damaged = GaugeMetricFamily(
            "qbus_agent_spool_damaged_files", "Damaged or refused spool files in quarantine."
        )
        damaged.add_metric([], max((spool.damaged for spool in status.spools), default=0))
        for spool in status.spools:
            spooled.add_metric([spool.directory], spool.delivered_records)
            spool_bytes.add_metric([spool.directory], spool.delivered_bytes)
        yield from (spooled, spool_bytes, damaged)
        yield GaugeMetricFamily(
            "qbus_agent_delivery_failing",
            "1 while some records cannot be delivered or positions not be kept, else 0.",
            value=status.error is not None,
        )
        yield GaugeMetricFamily(
            "qbus_agent_configuration_refused",
            "1 while the newest configuration is refused, else 0.",
            value=self._configured.reason is not None,
        )
