"""Who is in sync: asked of the followers of what is led here, and written to the store.

Each change is a compare-and-set of the partition's state that also checks that the metadata it was
made from is no older controller's, and that whoever comes in sync is still registered as it was
when it asked (KIP-903). The changes of many partitions go in one transaction.

Answers of the store get lost, so a change whose outcome is not known is written again as it was,
until what the store has says how it came out.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from qbus.clock import Clock
from qbus.errors import ApiError
from qbus.metadata import MetadataStore, StoreError

from ..kafka.replica_sessions import ReplicaSessions
from ..metadata.image import Event, Topic
from .isr_writing import Change, write
from .metadata import Metadata
from .partition import Partition

_log = logging.getLogger(__name__)

MAX_CHANGES = 500
RETRY_S = 1.0
_ROUNDS = 2  # of looking for the slow in the time that they have


class IsrChanges:
    """Proposes changes, writes them, and tells the partitions of their outcome."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: Metadata,
        sessions: ReplicaSessions,
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
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to write, and to look for those who are slow."""
        self._tasks = [
            asyncio.create_task(self._write_all()),
            asyncio.create_task(self._every(self._max_lag_s / _ROUNDS, self.look)),
            asyncio.create_task(self._every(RETRY_S, self.retry)),
        ]

    async def stop(self) -> None:
        """Write nothing any more."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def consider(self, partition: Partition, replica: int) -> None:
        """``replica`` has asked, and may come in sync, if it is not."""
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
        """Others may have changed who is in sync: write off at once who has to be."""
        for partition in self._partitions:
            followers = partition.followers
            if followers is not None and followers.state.elr:
                self.propose(partition)

    def look(self) -> None:
        """Look who became too slow, or what else is due."""
        self._sessions.prune(self._clock.monotonic())
        for session in self._sessions:
            session.still_caught_up()
        for partition in self._partitions:
            self.propose(partition)

    def retry(self) -> None:
        """Write once more what has no known outcome."""
        if self._open:
            self._wanted.set()

    async def _write_all(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._write_open()
            except (StoreError, ApiError) as error:
                _log.info("changes of in-sync replicas could not be written: %s", error)
            except Exception:  # noqa: BLE001 - next time it may work
                _log.exception("changes of in-sync replicas could not be written")

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
            _log.info("%s: in sync are %s instead of %s", partition, after, before)

    async def _every(self, seconds: float, work: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                work()
            except Exception:  # noqa: BLE001 - next time it may work
                _log.exception("looking at the in-sync replicas failed")
