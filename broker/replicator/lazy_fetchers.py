"""Loads the fetchers when the first partition is followed: a lone broker never needs them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qbus.clock import Clock
from qbus.config import BrokerConfig

from ..metrics import Metrics
from ..partition.metadata import Metadata
from ..partition.partition import Partition

if TYPE_CHECKING:
    from .fetchers import ReplicaFetchers


class LazyFetchers:
    """The replica fetchers of a broker, loaded on first use."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        broker_epoch: int,
        metadata: Metadata,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """``broker_epoch`` is that of this broker's registration (KIP-903)."""
        self._config = config
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._metadata = metadata
        self._clock = clock
        self._metrics = metrics
        self._fetchers: ReplicaFetchers | None = None
        self._is_stopped = False

    def add(self, partition: Partition, leader_id: int, leader_epoch: int) -> None:
        """Fetch a partition from this leader in this epoch, and from no other.

        Does nothing after :meth:`stop`.
        """
        if not self._is_stopped:
            self._loaded().add(partition, leader_id, leader_epoch)

    def remove(self, partition: Partition) -> None:
        """Stop fetching a partition; a truncation that is under way goes on."""
        if self._fetchers is not None:
            self._fetchers.remove(partition)

    def is_failing(self, partition: Partition) -> bool:
        """Whether the last fetch of a partition failed."""
        return self._fetchers is not None and self._fetchers.is_failing(partition)

    async def repair(self, partitions: Iterable[Partition]) -> None:
        """Repair corrupt batches with what other replicas have."""
        bad = [part for part in partitions if part.log.corruptions and part.log.is_usable]
        if bad and not self._is_stopped:
            await self._loaded().repair(bad)

    async def stop(self) -> None:
        """Stop fetching for good; return when nothing is under way."""
        self._is_stopped = True
        if self._fetchers is not None:
            await self._fetchers.stop()

    def _loaded(self) -> "ReplicaFetchers":
        if self._fetchers is None:
            self._fetchers = self._load()
        return self._fetchers

    def _load(self) -> "ReplicaFetchers":
        from .fetchers import ReplicaFetchers  # noqa: PLC0415 - only where somebody is followed

        return ReplicaFetchers(
            self._node_id,
            self._broker_epoch,
            self._metadata,
            self._clock,
            self._config,
            self._metrics,
        )
