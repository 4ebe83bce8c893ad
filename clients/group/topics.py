"""The topics that a consumer wants, and what has become of them."""

import re
from collections.abc import Iterable

from qbus.errors import ConfigError, ErrorCode

from ..cluster import Cluster
from ..types import TopicDescription
from .assignors import Topics

Wanted = Iterable[str] | re.Pattern[str]
_FATAL = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})


class WantedTopics:
    """Names, or a pattern that topics' names match as a whole (internal topics never do)."""

    def __init__(self, cluster: Cluster, wanted: Wanted) -> None:
        if isinstance(wanted, str | bytes):
            raise ConfigError("topics are several names, or a compiled pattern; not one string")
        self._cluster = cluster
        self._pattern = wanted if isinstance(wanted, re.Pattern) else None
        self.names = () if isinstance(wanted, re.Pattern) else tuple(sorted(set(wanted)))
        """Those that are wanted; of a pattern, those that matched at the last look."""

    async def refresh(self, others: Iterable[str] = ()) -> None:
        """Look at what there is, of ``others`` too.

        Raises :class:`~qbus.errors.ApiError`, also for a topic by name that we may not read.
        """
        if self._pattern is None:
            await self._cluster.refresh({*self.names, *others})
            self._raise_refusals()
        else:
            await self._cluster.refresh(None)
            found = self._cluster.metadata.topics.values()
            self.names = tuple(sorted(topic.name for topic in found if self._matches(topic)))

    def counts(self) -> dict[str, int]:
        """How many partitions those have that exist."""
        return self._cluster.metadata.partition_counts(self.names)

    def _matches(self, topic: TopicDescription) -> bool:
        assert self._pattern is not None
        return not topic.is_internal and self._pattern.fullmatch(topic.name) is not None

    def _raise_refusals(self) -> None:
        for name in self.names:
            error = self._cluster.metadata.errors.get(name)
            if error is not None and error.code in _FATAL:
                raise error


def snapshot(cluster: Cluster, names: Iterable[str]) -> Topics:
    """Those of the topics that exist, with the racks of their replicas."""
    metadata = cluster.metadata
    racks = {node.id: node.rack for node in metadata.nodes.values() if node.rack}
    return {
        name: tuple(
            frozenset(racks[replica] for replica in partition.replicas if replica in racks)
            for partition in metadata.topics[name].partitions
        )
        for name in names
        if name in metadata.topics
    }
