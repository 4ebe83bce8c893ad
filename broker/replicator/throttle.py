"""The throttle of a broker's follower replicas (KIP-73).

``follower.replication.throttled.rate``, of the broker, limits the bytes per second that it fetches
for the replicas in ``follower.replication.throttled.replicas`` of their topics: as a rule those
that a reassignment adds. Only replicas that lag are throttled; one in sync must stay in sync.
"""

import math
from collections.abc import Mapping
from typing import Protocol

from qbus.clock import Clock
from qbus.config import TopicConfig
from qbus.service.token_bucket import TokenBucket

from ..metadata.image import Topic

_RATE_0_RETRY_S = 1.0
_ALL = "*"


class Rate(Protocol):
    """The part of the broker's configuration that the throttle reads."""

    @property
    def follower_replication_throttled_rate(self) -> int:
        """In bytes per second."""


class Topics(Protocol):
    """The part of the cluster's metadata that the throttle reads."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics, by name."""

    def topic_config(self, topic: Topic) -> TopicConfig:
        """The configuration in force for a topic."""


class Throttle:
    """The throttle that all fetchers of a broker share."""

    def __init__(self, node_id: int, config: Rate, metadata: Topics, clock: Clock) -> None:
        self._node_id = node_id
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._bucket = TokenBucket(clock.monotonic())

    def applies(self, topic: str, index: int) -> bool:
        """Whether this broker's replica of a partition is throttled."""
        known = self._metadata.topics.get(topic)
        if known is None:
            return False
        replicas = self._metadata.topic_config(known).follower_replication_throttled_replicas
        return bool(replicas) and (_ALL in replicas or f"{index}:{self._node_id}" in replicas)

    def spend(self, count: int) -> None:
        """Count ``count`` bytes that a throttled, lagging replica received."""
        self._bucket.spend(count)

    def wait(self) -> float:
        """The seconds until throttled, lagging replicas may fetch again."""
        rate = self._config.follower_replication_throttled_rate
        seconds = self._bucket.wait(rate, self._clock.monotonic())
        return seconds if math.isfinite(seconds) else _RATE_0_RETRY_S
