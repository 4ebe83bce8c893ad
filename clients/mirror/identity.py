"""That a copy's source is the topic it began with, and no other one of the same name."""

from collections.abc import Iterable
from uuid import UUID

from qbus.errors import ApiError, ErrorCode

from ..net.cluster import Cluster
from .partitions import Copy

_UNKNOWN = UUID(int=0)


def ids_of(copies: Iterable[Copy]) -> dict[str, UUID]:
    """The ids of the topics at the source, as far as they are known."""
    return {copy.source.topic: copy.source_id for copy in copies if copy.source_id is not None}


def check_same_topic(cluster: Cluster, copy: Copy) -> None:
    """Raise ApiError INCONSISTENT_TOPIC_ID where the source is known to have another topic now.

    Brokers that know topics by their ids refuse that themselves; older ones tell at least in their
    metadata.
    """
    known = cluster.metadata.topics.get(copy.source.topic)
    if known is None or copy.source_id is None or known.topic_id in {copy.source_id, _UNKNOWN}:
        return
    raise ApiError(
        ErrorCode.INCONSISTENT_TOPIC_ID,
        f"{copy.source.topic} is another topic by now: it had the id {copy.source_id}",
    )
