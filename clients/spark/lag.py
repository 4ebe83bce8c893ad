"""The lag of streaming queries behind the topics that they read, from their progress reports.

    listener = LagListener()
    spark.streams.addListener(listener)
    stop = qbus.prometheus.serve(listener, "127.0.0.1", 9400)

The consumer group of each query shows the same lag, one micro-batch later.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ..types import TopicPartition
from .errors import CheckpointError
from .source.offsets import QueryOffsets

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_log = logging.getLogger(__name__)

Lags = Mapping[TopicPartition, int]
Publish = Callable[[str, Lags], None]
"""Takes the name of a query, by default its id, and its lag in records by partition."""


class LagListener(StreamingQueryListener):
    """Keeps the lags of the running queries of a session that read the format ``qbus``.

    Thread-safe. Other sources are ignored.
    """

    def __init__(self, publish: Publish | None = None) -> None:
        """``publish`` is called after each micro-batch; exceptions that it raises are logged."""
        self._publish = publish
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._lags: dict[str, Lags] = {}

    @property
    def lags(self) -> dict[str, Lags]:
        """The lag of each query in records, by partition."""
        with self._lock:
            return {self._names[run]: lags for run, lags in self._lags.items()}

    def collect(self) -> Iterable["Metric"]:
        """The lags as the Prometheus metric ``qbus_spark_lag_records``."""
        from prometheus_client.core import (  # noqa: PLC0415 - only where metrics are served
            GaugeMetricFamily,
        )

        family = GaugeMetricFamily(
            "qbus_spark_lag_records",
            "Records of a partition that a streaming query has not read yet.",
            labels=["query", "topic", "partition"],
        )
        for query, lags in self.lags.items():
            for (topic, index), lag in lags.items():
                family.add_metric([query, topic, str(index)], lag)
        yield family

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the lag is not known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Store and publish the lag after a micro-batch."""
        progress = event.progress
        lags: dict[TopicPartition, int] = {}
        for source in progress.sources:
            lags |= lag(source.endOffset, source.latestOffset)
        if not lags:
            return
        name, run = progress.name or str(progress.id), str(progress.runId)
        with self._lock:
            self._names[run], self._lags[run] = name, lags
        try:
            if self._publish is not None:
                self._publish(name, lags)
        except Exception:  # noqa: BLE001 - it is the user's, and may raise anything
            _log.exception("cannot publish the lag of query %s", name)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the lag has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forget the lag of a query that has ended."""
        with self._lock:
            self._lags.pop(str(event.runId), None)
            self._names.pop(str(event.runId), None)


def lag(reached: Any, latest: Any) -> dict[TopicPartition, int]:
    """The records between two offsets in Spark's JSON; empty for offsets of other sources."""
    try:
        at = QueryOffsets.from_json(json.loads(reached)).positions
        ends = QueryOffsets.from_json(json.loads(latest)).positions
    except (CheckpointError, TypeError, ValueError):
        return {}
    return {partition: max(end - at.get(partition, 0), 0) for partition, end in ends.items()}
