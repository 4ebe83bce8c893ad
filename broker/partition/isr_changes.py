"""Changes of the in-sync replicas (ISR) of partitions that are led here.

Each change is a compare-and-set of the partition's state. It also checks that the metadata it was
made from is no older controller's, and that a replica that is added is still registered as it was
when it fetched (KIP-903). The changes of many partitions go in one transaction.

Answers of the store get lost, so a change with an unknown outcome is written again as it was, until
the state in the store tells the outcome.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from qbus.clock import Clock
from qbus.errors import ApiError
from qbus.metadata import MetadataStore, StoreError

from ..metadata.image import Event, Topic
from .background_tasks import BackgroundTasks
from .isr_writing import Change, write
from .metadata import Metadata
from .partition import Partition

_log = logging.getLogger(__name__)

MAX_CHANGES = 500
RETRY_S = 1.0
_ROUNDS = 2  # of looking for the slow in the time that they have


class FollowerSession(Protocol):
    """The fetch session of a follower (KIP-227): it names a partition only when that changes."""

    def still_caught_up(self) -> None:
        """Tell the partitions of which the follower has everything that it still does."""


class FollowerSessions(Protocol):
    """The sessions of all followers."""

    def __iter__(self) -> Iterator[FollowerSession]: ...

    def prune(self, now: float) -> None:
        """Close the sessions that were not used for long."""

    def close(self) -> None:
        """Close all."""


class IsrChanges:
    """Proposes changes, writes them, and tells the partitions of their outcome."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: Metadata,
        sessions: FollowerSessions,
        partitions: Iterable[Partition],
        clock: Clock,
        max_lag_s: float,
    ) -> None:
        """``partitions`` is iterated anew each time. ``max_lag_s``: replica.lag.time.max.ms."""
        self.shrinks = 0
        self.expands = 0
        self._store = store
        self._metadata = metadata
        self._sessions = sessions
        self._partitions = partitions
        self._clock = clock
        self._max_lag_s = max_lag_s
        self._open: dict[Partition, None] = {}
        self._wanted = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    def register(self, tasks: BackgroundTasks) -> None:
        """Add the search for slow replicas, and for changes to be written again."""
        tasks.add("slow replicas", self._max_lag_s / _ROUNDS, self.check)
        tasks.add("unwritten ISR changes", RETRY_S, self.retry)

    def start(self) -> None:
        """Begin to write."""
        self._writer = asyncio.create_task(self._write_all())

    async def stop(self) -> None:
        """Write nothing any more."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])

    def consider(self, partition: Partition, replica: int) -> None:
        """Propose to add ``replica``, which fetched, if it is not in sync and may be."""
        followers = partition.followers
        if followers is not None and replica not in followers.state.isr:
            self.propose(partition)

    def propose(self, partition: Partition) -> None:
        """Write the change that is due of a partition that is led here, if one is."""
        followers = partition.followers
        if followers is None:
            return
        now = self._clock.monotonic()
        if followers.propose(now, self._max_lag_s, self._metadata.is_live) is not None:
            self._open[partition] = None
            self._wanted.set()

    def follow(self, _: Sequence[Event]) -> None:
        """Drop eligible replicas at once where others changed the ISR and that is due."""
        for partition in self._partitions:
            followers = partition.followers
            if followers is not None and followers.state.elr:
                self.propose(partition)

    def check(self) -> None:
        """Propose to remove replicas that became too slow, and whatever else is due."""
        self._sessions.prune(self._clock.monotonic())
        for session in self._sessions:
            session.still_caught_up()
        for partition in self._partitions:
            self.propose(partition)

    def retry(self) -> None:
        """Write again what has no known outcome."""
        if self._open:
            self._wanted.set()

    async def _write_all(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._write_open()
            except (StoreError, ApiError) as error:
                _log.info("cannot write ISR changes, which are tried again: %s", error)
            except Exception:  # noqa: BLE001 - next time it may work
                _log.exception("cannot write ISR changes, which are tried again")

    async def _write_open(self) -> None:
        changes = [change for partition in self._open if (change := self._change_of(partition))]
        self._open = {change.partition: None for change in changes}
        for start in range(0, len(changes), MAX_CHANGES):
            part = changes[start : start + MAX_CHANGES]
            fence, epoch = self._metadata.fence(), self._metadata.cluster.controller_epoch
            outcome = await write(self._store, part, fence, epoch)
            for change in outcome.refused:
                self._refused(change)
            for change in outcome.written:
                self._written(change)

    def _change_of(self, partition: Partition) -> Change | None:
        followers = partition.followers
        topic = self._topic_of(partition)
        if topic is None or followers is None or followers.proposed is None:
            return None
        return Change(topic, partition, followers, followers.proposed)

    def _topic_of(self, partition: Partition) -> Topic | None:
        """The very topic that ``partition`` was opened for; None: it is gone, if not from here."""
        topic_id = partition.log.topic_id
        if topic_id is None:  # as in directories that are older than ids
            return self._metadata.topics.get(partition.topic)
        return self._metadata.topics_by_id.get(topic_id)

    def _refused(self, change: Change) -> None:
        if change.followers.proposed is change.proposal:
            change.followers.refused()

    def _written(self, change: Change) -> None:
        _, partition, followers, proposal = change
        self._count(change)
        followers.learned(proposal.state, proposal.version + 1)
        if partition.followers is followers:
            partition.advance()
            self.propose(partition)  # what was eligible still may have to be written off now

    def _count(self, change: Change) -> None:
        _, partition, followers, proposal = change
        before, after = followers.state.isr, proposal.state.isr
        self.shrinks += bool(set(before) - set(after))
        self.expands += bool(set(after) - set(before))
        if before != after:
            _log.info("%s: in-sync replicas are %s, were %s", partition, after, before)
