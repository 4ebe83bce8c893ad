"""The topics that a consumer wants, and what has become of them."""

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
    """Names, a pattern that topics' names match as a whole, or topics everywhere.

    Of the latter two, internal topics never are any.
    """

    def __init__(self, cluster: Cluster, wanted: TopicSelection) -> None:
        if isinstance(wanted, str | bytes):
            raise ConfigError("topics are several names, or a compiled pattern; not one string")
        self._cluster = cluster
        self._pattern: re.Pattern[str] | None = None
        self._mirrored: MirroredTopics | None = None
        self.names: tuple[str, ...] = ()
        """Those that are wanted; without names, those that there were at the last look."""
        if isinstance(wanted, re.Pattern):
            self._pattern = wanted
        elif isinstance(wanted, Everywhere):
            self._mirrored = _mirrored(cluster, wanted)
        else:
            self.names = tuple(sorted(set(wanted)))

    async def refresh(self, others: Iterable[str] = ()) -> None:
        """Look at what there is, of ``others`` too.

        Raises :class:`~qbus.errors.ApiError`, also for a topic by name that we may not read.
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


def _mirrored(cluster: Cluster, wanted: Everywhere) -> "MirroredTopics":
    from .mirrored_topics import MirroredTopics  # noqa: PLC0415 - most programs need none of it

    return MirroredTopics(cluster, wanted)


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


class GroupTopics:
    """What this member wants and, as long as it leads the group, what the group does."""

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
        """Want others."""
        self._wanted = wanted

    async def refresh(self) -> None:
        """Look at the topics again; raises :class:`~qbus.errors.ApiError`."""
        await self._wanted.refresh(self._leads_for)

    def join(self) -> tuple[str, ...]:
        """The topics to join for; who leads the new generation is not known yet."""
        self._joined_for, self._leads_for = self._wanted.names, frozenset()
        return self._joined_for

    async def lead(self, names: Iterable[str]) -> Topics:
        """As the leader, the topics ``names`` as they are now; changes will be told of."""
        names = frozenset(names)
        if others := names.difference(self._wanted.names):
            await self._cluster.refresh(others)
        self._leads_for = names
        self._assigned = snapshot(self._cluster, names)
        return self._assigned

    def reason_to_rejoin(self) -> str | None:
        """What has changed since the member joined, and concerns the group; None: nothing."""
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
