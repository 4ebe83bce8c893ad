"""What the broker counts, and how Prometheus reads it.

Counting on the hot path is adding to plain numbers; the Prometheus families are made from them when
somebody asks.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import accumulate
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Final

from qbus.service.prometheus import serve

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from qbus.metadata.store import Timings

__all__ = ["Metrics", "RequestMetrics", "serve"]

_LATENCY_BOUNDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)


class RequestMetrics:
    """Requests by API: how many, and how long from frame to response.

    The time that a fetch waited for records is not counted: nobody worked on it.
    """

    def __init__(self) -> None:
        self.counts: dict[int, list[int]] = {}
        self.seconds: dict[int, float] = {}
        self.failures = 0
        self.observed_at = 0.0  # when a request was counted last, as perf_counter has it

    def observe(self, api_key: int, started: float) -> float:
        """Count one request that came at ``started``; return the time of now.

        Both in seconds of ``perf_counter``.
        """
        self.observed_at = now = perf_counter()
        elapsed = now - started
        counts = self.counts.get(api_key)
        if counts is None:
            counts = self.counts[api_key] = [0] * (len(_LATENCY_BOUNDS) + 1)
            self.seconds[api_key] = 0.0
        counts[bisect_left(_LATENCY_BOUNDS, elapsed)] += 1
        self.seconds[api_key] += elapsed
        return now


Gauge = Callable[[], float]

Samples = Callable[[], Iterable[tuple[Sequence[str], float]]]
"""Values by the values of their labels."""

OTHERS: Final = "(others)"
"""The label of what has none of its own, for which a topic or group has no such name."""


class BoundedNames:
    """Names that get a label of their own: the first so many. The rest share :data:`OTHERS`.

    A monitored cluster may have any number of topics, and each label costs Prometheus a series.
    """

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._labels: dict[str, None] = {}

    def label(self, name: str) -> str:
        """The label of ``name``."""
        if name not in self._labels:
            if len(self._labels) >= self._limit:
                return OTHERS
            self._labels[name] = None
        return name

    def keep(self, names: Container[str]) -> None:
        """Free the labels of all that are not in ``names`` any more."""
        for name in [name for name in self._labels if name not in names]:
            del self._labels[name]


class Metrics:
    """The broker's numbers; parts of the broker add gauges of their own."""

    def __init__(self, api_name: Callable[[int], str] = str) -> None:
        """``api_name`` tells the name of an API by its key."""
        self.requests = RequestMetrics()
        self._api_name = api_name
        self._reading = Lock()  # several may scrape at once, and samples keep what they have shown
        self.gauges: dict[str, tuple[str, Gauge]] = {}
        self.counters: dict[str, tuple[str, Gauge]] = {}
        self.timings: dict[str, tuple[str, Timings]] = {}
        self.labelled: dict[str, tuple[str, Sequence[str], Samples, bool]] = {}

    def gauge(self, name: str, help_text: str, read: Gauge) -> None:
        """Show ``read()`` as the gauge ``qbus_<name>``."""
        self.gauges[name] = (help_text, read)

    def counter(self, name: str, help_text: str, read: Gauge) -> None:
        """Show ``read()``, which only grows, as the counter ``qbus_<name>_total``."""
        self.counters[name] = (help_text, read)

    def timing(self, name: str, help_text: str, timings: "Timings") -> None:
        """Show ``timings`` as the histogram ``qbus_<name>``."""
        self.timings[name] = (help_text, timings)

    def gauges_by(self, labels: Sequence[str], name: str, help_text: str, read: Samples) -> None:
        """Show what ``read()`` returns as the gauge ``qbus_<name>`` with ``labels``."""
        self.labelled[name] = (help_text, labels, read, False)

    def counters_by(self, labels: Sequence[str], name: str, help_text: str, read: Samples) -> None:
        """Show what ``read()`` returns as the counter ``qbus_<name>_total`` with ``labels``."""
        self.labelled[name] = (help_text, labels, read, True)

    def collect(self) -> Iterable["Metric"]:
        """The Prometheus families, as a collector gives them."""
        from prometheus_client.core import (  # noqa: PLC0415 - only where metrics are served
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        from qbus.metadata.store import BOUNDS  # noqa: PLC0415 - as above

        for name, (text, read) in list(self.gauges.items()):
            yield GaugeMetricFamily(f"qbus_{name}", text, value=read())
        for name, (text, read) in list(self.counters.items()):
            yield CounterMetricFamily(f"qbus_{name}", text, value=read())
        for name, (text, labels, samples, is_counter) in list(self.labelled.items()):
            kind = CounterMetricFamily if is_counter else GaugeMetricFamily
            family = kind(f"qbus_{name}", text, labels=labels)
            with self._reading:
                found = list(samples())
            for label_values, value in found:
                family.add_metric(label_values, value)
            yield family
        yield CounterMetricFamily(
            "qbus_request_failures",
            "Number of requests that failed by a defect of the broker.",
            value=self.requests.failures,
        )
        yield self._latencies()
        for name, (text, timings) in list(self.timings.items()):
            yield HistogramMetricFamily(
                f"qbus_{name}", text, _buckets(BOUNDS, timings.counts), timings.seconds
            )

    def _latencies(self) -> "Metric":
        from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415 - as above

        family = HistogramMetricFamily(
            "qbus_request_seconds",
            "Time from a request to its response, in seconds.",
            labels=["api"],
        )
        for key, counts in list(self.requests.counts.items()):
            buckets = _buckets(_LATENCY_BOUNDS, counts)
            family.add_metric([self._api_name(key)], buckets, self.requests.seconds[key])
        return family


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """As Prometheus has them: how many took at most so long, by bound."""
    names = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    return list(zip(names, accumulate(list(counts)), strict=True))
