"""All that this broker copies from other brokers."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Protocol

from qbus.clock import Clock
from qbus.config import BrokerConfig

from ..metrics import Metrics
from .counts import Counts
from .leader_fetcher import LeaderFetcher
from .partition_fetch_state import PartitionFetchState, Replica
from .peers import Peers, Registered
from .refetching import Refetching
from .repairs import Repairable, Repairs
from .settings import FetchSettings
from .throttle import Throttle, Topics


class Metadata(Registered, Topics, Protocol):
    """What fetching needs of the cluster's metadata."""


class ReplicaFetchers:
    """One fetcher for each broker that leads a partition which is followed here."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: int,
        metadata: Metadata,
        clock: Clock,
        config: BrokerConfig,
        metrics: Metrics,
    ) -> None:
        """``broker_epoch`` is that of this broker's registration (KIP-903)."""
        self._settings = FetchSettings.of(config, node_id, broker_epoch)
        self._metadata = metadata
        self._peers = Peers(metadata, self._settings)
        self._throttle = Throttle(node_id, config, metadata, clock)
        max_lag_s = config.replica_lag_time_max_ms / 1000
        self._refetching = Refetching(node_id, metadata, clock, max_lag_s)
        self._repairs = Repairs(node_id, metadata, self._peers)
        self._clock = clock
        self._counts = Counts()
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._followed: dict[Replica, tuple[LeaderFetcher, PartitionFetchState]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_started = False
        self._show(metrics)

    def start(self) -> None:
        """Begin to copy what is followed, and what will be."""
        self._is_started = True
        for fetcher in self._fetchers.values():
            fetcher.start()

    async def stop(self) -> None:
        """Copy nothing any more; returns when nothing is under way."""
        self._is_started = False
        self._followed.clear()
        fetchers, self._fetchers = self._fetchers, {}
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers.values()), *self._ending)

    def follow(self, partition: Replica, leader_id: int, leader_epoch: int) -> None:
        """Copy a partition from that leader, in that epoch of it, and from no other."""
        _, before = self._followed.get(partition, (None, None))
        self.forget(partition)
        settings = self._settings
        one = PartitionFetchState(
            partition,
            self._topic_id(partition),
            leader_epoch,
            max_bytes=settings.partition_max_bytes,
            rest_s=settings.backoff_s,
        )
        one.asked_at = before.asked_at if before is not None else None
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._new_fetcher(leader_id)
        self._followed[partition] = fetcher, one
        fetcher.follow(one)

    def forget(self, partition: Replica) -> None:
        """Copy a partition from nobody; a truncation that is under way goes on."""
        fetcher, one = self._followed.pop(partition, (None, None))
        if fetcher is None or one is None:
            return
        fetcher.forget(one)
        if not len(fetcher):
            self._end(fetcher)

    def is_failing(self, partition: Replica) -> bool:
        """Whether a partition is copied, and could not be, the last time it was tried."""
        _, one = self._followed.get(partition, (None, None))
        return one is not None and one.is_failing

    async def repair(self, partitions: Iterable[Repairable]) -> None:
        """Replace what went bad on disk here, of partitions that are led or followed here."""
        self._counts.repairs += await self._repairs.repair(partitions)

    def _new_fetcher(self, leader_id: int) -> LeaderFetcher:
        fetcher = self._fetchers[leader_id] = LeaderFetcher(
            leader_id,
            self._peers,
            self._settings,
            self._throttle,
            self._refetching,
            self._counts,
            self._clock,
        )
        if self._is_started:
            fetcher.start()
        return fetcher

    def _end(self, fetcher: LeaderFetcher) -> None:
        self._fetchers = {
            one: known for one, known in self._fetchers.items() if known is not fetcher
        }
        if self._is_started:
            task = asyncio.get_running_loop().create_task(fetcher.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _topic_id(self, partition: Replica) -> bytes:
        if partition.log.topic_id is not None:
            return partition.log.topic_id
        return self._metadata.topics[partition.topic].id

    # Metrics

    def _all(self) -> Iterator[PartitionFetchState]:
        for _, one in list(self._followed.values()):
            yield one

    def _show(self, metrics: Metrics) -> None:
        counts = self._counts
        metrics.gauge(
            "followed_partitions",
            "Partitions that follow a leader here",
            lambda: len(self._followed),
        )
        metrics.gauge(
            "replica_lag_max",
            "Messages that the replica here which lacks most lacks of what is acknowledged",
            lambda: max((one.lag for one in self._all()), default=0),
        )
        metrics.gauge(
            "replica_lag",
            "Messages that all replicas here together lack of what is acknowledged",
            lambda: sum(one.lag for one in self._all()),
        )
        metrics.gauge(
            "failed_replicas",
            "Partitions that follow a leader and failed to, the last time it was tried",
            lambda: sum(one.is_failing for one in self._all()),
        )
        metrics.counter("replica_fetches", "Fetch requests to leaders", lambda: counts.requests)
        metrics.counter(
            "replica_fetched_bytes", "Bytes of batches copied from leaders", lambda: counts.bytes
        )
        metrics.counter(
            "replica_fetch_failures",
            "Times that a partition could not be copied and had to wait",
            lambda: counts.failures,
        )
        metrics.counter(
            "replica_corrupt_batches",
            "Batches from leaders, or at leaders, that were not as they should be",
            lambda: counts.corrupt,
        )
        metrics.counter(
            "repairs",
            "Damages on disk here that were mended out of what another replica has",
            lambda: counts.repairs,
        )
