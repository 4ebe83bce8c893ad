"""Tells the cluster when a disk of this broker is full, and when it has space again.

A broker without space for records cannot lead: the controller moves the leadership to others as
long as that lasts (:mod:`qbus.broker.controller.elections`).
"""

import asyncio
import logging
from collections.abc import Sequence

from qbus.metadata import MetadataStore, StoreError
from qbus.metadata.errors import MalformedNode

from .controller import announce_room
from .log.data_directory import DataDirectory
from .metadata.cache import MetadataCache
from .partition.background_tasks import BackgroundTasks

_log = logging.getLogger(__name__)

_INTERVAL_S = 1.0


class FullDisks:
    """Watches a broker's data directories, once it is registered."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: MetadataCache,
        directories: Sequence[DataDirectory],
        node_id: int,
        broker_epoch: int,
    ) -> None:
        """``broker_epoch`` is that of the registration."""
        self._store = store
        self._metadata = metadata
        self._directories = directories
        self._node_id = node_id
        self._broker_epoch = broker_epoch

    def register(self, tasks: BackgroundTasks) -> None:
        """Watch from now on, as a background task."""
        tasks.add("disk space", _INTERVAL_S, self.check)

    async def check(self) -> None:
        """Look for space, and tell the other brokers, if there are any, what changed."""
        full = [one for one in self._directories if one.is_full and not one.offline]
        for directory in full:
            await asyncio.to_thread(directory.look_for_room)
        is_full = any(one.is_full for one in full)
        brokers = self._metadata.brokers
        known = brokers.get(self._node_id)
        if known is None or known.is_full == is_full or len(brokers) == 1:
            return
        try:
            await announce_room(self._store, self._node_id, self._broker_epoch, is_full=is_full)
        except (StoreError, MalformedNode) as error:
            _log.info("cannot tell other brokers about full disks, trying again: %s", error)
