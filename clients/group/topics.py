"""The topics that a consumer subscribes to, and the topics of its group."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from qbus.errors import ConfigError, ErrorCode

from ..idcs import Everywhere
from ..net.cluster import Cluster
from ..types import TopicDescription
from .assignors import Topics

if TYPE_CHECKING:
    from .mirrored_topics import MirroredTopics

TopicSelection = Iterable[str] | re.Pattern[str] | Everywhere
_FATAL = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})


class SubscribedTopics:
    """Topics by name, by a pattern that whole names match, or of all datacenters.

    The latter two never include internal topics.
    """

    def __init__(self, cluster: Cluster, wanted: TopicSelection) -> None:
        if isinstance(wanted, str | bytes):
            raise ConfigError("topics are a list of names, or a compiled pattern; not one string")
        self._cluster = cluster
        self._pattern: re.Pattern[str] | None = None
        self._mirrored: MirroredTopics | None = None
        self.names: tuple[str, ...] = ()
        """The subscribed topics; for a pattern, those that existed at the last refresh."""
        if isinstance(wanted, re.Pattern):
            self._pattern = wanted
        elif isinstance(wanted, Everywhere):
            self._mirrored = _mirrored(cluster, wanted)
        else:
            self.names = tuple(sorted(set(wanted)))

    async def refresh(self, others: Iterable[str] = ()) -> None:
        """Refresh the metadata of these topics and ``others``.

        Raises :class:`~qbus.errors.ApiError`, also for a named topic that cannot be read.
        """
        if self._pattern is None and self._mirrored is None:
            await self._cluster.refresh({*self.names, *others})
            self._raise_refusals()
            return
        await self._cluster.refresh(None)
        found = self._cluster.metadata.topics.values()
        if self._mirrored is not None:
            self.names = await self._mirrored.among(found)
        else:
            self.names = tuple(sorted(topic.name for topic in found if self._matches(topic)))

    def counts(self) -> dict[str, int]:
        """Return the number of partitions of each existing topic."""
        return self._cluster.metadata.partition_counts(self.names)

    def _matches(self, topic: TopicDescription) -> bool:
        assert self._pattern is not None
        return not topic.is_internal and self._pattern.fullmatch(topic.name) is not None

    def _raise_refusals(self) -> None:
        for name in self.names:
            error = self._cluster.metadata.errors.get(name)
            if error is not None and error.code in _FATAL:
                raise error


def _mirrored(cluster: Cluster, wanted: Everywhere) -> "MirroredTopics":
    from .mirrored_topics import MirroredTopics  # noqa: PLC0415 - most programs need none of it

    return MirroredTopics(cluster, wanted)


def snapshot(cluster: Cluster, names: Iterable[str]) -> Topics:
    """Return the existing topics, with the racks of their replicas."""
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


class GroupTopics:
    """The topics that this member wants and, while it leads the group, those that the group
    wants.
    """

    def __init__(self, cluster: Cluster, rack: str | None) -> None:
        self._cluster = cluster
        self._rack = rack
        self._wanted = SubscribedTopics(cluster, ())
        self._joined_for: tuple[str, ...] = ()
        self._leads_for: frozenset[str] = frozenset()
        self._assigned: Topics = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that this member wants."""
        return self._wanted.names

    def subscribe(self, wanted: SubscribedTopics) -> None:
        """Change the topics that this member wants."""
        self._wanted = wanted

    async def refresh(self) -> None:
        """Refresh the topics' metadata; raise :class:`~qbus.errors.ApiError`."""
        await self._wanted.refresh(self._leads_for)

    def join(self) -> tuple[str, ...]:
        """Return the topics to join for; the leader of the new generation is not known yet."""
        self._joined_for, self._leads_for = self._wanted.names, frozenset()
        return self._joined_for

    async def lead(self, names: Iterable[str]) -> Topics:
        """Return the topics ``names`` as they are now, and watch them, as the leader."""
        names = frozenset(names)
        if others := names.difference(self._wanted.names):
            await self._cluster.refresh(others)
        self._leads_for = names
        self._assigned = snapshot(self._cluster, names)
        return self._assigned

    def reason_to_rejoin(self) -> str | None:
        """Return which change since the member joined concerns the group; None: none."""
        if self._joined_for != self._wanted.names:
            return "subscription has changed"
        if not self._leads_for:
            return None
        before, now = self._assigned, snapshot(self._cluster, self._leads_for)
        if self._rack is not None and now != before:
            return "topics or the racks of their replicas have changed"
        if _counts(now) != _counts(before):
            return "topics have changed"
        return None


def _counts(topics: Topics) -> dict[str, int]:
    return {name: len(partitions) for name, partitions in topics.items()}
