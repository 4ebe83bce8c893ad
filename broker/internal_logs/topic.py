"""The topic of an internal log: how it is made, and which of its partitions has a key."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from qbus.config import BrokerConfig

DEFAULT: Final = -1
"""In the settings of numbers of partitions and replicas: what suits the cluster."""

_ALONE_PARTITIONS: Final = 5
_CLUSTER_PARTITIONS: Final = 50
_CLUSTER_REPLICAS: Final = 3


class InternalTopic(NamedTuple):
    """A compacted topic in which coordinators keep their state.

    ``partitions``, ``replication_factor``, ``min_isr`` and ``segment_bytes`` count when it is made:
    later its own configuration does.
    """

    name: str
    partitions: int
    replication_factor: int
    min_isr: int
    segment_bytes: int

    @property
    def config(self) -> Mapping[str, str | None]:
        """Its configuration, which is Kafka's."""
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(self.segment_bytes),
            "min.insync.replicas": str(self.min_isr),
            "unclean.leader.election.enable": "false",
        }


def suitable(
    config: BrokerConfig,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    min_isr: int,
    segment_bytes: int,
) -> InternalTopic:
    """An internal topic by its settings; those that are DEFAULT become what suits the cluster.

    That is Kafka's 50 partitions and 3 replicas, and fewer for brokers of one machine.
    """
    is_cluster = config.zookeeper_address is not None
    if partitions == DEFAULT:
        partitions = _CLUSTER_PARTITIONS if is_cluster else _ALONE_PARTITIONS
    if replication_factor == DEFAULT:
        replication_factor = _CLUSTER_REPLICAS if is_cluster else 1
    return InternalTopic(name, partitions, replication_factor, min_isr, segment_bytes)


@lru_cache(maxsize=10_000)
def partition_for(key: str, count: int) -> int:
    """Which of ``count`` partitions a key belongs to: Kafka's, so that its tools find it.

    The rule is the absolute value of Java's ``String.hashCode`` modulo ``count``.
    """
    hashed = java_hash(key)
    return (0 if hashed == -(2**31) else abs(hashed)) % count


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``: over the units of UTF-16, in 32 bits, signed."""
    hashed = 0
    data = text.encode("utf-16-le", "surrogatepass")
    for at in range(0, len(data), 2):
        hashed = (31 * hashed + (data[at] | data[at + 1] << 8)) & 0xFFFFFFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed
