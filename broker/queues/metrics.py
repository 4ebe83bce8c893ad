"""The metrics of queues that this broker leads, by topic and share group."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ..metrics import OTHERS, BoundedNames, Metrics
from .queue import ShareQueue
from .service import QueueService
from .types import QueueCounts

Samples = Iterable[tuple[Sequence[str], float]]

_MOST_QUEUES: Final = 1_000


class QueueMetrics:
    """Sums up the queues of each topic and group; the first thousand have labels of their own."""

    def __init__(self, queues: QueueService) -> None:
        self._queues = queues
        self._names = BoundedNames(_MOST_QUEUES)

    def _of_each(self, read: Callable[[ShareQueue], float], *, greatest: bool = False) -> Samples:
        values: dict[tuple[str, str], float] = {}
        for queue in self._queues:
            topic, group = queue.partition.topic, queue.group
            labels = (topic, group)
            if self._names.label(f"{topic}/{group}") == OTHERS:
                labels = (OTHERS, OTHERS)
            value, before = read(queue), values.get(labels, 0.0)
            values[labels] = max(value, before) if greatest else value + before
        return values.items()

    def register(self, metrics: Metrics) -> None:
        """Add the metrics."""
        gauge, counter = metrics.gauges_by, metrics.counters_by
        labels = ("topic", "group")

        def of_counts(read: Callable[[QueueCounts], int]) -> Callable[[], Samples]:
            return lambda: self._of_each(lambda queue: read(queue.counts))

        gauge(
            labels,
            "queue_length",
            "Records that a share group could take at once.",
            lambda: self._of_each(lambda queue: queue.length),
        )
        gauge(
            labels,
            "queue_in_flight",
            "Records that members of a share group have and have not acknowledged.",
            lambda: self._of_each(lambda queue: queue.in_flight),
        )
        gauge(
            labels,
            "queue_delayed",
            "Records that a share group gave back and that wait for their next delivery.",
            lambda: self._of_each(lambda queue: queue.delayed),
        )
        gauge(
            labels,
            "queue_oldest_seconds",
            "Age of the oldest record that a share group is not done with; 0 without any.",
            lambda: self._of_each(_oldest_s, greatest=True),
        )
        gauge(
            labels,
            "queue_waiting",
            "Requests that wait for records of a queue.",
            lambda: self._of_each(lambda queue: queue.waiting),
        )
        counter(
            labels,
            "queue_records_in",
            "Records that producers wrote to a partition since a share group uses it here.",
            lambda: self._of_each(lambda queue: queue.records_in),
        )
        counter(
            labels,
            "queue_records_taken",
            "Records given out to members of a share group, each time.",
            of_counts(lambda counts: counts.taken),
        )
        counter(
            labels,
            "queue_records_acknowledged",
            "Records that a share group has done.",
            of_counts(lambda counts: counts.acknowledged),
        )
        counter(
            labels,
            "queue_records_released",
            "Records that members of a share group gave back.",
            of_counts(lambda counts: counts.released),
        )
        counter(
            labels,
            "queue_timeouts",
            "Records whose lock ran out before a member acknowledged them.",
            of_counts(lambda counts: counts.timeouts),
        )
        counter(
            labels,
            "queue_dead_letters",
            "Records that a share group gave up, moved to its dead letter topic.",
            of_counts(lambda counts: counts.dead_letters),
        )
        counter(
            labels,
            "queue_records_dropped",
            "Records that a share group gave up without a dead letter topic.",
            of_counts(lambda counts: counts.dropped),
        )
        counter(
            labels,
            "queue_records_filtered",
            "Records that the filter of a share group left out.",
            of_counts(lambda counts: counts.filtered),
        )
        counter(
            labels,
            "queue_records_expired",
            "Records not given out because they were older than their qbus-ttl.",
            of_counts(lambda counts: counts.expired),
        )


def _oldest_s(queue: ShareQueue) -> float:
    return max(queue.oldest_ms, 0) / 1000


def register_metrics(metrics: Metrics, queues: QueueService) -> None:
    """Add the metrics of the queues that this broker leads."""
    QueueMetrics(queues).register(metrics)
