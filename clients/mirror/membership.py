"""Membership in a link's consumer group, which divides its partitions among its processes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from qbus.errors import ApiError

from ..group.assignors import assignors_of
from ..group.options import Callbacks, GroupOptions
from ..group.rebalance import Rebalance
from ..group.topics import SubscribedTopics
from ..net.cluster import Cluster
from ..types import OffsetAndMetadata, TopicPartition
from .config import LinkConfig

_TICK = 1.0
_HEARTBEATS = 3
"""Heartbeats per session timeout."""


class OwnedPartitions:
    """The target's partitions that this process writes. Nothing is committed for them."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.active: set[TopicPartition] = set()
        self._all: set[TopicPartition] = set()
        self._changed = changed

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._all)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Take over these partitions."""
        added = set(partitions)
        self._all |= added
        self.active |= added
        self._changed()

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop writing these partitions: they go to another process."""
        self.active.difference_update(partitions)
        self._changed()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Give these partitions up."""
        gone = set(partitions)
        self._all -= gone
        self.active -= gone
        self._changed()

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Nothing: a partition goes on where the target's log ends."""
        return {}

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Ignored: nothing is committed."""


class LinkMembership:
    """A member of the link's group; ``owned`` is what the group assigns to this process.

    ``release`` is awaited before partitions go to another process: it drains what is in flight.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: LinkConfig,
        changed: Callable[[], None],
        release: Callable[[], Awaitable[None]],
    ) -> None:
        self.owned = OwnedPartitions(changed)
        self._cluster = cluster
        self._may_have_grown = False
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
        self._rebalance = Rebalance(cluster, options, self.owned, self._wakeup, auto_commit=False)

    def subscribe(self, names: Iterable[str]) -> None:
        """Divide the partitions of these topics of the target, as many as they have by now."""
        wanted = frozenset(names)
        self._may_have_grown = True
        if wanted != self._names and (wanted or self._names):
            self._names = wanted
            self._rebalance.subscribe(SubscribedTopics(self._cluster, wanted))
            self._wakeup.set()

    async def run(self) -> None:
        """Be a member until cancelled; raises :class:`~qbus.errors.ApiError` if refused."""
        while True:
            self._wakeup.clear()
            if self._names is not None:
                await self._rebalance.poll()
                if self._may_have_grown:
                    self._may_have_grown = False
                    await self._refresh()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK):
                    await self._wakeup.wait()

    async def close(self) -> None:
        """Leave the group; nothing may be in flight any more."""
        await self._rebalance.close(may_commit=False)

    async def _refresh(self) -> None:
        try:
            await self._rebalance.check_topics()
        except ApiError as error:
            if not error.retriable:
                raise
            self._may_have_grown = True  # ask again
