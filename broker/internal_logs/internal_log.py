"""An internal log: a compacted topic of which each partition's leader keeps a state in memory.

It stands on the partitions' lifecycle: a broker that comes to lead a partition replays it, and
forgets the state when it leads no more. The topic is made when somebody first asks for a
coordinator.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode

from ..controller import NewTopic, TopicPlan
from ..metadata.image import BrokerInfo, Topic
from ..partition.background_tasks import BackgroundTasks
from ..partition.events import PartitionListener
from ..partition.partition import Partition
from .machine import M, Operation
from .shard import Check, LogCounts, Shard
from .topic import InternalTopic, partition_for

_log = logging.getLogger(__name__)

A = TypeVar("A")

_TICK_S: Final = 0.5
_PATIENCE_S: Final = 30.0
_FIRST_LOAD_S: Final = 2.0
_COMPLAIN_S: Final = 60.0


class LogMetadata(Protocol):
    """The part of the cluster's metadata that internal logs need."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that exist now, by name."""

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The live brokers, by id."""

    @property
    def suspected(self) -> set[tuple[str, int]]:
        """The partitions that may be led elsewhere by now, although this broker last led them."""


class TopicCreator(Protocol):
    """Makes topics."""

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicPlan | ApiError]:
        """Make topics; what became of each."""


class LogParts(NamedTuple):
    """What internal logs need of a broker."""

    clock: Clock
    metadata: LogMetadata
    controller: TopicCreator
    tasks: BackgroundTasks


class InternalLog(PartitionListener[Partition], Generic[M]):
    """The shards of one internal topic that this broker leads.

    ``on_loaded`` and ``on_unloaded`` are called when a shard can be asked, and when it cannot any
    more. Every method that asks raises ApiError: NOT_COORDINATOR, the partition is led elsewhere;
    COORDINATOR_LOAD_IN_PROGRESS, it is being replayed; COORDINATOR_NOT_AVAILABLE, it takes no
    records now, or what was stored may be lost.
    """

    def __init__(
        self,
        parts: LogParts,
        topic: Callable[[], InternalTopic],
        make_machine: Callable[[int], M],
        *,
        on_loaded: Callable[[Shard[M]], object] | None = None,
        on_unloaded: Callable[[Shard[M]], object] | None = None,
    ) -> None:
        """``topic`` tells how the topic is to be made, should it be; its name never changes.

        ``make_machine`` makes the state of the partition with that index.
        """
        self.name: Final = topic().name
        self.counts = LogCounts()
        self._topic = topic
        self._make_machine = make_machine
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded
        self._clock, self._metadata, self._controller, tasks = parts
        self._shards: dict[int, Shard[M]] = {}
        self._loading: dict[Shard[M], asyncio.Task[None]] = {}
        self._creating = asyncio.Lock()
        self._complained_at = float("-inf")
        tasks.add(f"look after {self.name}", _TICK_S, self.tick)

    # Finding the coordinator

    def partition_for(self, key: str) -> int:
        """The index of the partition that a key belongs to."""
        topic = self._metadata.topics.get(self.name)
        count = self._topic().partitions if topic is None else len(topic.partitions)
        return partition_for(key, count)

    async def coordinator(self, key: str) -> BrokerInfo | None:
        """The broker that a key belongs to, or None while there is none.

        The topic is made if it does not exist. Raises ApiError COORDINATOR_NOT_AVAILABLE when it
        cannot be.
        """
        is_new = self.name not in self._metadata.topics
        if is_new:
            await self._create()
        leader = self.leader(self.partition_for(key))
        if is_new:
            shard = self._shards.get(self.partition_for(key))
            if shard is not None:
                await _within(_FIRST_LOAD_S, shard.loaded)
        return leader

    def leader(self, index: int) -> BrokerInfo | None:
        """The live broker that leads a partition of the topic, if there is one."""
        topic = self._metadata.topics.get(self.name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        if (self.name, index) in self._metadata.suspected:
            return None
        return self._metadata.brokers.get(topic.partitions[index].leader)

    async def _create(self) -> None:
        async with self._creating:
            if self.name in self._metadata.topics:
                return
            wanted = self._topic()
            new = NewTopic(
                wanted.name, wanted.partitions, wanted.replication_factor, config=wanted.config
            )
            (outcome,) = await self._controller.create_topics([new])
            if not isinstance(outcome, ApiError):
                _log.info(
                    "the internal topic %s is created, partitions: %d, replicas of each: %d",
                    wanted.name,
                    wanted.partitions,
                    wanted.replication_factor,
                )
            elif outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                self._complain(outcome)
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(outcome)) from outcome

    def _complain(self, error: ApiError) -> None:
        """Tell the operator, but not for every client that tries again."""
        now = monotonic()
        if now - self._complained_at >= _COMPLAIN_S:
            self._complained_at = now
            _log.warning("the internal topic %s cannot be created: %s", self.name, error)

    # Asking

    async def ask(self, key: str, operation: Operation[M, A], *, check: Check | None = None) -> A:
        """Carry out a pure operation on the shard of ``key``; its answer.

        What it stores is acknowledged then. ``check`` is called with the partition just before the
        operation, and refuses it by raising ApiError.
        """
        return await self.submit(key, operation, check=check)

    def submit(
        self, key: str, operation: Operation[M, A], *, check: Check | None = None
    ) -> "asyncio.Future[A]":
        """The same, for many at a time: a future instead of a coroutine."""
        return self.shard(key).submit(operation, check)

    def shard(self, key: str) -> Shard[M]:
        """The shard that a key belongs to, loaded. Raises ApiError."""
        shard = self._shards.get(self.partition_for(key))
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if not shard.is_ready:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def machine(self, key: str) -> M:
        """The state of the shard that a key belongs to. Do not change it. Raises ApiError."""
        return self.shard(key).machine

    def is_led(self, key: str) -> bool:
        """Whether this broker leads the partition that a key belongs to, loaded or not."""
        return self.partition_for(key) in self._shards

    def shards(self) -> Iterator[Shard[M]]:
        """The shards that are loaded here. For any thread."""
        return iter([shard for shard in list(self._shards.values()) if shard.is_ready])

    def machines(self) -> Iterator[M]:
        """Their states. Do not change them."""
        return (shard.machine for shard in self.shards())

    @property
    def loading(self) -> int:
        """How many shards are being loaded. For any thread."""
        return sum(not shard.is_ready for shard in list(self._shards.values()))

    # What happens to the partitions

    def leading(self, partition: Partition, leader_epoch: int) -> None:
        """See :class:`PartitionListener`: load what is led."""
        if partition.topic == self.name:
            self._unload(partition.index, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            self._load(partition, leader_epoch)

    def stepping_down(self, partition: Partition, code: ErrorCode) -> None:
        """See :class:`PartitionListener`."""
        if partition.topic == self.name:
            self._unload(partition.index, code)

    def closed(self, partition: Partition) -> None:
        """See :class:`PartitionListener`."""
        if partition.topic == self.name:
            self._unload(partition.index, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def transaction_ended(
        self, partition: Partition, producer_id: int, epoch: int, committed: bool
    ) -> None:
        """See :class:`PartitionListener`: a marker is in the log."""
        if partition.topic == self.name:
            shard = self._shards.get(partition.index)
            if shard is not None:
                shard.marked(producer_id, epoch, committed=committed)

    def _load(self, partition: Partition, leader_epoch: int) -> None:
        shard = Shard(
            partition,
            leader_epoch,
            self._make_machine,
            self._clock,
            self.counts,
            self._load_again,
        )
        self._shards[partition.index] = shard
        task = asyncio.get_running_loop().create_task(self._finish_loading(shard))
        self._loading[shard] = task
        task.add_done_callback(lambda _: self._loading.pop(shard, None))

    async def _finish_loading(self, shard: Shard[M]) -> None:
        started = monotonic()
        is_loaded = await shard.load()
        counts = self.counts
        if is_loaded and shard.is_ready:
            counts.loads += 1
            counts.load_s += monotonic() - started
            counts.replayed += shard.replayed
            if shard.replayed:
                _log.info("%s is loaded, records: %d", shard, shard.replayed)
            if self._on_loaded is not None:
                self._on_loaded(shard)

    def _load_again(self, shard: Shard[M]) -> None:
        """The state in memory may not be what is stored."""
        index = shard.partition.index
        if self._shards.get(index) is shard:
            self._unload(index, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            self._load(shard.partition, shard.epoch)

    def _unload(self, index: int, code: ErrorCode) -> None:
        shard = self._shards.pop(index, None)
        if shard is not None:
            was_ready = shard.is_ready
            shard.close(code)
            if was_ready and self._on_unloaded is not None:
                self._on_unloaded(shard)

    # From time to time

    def tick(self) -> None:
        """Have the shards do what is due."""
        for shard in list(self._shards.values()):
            shard.tick(_PATIENCE_S)

    async def stop(self) -> None:
        """Answer nothing any more; returns when nothing is under way."""
        for index in list(self._shards):
            self._unload(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        tasks = list(self._loading.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for an event, but no longer than that."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
