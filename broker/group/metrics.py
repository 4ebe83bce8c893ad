"""How far the groups that this broker coordinates are behind, for Prometheus.

The end of a log is known where a replica of it is, leader or follower. Partitions of which this
broker has none are counted, and left out.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ..metrics import OTHERS, BoundedNames, Metrics
from .coordinator import GroupCoordinator

EndOffset = Callable[[str, int], int | None]
"""The high watermark of a partition, by topic and index; None: it is not known here."""


class GroupLag:
    """Lags by group and topic, read anew at each scrape."""

    def __init__(self, groups: GroupCoordinator, end_offset: EndOffset) -> None:
        self._groups = groups
        self._end_offset = end_offset
        self._names = BoundedNames()
        self.unknown_partitions = 0

    def register(self, metrics: Metrics) -> None:
        """Show the lags as gauges."""
        metrics.gauges_by(
            ["group", "topic"],
            "group_lag",
            "Records between a group's committed offsets and the ends of a topic's logs.",
            self.read,
        )
        metrics.gauges_by(  # after the lags, which count them
            [],
            "group_lag_unknown_partitions",
            "Committed partitions without a replica on this broker, left out of qbus_group_lag.",
            lambda: [((), self.unknown_partitions)],
        )

    def read(self) -> Iterable[tuple[Sequence[str], float]]:
        """The lag by group and topic; those beyond the bound are summed."""
        sums: Counter[tuple[str, str]] = Counter()
        unknown = 0
        committed = list(self._groups.committed())
        self._names.keep({_pair(group, topic) for group, topic, _ in committed})
        for group, topic, offsets in committed:
            is_shown = self._names.label(_pair(group, topic)) is not OTHERS
            labels = (group, topic) if is_shown else (OTHERS, OTHERS)
            for partition, offset in offsets.items():
                end = self._end_offset(topic, partition)
                if end is None:
                    unknown += 1
                else:
                    sums[labels] += max(end - offset, 0)
        self.unknown_partitions = unknown
        return list(sums.items())


def _pair(group: str, topic: str) -> str:
    return f"{group}\0{topic}"
