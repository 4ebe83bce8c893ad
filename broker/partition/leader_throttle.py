"""How many bytes a second a leader sends to throttled replicas (KIP-73).

``leader.replication.throttled.rate`` is the broker's, and counts for the partitions that
``leader.replication.throttled.replicas`` of their topics name with this broker: those that a
reassignment copies, as a rule. Whoever is in sync gets all the same: it must stay so.
"""

from typing import TYPE_CHECKING, Protocol

from qbus.clock import Clock
from qbus.config.topic import FOREVER

from .metadata import Metadata
from .partition import Partition

if TYPE_CHECKING:
    from qbus.service.token_bucket import TokenBucket

_ALL = "*"


class Rate(Protocol):
    """The configuration of the broker, as far as it concerns the throttle."""

    @property
    def leader_replication_throttled_rate(self) -> int:
        """Bytes a second."""


class LeaderThrottle:
    """One for all followers of what is led here."""

    def __init__(self, node_id: int, config: Rate, metadata: Metadata, clock: Clock) -> None:
        self._node_id = node_id
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._bucket: TokenBucket | None = None

    def applies(self, partition: Partition, replica: int) -> bool:
        """Whether what a replica gets of a partition counts."""
        if self._config.leader_replication_throttled_rate >= FOREVER or replica in partition.isr:
            return False
        topic = self._metadata.topics.get(partition.topic)
        if topic is None:
            return False
        named = self._metadata.topic_config(topic).leader_replication_throttled_replicas
        return _ALL in named or f"{partition.index}:{self._node_id}" in named

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing may be sent now of what counts."""
        rate = self._config.leader_replication_throttled_rate
        return self._bucket_of().wait(rate, self._clock.monotonic()) > 0

    def spend(self, count: int) -> None:
        """``count`` bytes are sent."""
        self._bucket_of().spend(count)

    def _bucket_of(self) -> "TokenBucket":
        if self._bucket is None:
            from qbus.service.token_bucket import TokenBucket  # noqa: PLC0415 - few brokers need it

            self._bucket = TokenBucket(self._clock.monotonic())
        return self._bucket
