"""How far streaming queries are behind the topics that they read, as their progress tells.

    listener = LagListener()
    spark.streams.addListener(listener)
    stop = qbus.prometheus.serve(listener, "127.0.0.1", 9400)

The consumer group of each query tells the same to those who ask the brokers, a micro-batch later.
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
"""Takes a query's name, or its id where it has none, and the records it is behind by partition."""


class LagListener(StreamingQueryListener):
    """Keeps the lags of all running queries of a session that read with the format ``qbus``.

    Any thread may ask for them. What Spark's other sources report is not looked at.
    """

    def __init__(self, publish: Publish | None = None) -> None:
        """``publish``: is called after each micro-batch; what it raises is only logged."""
        self._publish = publish
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._lags: dict[str, Lags] = {}

    @property
    def lags(self) -> dict[str, Lags]:
        """The records that each query is behind, by partition."""
        with self._lock:
            return {self._names[run]: lags for run, lags in self._lags.items()}

    def collect(self) -> Iterable["Metric"]:
        """The lags as a Prometheus family: ``qbus_spark_lag_records``."""
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
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A micro-batch is done."""
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
            _log.exception("the lag of query %s is not published", name)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """There was nothing to read: the lag is what it was."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """The query has ended, and is behind nothing."""
        with self._lock:
            self._lags.pop(str(event.runId), None)
            self._names.pop(str(event.runId), None)


def lag(reached: Any, latest: Any) -> dict[TopicPartition, int]:
    """The records between two offsets as Spark shows them; empty for those of other sources."""
    try:
        at = QueryOffsets.from_json(json.loads(reached)).positions
        ends = QueryOffsets.from_json(json.loads(latest)).positions
    except (CheckpointError, TypeError, ValueError):
        return {}
    return {partition: max(end - at.get(partition, 0), 0) for partition, end in ends.items()}
