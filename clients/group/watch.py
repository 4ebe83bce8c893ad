"""Watching the topics of a group, to tell when it has to share them out anew."""

from collections.abc import Iterable

from ..cluster import Cluster
from .assignors import Topics
from .topics import WantedTopics, snapshot


class Watch:
    """What this member wants and, as long as it leads the group, what the group does."""

    def __init__(self, cluster: Cluster, rack: str | None) -> None:
        self._cluster = cluster
        self._rack = rack
        self._wanted = WantedTopics(cluster, ())
        self._joined_for: tuple[str, ...] = ()
        self._led: Topics | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that this member wants."""
        return self._wanted.names

    def subscribe(self, wanted: WantedTopics) -> None:
        """Want others."""
        self._wanted = wanted

    async def refresh(self) -> None:
        """Look at the topics again; raises :class:`~qbus.errors.ApiError`."""
        await self._wanted.refresh(self._led or ())

    def join(self) -> tuple[str, ...]:
        """The topics to join for; who leads the new generation is not known yet."""
        self._joined_for, self._led = self._wanted.names, None
        return self._joined_for

    async def lead(self, names: Iterable[str]) -> Topics:
        """As the leader, the topics ``names`` as they are now; changes will be told of."""
        names = set(names)
        if others := names.difference(self._wanted.names):
            await self._cluster.refresh(others)
        self._led = snapshot(self._cluster, names)
        return self._led

    def reason_to_rejoin(self) -> str | None:
        """What has changed since the member joined, and concerns the group; None: nothing."""
        if self._joined_for != self._wanted.names:
            return "subscription has changed"
        if self._led is None:
            return None
        now = snapshot(self._cluster, self._led)
        if self._rack is not None and now != self._led:
            return "topics or their racks have changed"
        if {name: len(now.get(name, ())) for name in self._led} != {
            name: len(partitions) for name, partitions in self._led.items()
        }:
            return "topics have changed"
        return None
