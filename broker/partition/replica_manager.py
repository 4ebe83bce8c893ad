"""The partitions of this broker: found by topic, flushed, and refused when their disk fails."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, TypeVar

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore, SessionState
from qbus.service.threads import Threads

from ..log import Log, LogManager, TopicPartition
from ..metrics import Metrics
from .background_tasks import BackgroundTasks
from .disqualification import Disqualification
from .events import PartitionEvents
from .flusher import FlushThreads
from .isr_changes import FollowerSessions, IsrChanges
from .leader_throttle import LeaderThrottle
from .leadership_lease import LeadershipLease
from .log_dir_moves import LogDirMoves
from .maintenance import SLOW_TICK_S, TICK_S, LogMaintenance
from .metadata import Metadata
from .metrics import register_metrics
from .partition import NO_EPOCH, Partition, StoreSession
from .purgatory import Purgatory
from .registry import NOTHING, PartitionRegistry
from .roles import Replicator, Roles

_READERS = 4
_DECODERS = 2  # whose memory, and share of the interpreter, are bounded by their number

IsLive = Callable[[int, int], bool]
S = TypeVar("S", bound=FollowerSessions)


class ReplicaManager(Generic[S]):
    """Everything that this broker does with partitions. Make it in a running event loop.

    ``events`` tells listeners what happens to partitions, ``tasks`` does work from time to time:
    services that stand on partitions subscribe to the one before the start, so that they see every
    partition opened, and add to the other at any time.
    ``purgatory`` has the requests that wait; ``readers`` are the threads for reads that would wait
    for a disk, ``decoders`` those for batches that take long to decompress or to decode;
    ``sessions`` are those of followers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        metadata: Metadata,
        clock: Clock,
        metrics: Metrics,
        store: MetadataStore,
        replicator: Replicator,
        make_sessions: Callable[[PartitionRegistry, IsLive, LeaderThrottle], S],
    ) -> None:
        """``make_sessions`` is given where partitions are found, and which brokers live."""
        loop, node_id = asyncio.get_running_loop(), config.node_id
        self.fetch_max_bytes = config.fetch_max_bytes
        self.events: PartitionEvents[Partition] = PartitionEvents()
        self.tasks = BackgroundTasks()
        self.purgatory = Purgatory(loop)
        self.readers = Threads(_READERS, "qbus-read")
        self.decoders = Threads(_DECODERS, "qbus-decode")
        self._loop = loop
        self._logs = logs
        self._metadata = metadata
        self._store = store
        self._session = StoreSession()
        self._flushers = {directory.path: FlushThreads(loop) for directory in logs.directories}
        self._replicator = replicator
        self._registry = registry = PartitionRegistry(
            config,
            node_id,
            logs,
            metadata,
            self._make_partition,
            Roles(node_id, replicator, clock),
            self.events,
        )
        self._topics = registry.topics
        self.log_dir_moves = LogDirMoves(registry, logs, config, clock)
        self.events.subscribe(self.log_dir_moves)
        self.maintenance = LogMaintenance(registry, logs, clock)
        self.sessions = make_sessions(
            registry, self._is_registered, LeaderThrottle(node_id, config, metadata, clock)
        )
        max_lag_s = config.replica_lag_time_max_ms / 1000
        self.isr_changes = IsrChanges(store, metadata, self.sessions, registry, clock, max_lag_s)
        self.disqualification = Disqualification(node_id, store, metadata, registry, self._is_stuck)
        session_s = config.zookeeper_session_timeout_ms / 1000
        fetch_wait_s = config.replica_fetch_wait_max_ms / 1000
        self.lease = LeadershipLease(metadata, registry, clock, session_s, fetch_wait_s)
        self._register_tasks(config)
        register_metrics(metrics, registry, self.isr_changes, logs.directories, self.purgatory)

    def _register_tasks(self, config: BrokerConfig) -> None:
        tasks, registry = self.tasks, self._registry
        self.maintenance.register(tasks, config)
        self.isr_changes.register(tasks)
        tasks.add("open partitions again", SLOW_TICK_S, registry.retry)
        tasks.add("disqualify replicas", TICK_S, self.disqualification.check)
        tasks.add("repair batches", SLOW_TICK_S, partial(self._replicator.repair, registry))
        tasks.add("leadership lease", TICK_S, self.lease.check)

    async def start(self) -> None:
        """Open the partitions of the metadata, which is loaded already, and follow it."""
        for directory in self._logs.directories:
            directory.shared.health.on_failure(self._on_directory_failure)
        self._on_store_state(self._store.state)
        self._store.on_state(self._on_store_state)
        await self._registry.start()
        self.tasks.start()
        self._metadata.subscribe(self.isr_changes.follow)  # when the partitions know of it
        self.isr_changes.start()
        await self.log_dir_moves.resume()

    def drain(self) -> None:
        """Answer the fetches that wait, now and from now on. Produces wait for acknowledgement."""
        self.purgatory.fetches.drain()

    async def stop(self) -> None:
        """Finish what is under way on disk; the logs can be closed then."""
        self.drain()
        await self.log_dir_moves.stop()
        await self._registry.stop()
        await self._replicator.stop()
        await self.isr_changes.stop()
        self.sessions.close()
        self.maintenance.stop()
        await self.tasks.stop()
        await asyncio.to_thread(self.maintenance.checkpoint_high_watermarks)
        for flusher in self._flushers.values():
            await flusher.stop()
        await asyncio.to_thread(self.readers.shutdown)
        await asyncio.to_thread(self.decoders.shutdown)

    # Finding partitions

    def partitions_of(self, topic: str | bytes) -> Mapping[int, Partition]:
        """The partitions here, by index, of a topic given by its name or id."""
        return self._topics.get(topic, NOTHING)

    def get_partition(self, topic: str | bytes, index: int) -> Partition | None:
        """One partition, if it is here."""
        return self._topics.get(topic, NOTHING).get(index)

    def offline(self) -> frozenset[TopicPartition]:
        """The replicas that should be held here and cannot be used: their disk or log failed."""
        return self._registry.offline()

    def why_missing(self, topic: str | bytes, index: int) -> ErrorCode:
        """What a request gets for a partition that is not here."""
        return self._registry.why_missing(topic, index)

    def leader_of(self, topic: str | bytes, index: int, leader_epoch: int = NO_EPOCH) -> Partition:
        """One partition that is led here.

        Raises:
            ApiError: it is not, or not in ``leader_epoch``.
        """
        partition = self.get_partition(topic, index)
        code = partition.check(leader_epoch) if partition else self.why_missing(topic, index)
        if partition is None or code:
            raise ApiError(code)
        return partition

    def _is_registered(self, broker: int, epoch: int) -> bool:
        known = self._metadata.brokers.get(broker)
        return known is not None and known.epoch == epoch

    # When the metadata store, or disks, fail

    def _is_stuck(self, partition: Partition) -> bool:
        """Whether a follower falls behind because its disk is full."""
        return partition.log.has_full_disk and self._replicator.is_failing(partition)

    def _on_store_state(self, state: SessionState) -> None:
        """Acknowledge nothing without the store, and never again when the session is lost."""
        self._session.is_suspended = state is not SessionState.CONNECTED
        self.lease.on_state(state)
        for partition in self._registry:
            if state is SessionState.CONNECTED:
                partition.advance()
            elif state is SessionState.LOST:
                partition.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _make_partition(self, topic: str, index: int, log: Log) -> Partition:
        flusher = self._flushers[log.directory.rpartition("/")[0]]
        return Partition(topic, index, log, flusher, self._logs, self._session, self.events)

    def _on_directory_failure(self, path: str) -> None:
        """In whichever thread met the failure."""
        self._loop.call_soon_threadsafe(self._refuse_directory, path)

    def _refuse_directory(self, path: str) -> None:
        """Use nothing in the directory any more until the broker restarts."""
        for partition in self._registry:
            if partition.log.directory.startswith(f"{path}/"):
                partition.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
