"""The fetchers, from the first partition on that is followed: a broker alone never loads them."""

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
    """Follows leaders when there is one to follow."""

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

    def follow(self, partition: Partition, leader_id: int, leader_epoch: int) -> None:
        """Follow that leader from now on, and no other one."""
        self._loaded().follow(partition, leader_id, leader_epoch)

    def forget(self, partition: Partition) -> None:
        """Follow nobody."""
        if self._fetchers is not None:
            self._fetchers.forget(partition)

    def is_failing(self, partition: Partition) -> bool:
        """Whether a partition follows a leader, and failed to, the last time it was tried."""
        return self._fetchers is not None and self._fetchers.is_failing(partition)

    async def repair(self, partitions: Iterable[Partition]) -> None:
        """Replace what went bad on disk here by what other replicas have."""
        bad = [one for one in partitions if one.log.corruptions and one.log.is_usable]
        if bad:
            await self._loaded().repair(bad)

    async def stop(self) -> None:
        """Copy nothing any more; returns when nothing is under way."""
        if self._fetchers is not None:
            await self._fetchers.stop()

    def _loaded(self) -> "ReplicaFetchers":
        if self._fetchers is None:
            self._fetchers = self._load()
            self._fetchers.start()
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
