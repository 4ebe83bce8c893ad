"""The limit on what a leader sends to throttled replicas, in bytes per second (KIP-73).

``leader.replication.throttled.rate`` is a setting of the broker. It applies to the partitions that
``leader.replication.throttled.replicas`` of their topics name with this broker: usually those that
a reassignment copies. In-sync replicas are not limited, so that they stay in sync.
"""

from typing import Protocol

from qbus.clock import Clock
from qbus.config.topic import FOREVER
from qbus.service.token_bucket import TokenBucket

from .metadata import Metadata
from .partition import Partition

_ALL = "*"


class LeaderThrottleConfig(Protocol):
    """The part of the broker's configuration that the throttle reads."""

    @property
    def leader_replication_throttled_rate(self) -> int:
        """The limit in bytes per second."""


class LeaderThrottle:
    """One limit for all followers of the partitions that are led here."""

    def __init__(
        self, node_id: int, config: LeaderThrottleConfig, metadata: Metadata, clock: Clock
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._bucket = TokenBucket(clock.monotonic())

    def applies(self, partition: Partition, replica: int) -> bool:
        """Whether a replica's fetches of a partition are limited."""
        if self._config.leader_replication_throttled_rate >= FOREVER or replica in partition.isr:
            return False
        topic = self._metadata.topics.get(partition.topic)
        if topic is None:
            return False
        named = self._metadata.topic_config(topic).leader_replication_throttled_replicas
        return _ALL in named or f"{partition.index}:{self._node_id}" in named

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing may be sent to throttled replicas now."""
        rate = self._config.leader_replication_throttled_rate
        return self._bucket.wait(rate, self._clock.monotonic()) > 0

    def spend(self, count: int) -> None:
        """Count ``count`` bytes that are sent."""
        self._bucket.spend(count)
