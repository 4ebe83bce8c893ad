"""Controlled shutdown: whoever stops has others lead first, so that clients hardly notice."""

import asyncio
import logging
from contextlib import suppress

from qbus.config import BrokerConfig
from qbus.metadata import MetadataStore

from ..metadata.cache import MetadataCache
from ..metadata.image import PartitionInfo
from .elections import handing_over, view_of
from .state_writes import StateWriter

_log = logging.getLogger(__name__)


class ControlledShutdown:
    """Gives away what one broker leads, which said before that it is about to leave."""

    def __init__(self, store: MetadataStore, metadata: MetadataCache, config: BrokerConfig) -> None:
        self._metadata = metadata
        self._node_id = config.node_id
        retries = config.controlled_shutdown_max_retries
        self._patience_s = retries * config.controlled_shutdown_retry_backoff_ms / 1000
        self._writer = StateWriter(store, metadata)

    async def carry_out(self) -> None:
        """Elect others where some are in sync, and wait a while for those who may come in sync.

        Raises:
            StoreUnavailable: the store cannot be used.
        """
        changed = asyncio.Event()
        self._metadata.subscribe(lambda _: changed.set())
        handed = await self._give()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                while any(map(self._is_hopeful, self._led())):
                    await changed.wait()
                    changed.clear()
                    handed += await self._give()
        left = len(self._led())
        _log.info("others lead %d partitions now; for %d there is nobody", handed, left)

    async def _give(self) -> int:
        metadata = self._metadata
        return await self._writer.settle(
            lambda: handing_over(metadata.topics.values(), self._node_id, view_of(metadata)),
            lambda: [metadata.fence()],
        )

    def _led(self) -> list[PartitionInfo]:
        return [
            partition
            for topic in self._metadata.topics.values()
            for partition in topic.partitions
            if partition.leader == self._node_id
        ]

    def _is_hopeful(self, partition: PartitionInfo) -> bool:
        brokers = self._metadata.brokers
        others = (brokers.get(one) for one in partition.replicas if one != self._node_id)
        return any(other is not None and not other.is_stopping for other in others)
