"""Who leads instead (KIP-951): a client that is refused moves on without asking for metadata."""

from collections.abc import Iterator
from typing import NamedTuple

from ..metadata_cache import MetadataCache
from ..metadata_image import BrokerInfo


class Leader(NamedTuple):
    """The leader of a partition; -1 and -1 when nobody leads it."""

    id: int
    epoch: int


def leader_of(metadata: MetadataCache, topic: str | bytes, index: int) -> Leader:
    """Who leads a partition of the topic with this name or id."""
    known = (
        metadata.topics.get(topic) if isinstance(topic, str) else metadata.topics_by_id.get(topic)
    )
    if known is None or not 0 <= index < len(known.partitions):
        return Leader(-1, -1)
    info = known.partitions[index]
    return Leader(info.leader, info.leader_epoch)


def reachable(metadata: MetadataCache, ids: set[int]) -> Iterator[BrokerInfo]:
    """Those of some brokers that live, and so have an address."""
    return (metadata.brokers[node_id] for node_id in sorted(ids) if node_id in metadata.brokers)
