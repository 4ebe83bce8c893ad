"""When a replica whose log is corrupt as a whole may drop it, and fetch everything anew.

Such a log opened with batches missing or bad where it was stable once: what it holds is not known,
so it is no use. But as long as its replica counts as one in sync, or as eligible, it may be elected
for what it has lost, and an empty log could not be told from a whole one. So first it must be out
of both, which the broker itself writes to the store, and the leader must have no reason to take it
in again: it takes in who asked within ``replica.lag.time.max.ms``, so we ask for nothing for so
long. Only then the log is dropped, and the replica comes in sync as a new one does.
"""

from collections.abc import Mapping
from typing import Protocol

from qbus.clock import Clock

from ..metadata.image import Topic
from .partition_fetch_state import PartitionFetchState


class Topics(Protocol):
    """What is known of the states of partitions."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Those that exist now, by name."""


class Refetching:
    """Says when it is safe."""

    def __init__(self, node_id: int, topics: Topics, clock: Clock, max_lag_s: float) -> None:
        """``max_lag_s`` is ``replica.lag.time.max.ms``, in seconds."""
        self._node_id = node_id
        self._topics = topics
        self._clock = clock
        self._max_lag_s = max_lag_s

    def may_begin(self, one: PartitionFetchState) -> bool:
        """Whether nobody counts on what the log of ``one`` had."""
        if one.asked_at is not None and self._clock.monotonic() - one.asked_at <= self._max_lag_s:
            return False
        topic = self._topics.topics.get(one.replica.topic)
        if topic is None or one.replica.index >= len(topic.partitions):
            return False
        info = topic.partitions[one.replica.index]
        counted = {info.leader, *info.isr, *info.elr}
        return info.leader_epoch == one.leader_epoch and self._node_id not in counted
