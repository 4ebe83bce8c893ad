"""The partitions of this broker: found by topic, flushed, and refused when their disk fails."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.errors import ApiError, ErrorCode

from ..log import Log, LogManager
from ..metrics import Metrics
from ..purgatory import Purgatory
from .flusher import Flusher
from .hosting import NOTHING, Hosting, Metadata
from .partition import NO_EPOCH, Partition, Session
from .roles import Roles
from .upkeep import Upkeep

_READERS = 4
_STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


class NoFetchers:
    """Nobody is followed."""

    def follow(self, partition: Partition, leader_id: int, leader_epoch: int) -> None:
        """Nothing comes of it."""

    def forget(self, partition: Partition) -> None:
        """Nothing was begun."""


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
    ) -> None:
        self.fetch_max_bytes = config.fetch_max_bytes
        self._logs = logs
        roles = Roles(node_id, NoFetchers(), clock)
        self._session = Session()
        self._hosting = Hosting(config, node_id, logs, metadata, self._make_partition, roles)
        self._topics = self._hosting.topics
        self._upkeep = Upkeep(config, self._hosting, logs, clock, self._hosting.retry)
        self._metrics = metrics

    async def start(self) -> None:
        """Open the partitions of the metadata, which is loaded already, and follow it."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self.purgatory = Purgatory(loop)
        self.readers = ThreadPoolExecutor(_READERS, "qbus-read")
        self._flushers = {directory.path: Flusher(loop) for directory in self._logs.directories}
        for directory in self._logs.directories:
            directory.shared.health.on_failure(self._on_directory_failure)
        await self._hosting.start()
        self._upkeep.start()
        self._show()

    def drain(self) -> None:
        """Answer what waits for records; let nobody wait any more."""
        self.purgatory.fetches.drain()

    async def stop(self) -> None:
        """Finish what is under way on disk; the logs can be closed then."""
        self.drain()
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

    # When disks fail

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

    # Metrics

    def _show(self) -> None:
        hosting, purgatory = self._hosting, self.purgatory
        gauge, counter = self._metrics.gauge, self._metrics.counter
        gauge("partitions", "Partitions held here", lambda: sum(1 for _ in hosting))
        gauge(
            "offline_partitions",
            "Partitions that cannot be used because of their disk",
            lambda: hosting.failed + sum(p.error is _STORAGE_ERROR for p in hosting),
        )
        gauge(
            "under_min_isr_partitions",
            "Partitions with fewer in-sync replicas than min.insync.replicas",
            lambda: sum(len(p.isr) < p.min_insync_replicas for p in hosting if not p.error),
        )
        gauge(
            "offline_data_directories",
            "Data directories that failed",
            lambda: sum(directory.offline for directory in self._logs.directories),
        )
        gauge("log_bytes", "Bytes of all logs", lambda: sum(p.log.size for p in hosting))
        gauge("delayed_fetches", "Fetches that wait for records", lambda: len(purgatory.fetches))
        gauge(
            "delayed_produces",
            "Produce requests that wait for their acknowledgement",
            lambda: len(purgatory.produces),
        )
        gauge(
            "corruptions",
            "Places where corrupt data was found; it is never served",
            lambda: sum(len(p.log.corruptions) for p in hosting),
        )
        counter(
            "produced_bytes",
            "Bytes of batches appended",
            lambda: hosting.retired_bytes_in + sum(p.bytes_in for p in hosting),
        )
        counter(
            "fetched_bytes",
            "Bytes of batches sent to clients",
            lambda: hosting.retired_bytes_out + sum(p.bytes_out for p in hosting),
        )
        counter(
            "produced_messages",
            "Messages appended",
            lambda: hosting.retired_messages_in + sum(p.messages_in for p in hosting),
        )
