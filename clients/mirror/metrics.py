"""What a mirror counts, as Prometheus reads it: by link, and the lag by topic and partition."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from qbus.service.control import Configured

from .status import LinkStatus, PartitionStatus, Trouble, totals

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_COUNTERS = {
    "records": "Offsets that the target acknowledged since the start",
    "bytes": "Bytes of batches that the target acknowledged since the start",
    "duplicates": "Batches sent again, not knowing whether the target had them",
}
_STATES = ("current", "copying", "waiting", "stopped")
_OF_PARTITION = ("link", "topic", "partition")


class MirrorMetrics:
    """Made from the status when somebody asks, so that they cost nothing else."""

    def __init__(
        self, status: Callable[[], Sequence[LinkStatus]], configured: Configured[Any]
    ) -> None:
        self._status = status
        self._configured = configured

    def collect(self) -> Iterable["Metric"]:
        """The Prometheus families, as a collector gives them."""
        from prometheus_client.core import (  # noqa: PLC0415 - only where metrics are served
            GaugeMetricFamily,
        )

        links = self._status()
        yield from _lags(links)
        yield from _of_links(links)
        yield from _of_groups(links)
        yield GaugeMetricFamily(
            "qbus_mirror_configuration_refused",
            "Whether the newest configuration was refused",
            value=self._configured.reason is not None,
        )


def _lags(links: Sequence[LinkStatus]) -> Iterable["Metric"]:
    """What each partition lacks; a series only where that is known."""
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - as above

    lags: dict[str, tuple[str, Callable[[PartitionStatus], float | None]]] = {
        "lag_records": ("Offsets that the target lacks", lambda one: one.lag_records),
        "lag_bytes": ("Bytes of batches that the target lacks, about", lambda one: one.lag_bytes),
        "lag_seconds": ("Age of the oldest record that it lacks", lambda one: one.lag_seconds),
    }
    for name, (text, value) in lags.items():
        family = GaugeMetricFamily(f"qbus_mirror_{name}", text, labels=_OF_PARTITION)
        for link in links:
            for one in link.partitions:
                lag = value(one)
                if lag is not None:
                    family.add_metric([link.name, one.topic, str(one.partition)], lag)
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
        "qbus_mirror_partitions", "Partitions by their state", labels=["link", "state"]
    )
    troubles = GaugeMetricFamily(
        "qbus_mirror_trouble",
        "Partitions where source and target differ, by what happened",
        labels=["link", "trouble"],
    )
    failing = GaugeMetricFamily(
        "qbus_mirror_link_failing", "Whether nothing can be mirrored now", labels=["link"]
    )
    reproducing = GaugeMetricFamily(
        "qbus_mirror_reproducing",
        "Whether the target is no Qbus, and gets records anew",
        labels=["link"],
    )
    for link in links:
        for state in _STATES:
            states.add_metric([link.name, state], numbers[link.name][state])
        for trouble in Trouble:
            count = sum(one.trouble is trouble for one in link.partitions)
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
        "qbus_mirror_group_offsets", "Offsets of groups that were carried over", labels=["link"]
    )
    carried = GaugeMetricFamily(
        "qbus_mirror_groups_carried_timestamp_seconds",
        "When groups were carried over last, 0: never",
        labels=["link"],
    )
    for link in links:
        offsets.add_metric([link.name], link.groups.offsets)
        carried.add_metric([link.name], link.groups.carried_ms / 1000)
    yield from (offsets, carried)
