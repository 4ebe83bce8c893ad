"""Sharing out a link's partitions among the processes that run it, by a group at the target."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from qbus.errors import ApiError

from ..group.assignors import assignors_of
from ..group.options import Callbacks, GroupOptions
from ..group.rebalance import Rebalance
from ..group.topics import WantedTopics
from ..net.cluster import Cluster
from ..types import OffsetAndMetadata, TopicPartition
from .config import LinkConfig

_TICK = 1.0
_HEARTBEATS = 3
"""So many to a session."""


class Ours:
    """The partitions of the target that are this process's to write. They commit nothing."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.active: set[TopicPartition] = set()
        self._all: set[TopicPartition] = set()
        self._changed = changed

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._all)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """These are ours too from now on."""
        added = set(partitions)
        self._all |= added
        self.active |= added
        self._changed()

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """These go to another process, as soon as nothing of them is under way."""
        self.active.difference_update(partitions)
        self._changed()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """These are ours no longer."""
        gone = set(partitions)
        self._all -= gone
        self.active -= gone
        self._changed()

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Nothing: where to go on is where the log ends."""
        return {}

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Nothing was."""


class Sharing:
    """A member of the link's group: keeps ``ours`` to what the group gives to this process.

    ``release`` is called before partitions go to another process, and waits for what is under way.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: LinkConfig,
        changed: Callable[[], None],
        release: Callable[[], Awaitable[None]],
    ) -> None:
        self.ours = Ours(changed)
        self._cluster = cluster
        self._config = config
        self._wakeup = asyncio.Event()
        self._names: frozenset[str] | None = None
        transfer = config.transfer
        session = transfer.session_timeout_ms / 1000

        async def revoked(_: list[TopicPartition]) -> None:
            await release()

        options = GroupOptions(
            group=config.group,
            instance_id=None,
            session_timeout=session,
            rebalance_timeout=session + transfer.drain_timeout_ms / 1000,
            heartbeat_interval=session / _HEARTBEATS,
            assignors=assignors_of(("cooperative-sticky",)),
            callbacks=Callbacks(on_revoked=revoked),
        )
        self._rebalance = Rebalance(cluster, options, self.ours, self._wakeup, auto_commit=False)

    def subscribe(self, names: Iterable[str]) -> None:
        """Share out the partitions of these topics of the target."""
        wanted = frozenset(names)
        if wanted != self._names and (wanted or self._names):
            self._names = wanted
            self._rebalance.subscribe(WantedTopics(self._cluster, wanted))
            self._wakeup.set()

    async def run(self) -> None:
        """Be a member until cancelled; raises :class:`~qbus.errors.ApiError` when refused."""
        look_at = 0.0
        while True:
            self._wakeup.clear()
            if self._names is not None:
                await self._rebalance.poll()
                if time.monotonic() >= look_at:
                    look_at = (
                        time.monotonic()
                        + self._config.topics_at_target.discovery_interval_ms / 1000
                    )
                    await self._look_around()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK):
                    await self._wakeup.wait()

    async def close(self) -> None:
        """Leave the group, once nothing is under way."""
        await self._rebalance.close(may_commit=False)

    async def _look_around(self) -> None:
        try:
            await self._rebalance.look_around()
        except ApiError as error:
            if not error.retriable:
                raise
