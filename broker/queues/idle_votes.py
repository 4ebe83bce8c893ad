"""The partitions of idle queues that this broker leads: it votes for the deletion of their topics.

A queue may have partitions on several brokers, and is deleted once the leaders of all of them have
voted for that (:mod:`qbus.broker.controller.idle_queues`). Votes lie in the metadata store::

    used --- idle for its time, all jobs done ---> paused ------> voted ---> the topic is deleted
      ^                                              |              |
      +------------- used, or configured otherwise --+--------------+

A partition that is paused refuses appends. It is paused before its vote is written, and resumed
after the transaction that takes the vote back; that transaction checks that the topic is still
there. So no append is acknowledged that the deletion would take along: the deletion checks that the
votes are those that it was decided from. An append that is refused has the vote taken back at once.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from qbus.clock import Clock
from qbus.errors import ErrorCode
from qbus.metadata import Check, Create, MetadataStore, NodeError, Op, Set, StoreError
from qbus.metadata.znodes import BrokerEpochNode, IdleQueuesNode, IdleVote

from ..delay.log_throttle import LogThrottle
from ..metadata.image import Topic
from ..partition.background_tasks import BackgroundTasks
from ..partition.events import PartitionListener
from ..partition.partition import Partition
from ..turns import in_pieces
from .idle import IdleTime, Use
from .service import QueueService

_log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
"""How often partitions are looked at, in seconds."""

MOST_VOTES: Final = 4_000
"""How many votes a broker has in the store at most: 40 bytes each."""

_REASON: Final = "its queue is idle"
_ATTEMPTS: Final = 5
_UNKNOWN: Final = -2
_NO_NODE: Final = -1


class Metadata(Protocol):
    """What is known of the cluster."""

    @property
    def topics_by_id(self) -> Mapping[bytes, Topic]:
        """The topics, by id."""

    async def catch_up(self) -> None:
        """Return when everything is known that was in the store at the call."""


class IdleVotes(PartitionListener[Partition]):
    """Follows the queues that this broker leads partitions of, and votes for those that are idle.

    ``users`` say whether a client uses a partition now in a way that cannot be seen of it.
    """

    def __init__(
        self,
        store: MetadataStore,
        metadata: Metadata,
        clock: Clock,
        queues: QueueService,
        broker: tuple[int, int],
    ) -> None:
        """``broker``: the id of this one, and the epoch of its registration."""
        self.users: list[Callable[[Partition], bool]] = []
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._queues = queues
        self._node_id, self._broker_epoch = broker
        self._led: dict[Partition, IdleTime | None] = {}  # None: seen by no look yet
        self._votes: dict[Partition, IdleVote] = {}  # of the partitions that are paused
        self._stored: tuple[IdleVote, ...] = ()
        self._version = _UNKNOWN  # of the node
        self._looking = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None  # a look that has not begun
        self._lines = LogThrottle(clock)

    def register(self, tasks: BackgroundTasks) -> None:
        """Look at the partitions from now on."""
        tasks.add("look for idle queues", LOOK_S, self.look)

    async def close(self) -> None:
        """Begin nothing more."""
        if self._next is not None:
            self._next.cancel()
            with suppress(asyncio.CancelledError):
                await self._next

    @property
    def votes(self) -> int:
        """How many partitions are paused, as their queues are idle."""
        return len(self._votes)

    # The partitions

    def leading(self, partition: Partition, leader_epoch: int) -> None:  # noqa: ARG002
        """See :class:`PartitionListener`: a vote of an earlier epoch is void."""
        self._forget_vote(partition)
        self._led.setdefault(partition, None)

    def stepping_down(self, partition: Partition, code: ErrorCode) -> None:  # noqa: ARG002
        """See :class:`PartitionListener`."""
        self._forget_vote(partition)
        self._led.pop(partition, None)

    def closed(self, partition: Partition) -> None:
        """See :class:`PartitionListener`."""
        self.stepping_down(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _forget_vote(self, partition: Partition) -> None:
        if self._votes.pop(partition, None) is not None:
            partition.resume_appends(_REASON)

    # Looking

    async def reclaim(self, partitions: Sequence[Partition]) -> None:
        """Take back the votes for some partitions that are wanted.

        On return each takes appends again, or is closed, as its topic was deleted; or it is still
        paused, if the metadata store cannot be used.
        """
        for partition in partitions:
            self._note_use(partition)
        await asyncio.shield(self._look_soon())

    def _note_use(self, partition: Partition) -> None:
        idle = self._led.get(partition)
        if idle is not None:
            idle.used(self._clock.monotonic())

    def _on_refused(self, partition: Partition) -> None:
        self._note_use(partition)
        self._look_soon()

    def _look_soon(self) -> asyncio.Task[None]:
        if self._next is None:
            self._next = asyncio.create_task(self.look(), name="look for idle queues")
        return self._next

    async def look(self) -> None:
        """See which partitions are idle now, and vote accordingly."""
        async with self._looking:
            if self._next is asyncio.current_task():
                self._next = None  # who comes now needs another one
            await self._follow()
            wanted = await self._choose()
            if wanted != set(self._votes) or tuple(self._votes.values()) != self._stored:
                await self._vote(wanted)

    async def _follow(self) -> None:
        """Begin with partitions that are new."""
        new = [one for one, idle in self._led.items() if idle is None and _limit_s(one) >= 0]
        if new:
            paths = [one.log.directory for one in new]
            written = await asyncio.to_thread(lambda: [_written_at(path) for path in paths])
            now, wall = self._clock.monotonic(), self._clock.time_ms() / 1000
            for one, at in zip(new, written, strict=True):
                if self._led.get(one, self) is None:
                    self._led[one] = IdleTime(now, wall - at)

    async def _choose(self) -> set[Partition]:
        """The partitions that are idle; those that were not are paused."""
        wanted: set[Partition] = set()
        async for some in in_pieces(list(self._led)):
            for partition in some:
                topic = self._metadata.topics_by_id.get(partition.log.topic_id or b"")
                if topic is None or not topic.has_identity or len(wanted) == MOST_VOTES:
                    continue
                if self._is_idle(partition):
                    wanted.add(partition)
                    if partition not in self._votes:
                        self._pause(partition, topic)
        return wanted

    def _is_idle(self, partition: Partition) -> bool:
        idle, limit_s = self._led.get(partition), _limit_s(partition)
        if idle is None or limit_s < 0 or partition.error:
            return False
        now = self._clock.monotonic()
        idle.saw(self._use_of(partition), now)
        return idle.is_over(limit_s, now) and self._is_empty(partition)

    def _use_of(self, partition: Partition) -> Use:
        is_waited_for = bool(partition.watchers or partition.committed_watchers)
        return Use(
            partition.log.log_end_offset,
            partition.bytes_out,
            self._queues.used_at(partition),
            is_waited_for or any(is_used(partition) for is_used in self.users),
        )

    def _is_empty(self, partition: Partition) -> bool:
        """Whether all that is in it is acknowledged and done, and no transaction is open."""
        is_stable = partition.last_stable_offset >= partition.log.log_end_offset
        return is_stable and self._queues.is_done(partition)

    def _pause(self, partition: Partition, topic: Topic) -> None:
        partition.pause_appends(_REASON, self._on_refused)
        vote = IdleVote(topic.id, partition.index, partition.leader_epoch)
        self._votes[partition] = vote

    # Voting

    async def _vote(self, wanted: set[Partition]) -> None:
        """Write the votes for ``wanted``, and resume the partitions that have none any more."""
        try:
            for _ in range(_ATTEMPTS):
                if await self._write(wanted):
                    return
        except StoreError as error:
            self._version = _UNKNOWN
            if self._lines.allows():
                _log.warning(
                    "%d partitions of idle queues are paused until the metadata store can be used:"
                    " %s",
                    len(self._votes),
                    error,
                )

    async def _write(self, wanted: set[Partition]) -> bool:
        """Write them once; false: something is otherwise than was known, it is read by now."""
        kept = {one: vote for one, vote in self._votes.items() if one in wanted}
        dropped = {one: vote for one, vote in self._votes.items() if one not in wanted}
        path = IdleQueuesNode.path(self._node_id)
        guards: list[Op] = [Check(BrokerEpochNode.path(self._node_id), self._broker_epoch)]
        for topic_id in {vote.topic_id for vote in dropped.values()}:
            topic = self._metadata.topics_by_id.get(topic_id)
            if topic is not None:
                guards += topic.guards
        deleted = [
            one for one, vote in dropped.items() if vote.topic_id not in self._metadata.topics_by_id
        ]
        try:
            if self._version == _UNKNOWN:
                node = await self._store.get(path)
                self._version = _NO_NODE if node is None else node.version
            data = IdleQueuesNode(self._broker_epoch, tuple(kept.values())).encode()
            is_new = self._version == _NO_NODE
            write = Create(path, data, ephemeral=True) if is_new else Set(path, data, self._version)
            await self._store.transaction([*guards, write])
        except NodeError as error:
            if error.path == path:
                self._version = _UNKNOWN
            else:  # a topic was deleted that votes are taken back for
                await self._metadata.catch_up()
            return False
        self._version += 1
        self._stored = tuple(kept.values())
        for partition in dropped:
            if partition in deleted:  # it is closed soon
                self._votes.pop(partition, None)
            else:
                self._forget_vote(partition)
        return True


def _limit_s(partition: Partition) -> float:
    """The idle time-out of a partition's queue; less than 0: it has none."""
    config = partition.log.config
    return -1.0 if config.qbus_mirror_source else config.qbus_queue_idle_ms / 1000


def _written_at(directory: str) -> float:
    """When something was last written to a log, in seconds since the Unix epoch. For a thread."""
    try:
        with os.scandir(directory) as entries:
            times = [one.stat().st_mtime for one in entries if one.name.endswith(".log")]
    except OSError:  # it is closed, or its disk fails
        return float("inf")
    return max(times, default=float("inf"))
