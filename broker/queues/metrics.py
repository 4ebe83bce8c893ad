"""The metrics of queues that this broker leads, by topic and share group.

Metrics are read in other threads, and queues live in the event loop's. So they are measured there,
every few seconds, and what is read is what was measured last.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from ..metrics import OTHERS, BoundedNames, Metrics
from ..partition.background_tasks import BackgroundTasks
from .queue import ShareQueue
from .service import QueueService

Samples = Iterable[tuple[Sequence[str], float]]

_MOST_QUEUES: Final = 1_000
_INTERVAL_S: Final = 5.0

_GAUGES: Final = {
    "length": "Records that a share group could take at once.",
    "in_flight": "Records that members of a share group have and have not acknowledged.",
    "delayed": "Records that a share group gave back and that wait for their next delivery.",
    "given_up": "Records that a share group gave up and that wait for its dead letter topic.",
    "oldest_seconds": "Age of the oldest record that a share group is not done with; 0: none.",
    "waiting": "Requests that wait for records of a queue.",
}
_COUNTERS: Final = {
    "records_in": "Records that producers wrote to a partition since a share group uses it here.",
    "records_taken": "Records given out to members of a share group, each time.",
    "records_acknowledged": "Records that a share group has done.",
    "records_released": "Records that members of a share group gave back.",
    "timeouts": "Records whose lock ran out before a member acknowledged them.",
    "dead_letters": "Records that a share group gave up, moved to its dead letter topic.",
    "records_dropped": "Records that a share group gave up without a dead letter topic.",
    "records_filtered": "Records that the filter of a share group left out.",
    "records_expired": "Records not given out because they were older than their qbus-ttl.",
}


class _Measured(NamedTuple):
    """What was measured of the queues of a topic and group: the fields are the metrics' names."""

    length: float = 0
    in_flight: float = 0
    delayed: float = 0
    given_up: float = 0
    oldest_seconds: float = 0
    waiting: float = 0
    records_in: float = 0
    records_taken: float = 0
    records_acknowledged: float = 0
    records_released: float = 0
    timeouts: float = 0
    dead_letters: float = 0
    records_dropped: float = 0
    records_filtered: float = 0
    records_expired: float = 0

    def plus(self, other: "_Measured") -> "_Measured":
        """Both together: the sums, and the greater age."""
        sums = _Measured(*[a + b for a, b in zip(self, other, strict=True)])
        return sums._replace(oldest_seconds=max(self.oldest_seconds, other.oldest_seconds))


class QueueMetrics:
    """Sums up the queues of each topic and group; the first thousand have labels of their own."""

    def __init__(self, queues: QueueService) -> None:
        self._queues = queues
        self._names = BoundedNames(_MOST_QUEUES)
        self._measured: dict[tuple[str, str], _Measured] = {}

    def measure(self) -> None:
        """Measure all queues; in the event loop."""
        measured: dict[tuple[str, str], _Measured] = {}
        for queue in self._queues:
            topic, group = queue.partition.topic, queue.group
            labels = (topic, group)
            if self._names.label(f"{topic}\0{group}") == OTHERS:
                labels = (OTHERS, OTHERS)
            found, before = _measure(queue), measured.get(labels)
            measured[labels] = found if before is None else before.plus(found)
        self._names.keep({f"{topic}\0{group}" for topic, group in measured})
        self._measured = measured

    def _read(self, name: str) -> Callable[[], Samples]:
        return lambda: [(labels, getattr(one, name)) for labels, one in self._measured.items()]

    def register(self, metrics: Metrics, tasks: BackgroundTasks) -> None:
        """Add the metrics, and the task that measures."""
        labels = ("topic", "group")
        for name, text in _GAUGES.items():
            metrics.gauges_by(labels, f"queue_{name}", text, self._read(name))
        for name, text in _COUNTERS.items():
            metrics.counters_by(labels, f"queue_{name}", text, self._read(name))
        tasks.add("measure queues", _INTERVAL_S, self.measure)


def _measure(queue: ShareQueue) -> _Measured:
    counts = queue.counts
    return _Measured(
        queue.length,
        queue.in_flight,
        queue.delayed,
        queue.given_up,
        max(queue.oldest_ms, 0) / 1000,
        queue.waiting,
        queue.records_in,
        counts.taken,
        counts.acknowledged,
        counts.released,
        counts.timeouts,
        counts.dead_letters,
        counts.dropped,
        counts.filtered,
        counts.expired,
    )


def register_metrics(metrics: Metrics, queues: QueueService, tasks: BackgroundTasks) -> None:
    """Add the metrics of the queues that this broker leads."""
    QueueMetrics(queues).register(metrics, tasks)
