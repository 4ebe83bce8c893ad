"""Tells the cluster that there is no room here for more records, and when there is again.

Where a write failed for want of space, nothing more can be taken: others are to lead what is led
here, as long as that lasts. The controller sees to it (:mod:`qbus.broker.controller.elections`).
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from qbus.metadata import MetadataStore, StoreError
from qbus.metadata.errors import MalformedNode

from .controller import announce_room
from .log.data_directory import DataDirectory
from .metadata.cache import MetadataCache

_log = logging.getLogger(__name__)

_LOOK_S = 1.0


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
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch from now on."""
        self._task = asyncio.create_task(self._keep_looking(), name="full disks")

    async def stop(self) -> None:
        """Watch no longer."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def look(self) -> None:
        """See whether there is room, and tell if that is news; who is alone tells nobody."""
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
            _log.info("others are not told yet that there is no room here: %s", error)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - next time it may work
                _log.exception("looking for room failed")
