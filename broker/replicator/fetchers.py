"""Replication on the follower's side: fetching all partitions that this broker follows."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from qbus.clock import Clock
from qbus.config import BrokerConfig

from ..metrics import Metrics
from ..peers.client import PeerClient, PeerSettings, Registrations
from .fetch_loop import FetchSettings
from .leader_fetcher import LeaderFetcher
from .metrics import FetchMetrics
from .partition_fetch_state import PartitionFetchState, Replica
from .repair import LogRepair, RebuildGuard, Repairable
from .throttle import Throttle, Topics


class Metadata(Registrations, Topics, Protocol):
    """The part of the cluster's metadata that fetching reads."""


class ReplicaFetchers:
    """One fetcher for each broker that leads a partition which this broker follows."""

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
        self._peers = PeerClient(
            metadata,
            PeerSettings.of(
                config,
                f"broker-{node_id}-fetcher",
                # The first batch of a response may be as large as any that can be produced.
                max_frame=config.replica_fetch_response_max_bytes + config.socket_request_max_bytes,
                receive_buffer=config.replica_socket_receive_buffer_bytes,
            ),
        )
        self._throttle = Throttle(node_id, config, metadata, clock)
        max_lag_s = config.replica_lag_time_max_ms / 1000
        self._rebuild_guard = RebuildGuard(node_id, metadata, clock, max_lag_s)
        self._repair = LogRepair(node_id, metadata, self._peers)
        self._clock = clock
        self._metrics = FetchMetrics()
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._states: dict[Replica, tuple[LeaderFetcher, PartitionFetchState]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self._metrics.register(metrics, self._all)

    async def stop(self) -> None:
        """Stop fetching for good; return when nothing is under way."""
        self._is_stopped = True
        self._states.clear()
        fetchers, self._fetchers = self._fetchers, {}
        self._peers.close()
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers.values()), *self._ending)

    def add(self, partition: Replica, leader_id: int, leader_epoch: int) -> None:
        """Fetch a partition from this leader in this epoch, and from no other.

        Does nothing after :meth:`stop`: the metadata still tells of elections then.
        """
        if self._is_stopped:
            return
        _, before = self._states.get(partition, (None, None))
        self.remove(partition)
        settings = self._settings
        state = PartitionFetchState(
            partition,
            self._topic_id(partition),
            leader_epoch,
            max_bytes=settings.partition_max_bytes,
            backoff_s=settings.backoff_s,
        )
        state.fetched_at = before.fetched_at if before is not None else None
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._new_fetcher(leader_id)
        self._states[partition] = fetcher, state
        fetcher.add(state)

    def remove(self, partition: Replica) -> None:
        """Stop fetching a partition; a truncation that is under way goes on."""
        fetcher, state = self._states.pop(partition, (None, None))
        if fetcher is None or state is None:
            return
        fetcher.remove(state)
        if not len(fetcher):
            self._end(fetcher)

    def is_failing(self, partition: Replica) -> bool:
        """Whether the last fetch of a partition failed."""
        _, state = self._states.get(partition, (None, None))
        return state is not None and state.is_failing

    async def repair(self, partitions: Iterable[Repairable]) -> None:
        """Repair the corrupt batches of partitions that this broker leads or follows."""
        self._metrics.repairs += await self._repair.run(partitions)

    def _new_fetcher(self, leader_id: int) -> LeaderFetcher:
        fetcher = self._fetchers[leader_id] = LeaderFetcher(
            leader_id,
            self._peers,
            self._settings,
            self._throttle,
            self._rebuild_guard,
            self._metrics,
            self._clock,
        )
        return fetcher

    def _end(self, fetcher: LeaderFetcher) -> None:
        self._fetchers = {
            leader: known for leader, known in self._fetchers.items() if known is not fetcher
        }
        task = asyncio.get_running_loop().create_task(fetcher.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _topic_id(self, partition: Replica) -> bytes:
        if partition.log.topic_id is not None:
            return partition.log.topic_id
        return self._metadata.topics[partition.topic].id

    def _all(self) -> list[PartitionFetchState]:
        # Copied first, at once: metrics are read in another thread.
        return [state for _, state in list(self._states.values())]
