"""Watching the topics of a group, to tell when it has to share them out anew."""

from collections.abc import Iterable

from ..net.cluster import Cluster
from .assignors import Topics
from .topics import WantedTopics, snapshot


class Watch:
    """What this member wants and, as long as it leads the group, what the group does."""

    def __init__(self, cluster: Cluster, rack: str | None) -> None:
        self._cluster = cluster
        self._rack = rack
        self._wanted = WantedTopics(cluster, ())
        self._joined_for: tuple[str, ...] = ()
        self._leads_for: frozenset[str] = frozenset()
        self._assigned: Topics = {}

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that this member wants."""
        return self._wanted.names

    def subscribe(self, wanted: WantedTopics) -> None:
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
