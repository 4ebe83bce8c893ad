"""A mirror's metrics for Prometheus: by link, and the lag by topic and partition."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from qbus.service.control import Configured

from .status import LinkStatus, PartitionStatus, Trouble, totals

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_COUNTERS = {
    "records": "Records that the target has stored since the start.",
    "bytes": "Bytes of batches that the target has stored since the start.",
    "duplicates": "Batches sent again because it was unknown whether the target had stored them.",
}
_STATES = ("current", "copying", "waiting", "stopped")
_OF_PARTITION = ("link", "topic", "partition")


class MirrorMetrics:
    """Makes the metrics from the status at each scrape; they cost nothing otherwise."""

    def __init__(
        self, status: Callable[[], Sequence[LinkStatus]], configured: Configured[Any]
    ) -> None:
        self._status = status
        self._configured = configured

    def collect(self) -> Iterable["Metric"]:
        """Return the Prometheus families."""
        from prometheus_client.core import (  # noqa: PLC0415 - only where metrics are served
            GaugeMetricFamily,
        )

        links = self._status()
        yield from _lags(links)
        yield from _of_links(links)
        yield from _of_groups(links)
        yield GaugeMetricFamily(
            "qbus_mirror_configuration_refused",
            "1 while the newest configuration is refused, else 0.",
            value=self._configured.reason is not None,
        )


def _lags(links: Sequence[LinkStatus]) -> Iterable["Metric"]:
    """The lag of each partition; a series only if it is known."""
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - as above

    lags: dict[str, tuple[str, Callable[[PartitionStatus], float | None]]] = {
        "lag_records": (
            "Lag of the target behind the source, in records (offsets).",
            lambda partition: partition.lag_records,
        ),
        "lag_bytes": (
            "Estimated lag of the target behind the source, in bytes of batches.",
            lambda partition: partition.lag_bytes,
        ),
        "lag_seconds": (
            "Age of the oldest record that the target lacks, in seconds.",
            lambda partition: partition.lag_seconds,
        ),
    }
    for name, (text, value) in lags.items():
        family = GaugeMetricFamily(f"qbus_mirror_{name}", text, labels=_OF_PARTITION)
        for link in links:
            for partition in link.partitions:
                lag = value(partition)
                if lag is not None:
                    family.add_metric([link.name, partition.topic, str(partition.partition)], lag)
        yield family


def _of_links(links: Sequence[LinkStatus]) -> Iterable["Metric"]:
    from prometheus_client.core import (  # noqa: PLC0415 - as above
        CounterMetricFamily,
        GaugeMetricFamily,
    )

    numbers = {link.name: totals(link) for link in links}
    for name, text in _COUNTERS.items():
        counter = CounterMetricFamily(f"qbus_mirror_{name}", text, labels=["link"])
        for link in links:
            counter.add_metric([link.name], numbers[link.name][name])
        yield counter
    states = GaugeMetricFamily(
        "qbus_mirror_partitions", "Number of partitions by state.", labels=["link", "state"]
    )
    troubles = GaugeMetricFamily(
        "qbus_mirror_trouble",
        "Number of partitions where source and target differ, by trouble.",
        labels=["link", "trouble"],
    )
    failing = GaugeMetricFamily(
        "qbus_mirror_link_failing",
        "1 while nothing can be mirrored over the link, else 0.",
        labels=["link"],
    )
    reproducing = GaugeMetricFamily(
        "qbus_mirror_reproducing",
        "1 if the target is no Qbus and records are reproduced, else 0.",
        labels=["link"],
    )
    for link in links:
        for state in _STATES:
            states.add_metric([link.name, state], numbers[link.name][state])
        for trouble in Trouble:
            count = sum(partition.trouble is trouble for partition in link.partitions)
            troubles.add_metric([link.name, trouble.value], count)
        failing.add_metric([link.name], link.error is not None)
        reproducing.add_metric([link.name], link.reproduces)
    yield from (states, troubles, failing, reproducing)


def _of_groups(links: Sequence[LinkStatus]) -> Iterable["Metric"]:
    from prometheus_client.core import (  # noqa: PLC0415 - as above
        CounterMetricFamily,
        GaugeMetricFamily,
    )

    offsets = CounterMetricFamily(
        "qbus_mirror_group_offsets",
        "Group offsets committed at the target since the start.",
        labels=["link"],
    )
    carried = GaugeMetricFamily(
        "qbus_mirror_groups_carried_timestamp_seconds",
        "Time of the last sync of group offsets, in seconds since the Unix epoch; 0: never.",
        labels=["link"],
    )
    for link in links:
        offsets.add_metric([link.name], link.groups.offsets)
        carried.add_metric([link.name], link.groups.carried_ms / 1000)
    yield from (offsets, carried)
