"""How many bytes a second a broker's throttled replicas may ask of their leaders.

``follower.replication.throttled.rate`` is the broker's, and counts for the replicas that
``follower.replication.throttled.replicas`` of their topics name (KIP-73): those that a reassignment
adds, as a rule. It concerns only replicas that lag behind: one that is in sync must stay so.
"""

from collections.abc import Mapping
from typing import Protocol

from qbus.clock import Clock
from qbus.config import TopicConfig

from ..metadata.image import Topic

_STANDSTILL_S = 1.0
_BURST_S = 1.0
_ALL = "*"


class TokenBucket:
    """Bytes that may be spent, as many each second as the rate says; some in advance."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens = 0.0
        self._filled_at = clock.monotonic()

    def spend(self, count: int) -> None:
        """``count`` bytes were used, more perhaps than there were."""
        self._tokens -= count

    def wait(self, rate: int) -> float:
        """How many seconds it takes until there are any again, at ``rate`` bytes a second."""
        now = self._clock.monotonic()
        elapsed, self._filled_at = now - self._filled_at, now
        self._tokens = min(self._tokens + elapsed * rate, rate * _BURST_S)
        if self._tokens >= 0 and rate:
            return 0.0
        return -self._tokens / rate if rate else _STANDSTILL_S


class Rate(Protocol):
    """The configuration of the broker, as far as it concerns the throttle."""

    @property
    def follower_replication_throttled_rate(self) -> int:
        """Bytes a second."""


class Topics(Protocol):
    """What the throttle needs of the cluster's metadata."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Those that exist now, by name."""

    def topic_config(self, topic: Topic) -> TopicConfig:
        """The configuration in force for a topic."""


class Throttle:
    """One for all fetchers of a broker."""

    def __init__(self, node_id: int, config: Rate, metadata: Topics, clock: Clock) -> None:
        self._node_id = node_id
        self._config = config
        self._metadata = metadata
        self._bucket = TokenBucket(clock)

    def applies(self, topic: str, index: int) -> bool:
        """Whether a partition's replica here is a throttled one."""
        known = self._metadata.topics.get(topic)
        if known is None:
            return False
        replicas = self._metadata.topic_config(known).follower_replication_throttled_replicas
        return bool(replicas) and (_ALL in replicas or f"{index}:{self._node_id}" in replicas)

    def spend(self, count: int) -> None:
        """A throttled replica that lags got ``count`` bytes."""
        self._bucket.spend(count)

    def wait(self) -> float:
        """How many seconds throttled replicas that lag must not ask."""
        return self._bucket.wait(self._config.follower_replication_throttled_rate)
