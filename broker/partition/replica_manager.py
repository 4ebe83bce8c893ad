"""The partitions of this broker: found by topic, flushed, and refused when their disk fails."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore, SessionState

from ..kafka.replica_sessions import ReplicaSessions
from ..log import Log, LogManager
from ..metrics import Metrics
from ..replicator.lazy_fetchers import LazyFetchers
from .background_tasks import BackgroundTasks
from .disqualification import Disqualification
from .flusher import Flusher
from .isr_changes import IsrChanges
from .leader_throttle import LeaderThrottle
from .leadership_lease import LeadershipLease
from .metadata import Metadata
from .metrics import show_disks, show_partitions, show_replication, show_waiting
from .partition import NO_EPOCH, Partition, Session
from .purgatory import Purgatory
from .registry import NOTHING, PartitionRegistry
from .roles import Roles

_READERS = 4


class ReplicaManager:
    """Everything that this broker does with partitions.

    ``purgatory`` has the requests that wait; ``readers`` are the threads for reads that would wait
    for a disk. Both are there from :meth:`start` on.
    """

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        logs: LogManager,
        metadata: Metadata,
        clock: Clock,
        metrics: Metrics,
        store: MetadataStore,
        broker_epoch: int,
    ) -> None:
        """``broker_epoch`` is that of this broker's registration."""
        self.fetch_max_bytes = config.fetch_max_bytes
        self._logs = logs
        self._metadata = metadata
        self._metrics = metrics
        self._store = store
        self._session = Session()
        self._fetchers = LazyFetchers(config, node_id, broker_epoch, metadata, clock, metrics)
        roles = Roles(node_id, self._fetchers, clock)
        hosting = PartitionRegistry(config, node_id, logs, metadata, self._make_partition, roles)
        self._hosting = hosting
        self._topics = hosting.topics
        throttle = LeaderThrottle(node_id, config, metadata, clock)
        self.sessions = ReplicaSessions(self, self._is_registered, throttle)
        max_lag_s = config.replica_lag_time_max_ms / 1000
        self.isr_changes = IsrChanges(store, metadata, self.sessions, hosting, clock, max_lag_s)
        self.disqualification = Disqualification(node_id, store, metadata, hosting, self._is_stuck)
        session_s = config.zookeeper_session_timeout_ms / 1000
        fetch_wait_s = config.replica_fetch_wait_max_ms / 1000
        self.doubts = LeadershipLease(metadata, hosting, clock, session_s, fetch_wait_s)
        repair = partial(self._fetchers.repair, hosting)
        disqualify = self.disqualification.look
        doubt = self.doubts.look
        self._upkeep = BackgroundTasks(
            config, hosting, logs, clock, hosting.retry, disqualify, repair, doubt
        )

    async def start(self) -> None:
        """Open the partitions of the metadata, which is loaded already, and follow it."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self.purgatory = Purgatory(loop)
        self.readers = ThreadPoolExecutor(_READERS, "qbus-read")
        self._flushers = {directory.path: Flusher(loop) for directory in self._logs.directories}
        for directory in self._logs.directories:
            directory.shared.health.on_failure(self._on_directory_failure)
        self._on_store_state(self._store.state)
        self._store.on_state(self._on_store_state)
        await self._hosting.start()
        self._upkeep.start()
        self._metadata.subscribe(self.isr_changes.follow)  # when the partitions know of it
        self.isr_changes.start()
        self._show()

    def drain(self) -> None:
        """Answer what waits for records; let nobody wait any more."""
        self.purgatory.fetches.drain()

    async def stop(self) -> None:
        """Finish what is under way on disk; the logs can be closed then."""
        self.drain()
        await self._fetchers.stop()
        await self.isr_changes.stop()
        self.sessions.close()
        await self._upkeep.stop()
        for flusher in self._flushers.values():
            await flusher.stop()
        await asyncio.to_thread(self.readers.shutdown)

    # Finding partitions

    def partitions_of(self, topic: str | bytes) -> Mapping[int, Partition]:
        """The partitions here, by index, of a topic given by its name or id."""
        return self._topics.get(topic, NOTHING)

    def get_partition(self, topic: str | bytes, index: int) -> Partition | None:
        """One partition, if it is here."""
        return self._topics.get(topic, NOTHING).get(index)

    def why_missing(self, topic: str | bytes, index: int) -> ErrorCode:
        """What a request gets for a partition that is not here."""
        return self._hosting.why_missing(topic, index)

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
        """Whether a follower does not get on because its disk is full."""
        path = partition.log.directory.rpartition("/")[0]
        is_full = any(one.is_full for one in self._logs.directories if one.path == path)
        return is_full and self._fetchers.is_failing(partition)

    def _on_store_state(self, state: SessionState) -> None:
        self._session.is_suspended = state is not SessionState.CONNECTED
        self.doubts.on_state(state)
        if not self._session.is_suspended:
            for partition in self._hosting:
                partition.advance()

    def _make_partition(self, topic: str, index: int, log: Log) -> Partition:
        data_dir = log.directory.rpartition("/")[0]
        flusher = self._flushers[data_dir]
        return Partition(topic, index, log, flusher, self._logs, self._session)

    def _on_directory_failure(self, path: str) -> None:
        """In whichever thread met the failure."""
        self._loop.call_soon_threadsafe(self._refuse_directory, path)

    def _refuse_directory(self, path: str) -> None:
        """Nothing in the directory is used any more until the broker restarts."""
        for partition in self._hosting:
            if partition.log.directory.startswith(f"{path}/"):
                partition.refuse(ErrorCode.KAFKA_STORAGE_ERROR)

    def _show(self) -> None:
        show_partitions(self._metrics, self._hosting)
        show_replication(self._metrics, self._hosting, self.isr_changes)
        show_disks(self._metrics, self._logs.directories)
        show_waiting(self._metrics, self.purgatory)
