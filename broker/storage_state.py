"""Announces what the disks of this broker keep it from: taking records, serving partitions.

A broker without space for records cannot lead: the controller moves the leadership to others as
long as that lasts (:mod:`qbus.broker.controller.elections`). Replicas whose data directory failed,
or whose log cannot be used, are offline replicas in every broker's Metadata; a partition with no
other replica has no leader there, as in Kafka.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from qbus.metadata import MetadataStore, StoreError
from qbus.metadata.errors import MalformedNode

from .controller import announce_storage
from .log.data_directory import DataDirectory
from .metadata.cache import MetadataCache
from .partition.background_tasks import BackgroundTasks

_log = logging.getLogger(__name__)

_INTERVAL_S = 1.0


class StorageState:
    """Watches a broker's data directories and replicas, once it is registered."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: MetadataCache,
        directories: Sequence[DataDirectory],
        offline: Callable[[], frozenset[tuple[str, int]]],
        node_id: int,
        broker_epoch: int,
    ) -> None:
        """``offline``: the replicas that cannot be used; ``broker_epoch``: of the registration."""
        self._store = store
        self._metadata = metadata
        self._directories = directories
        self._offline = offline
        self._node_id = node_id
        self._broker_epoch = broker_epoch

    def register(self, tasks: BackgroundTasks) -> None:
        """Watch from now on, as a background task."""
        tasks.add("storage state", _INTERVAL_S, self.check)

    async def check(self) -> None:
        """Look for space and for replicas that are offline; announce what changed."""
        full = [one for one in self._directories if one.is_full and not one.offline]
        for directory in full:
            await asyncio.to_thread(directory.look_for_room)
        brokers = self._metadata.brokers
        known = brokers.get(self._node_id)
        if known is None:
            return
        # A broker alone leads whether it is full or not: there is nothing to decide.
        is_full = any(one.is_full for one in full) if len(brokers) > 1 else known.is_full
        offline = self._offline()
        if (known.is_full, known.offline) == (is_full, offline):
            return
        epoch = self._broker_epoch
        try:
            await announce_storage(
                self._store, self._node_id, epoch, is_full=is_full, offline=offline
            )
        except (StoreError, MalformedNode) as error:
            _log.info("cannot announce the state of the disks, trying again: %s", error)
