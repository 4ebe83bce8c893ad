"""Syncing offsets at intervals."""

import asyncio
import logging

from qbus.clock import Clock
from qbus.errors import QbusError

from ..status import GroupsStatus
from .offset_sync import OffsetSync

_log = logging.getLogger(__name__)

_NAMED = 50
"""The most skipped groups that the status names."""


class OffsetSyncSchedule:
    """Syncs at each interval, even if the sync before failed."""

    def __init__(self, offset_sync: OffsetSync, interval_s: float, clock: Clock) -> None:
        self._offset_sync = offset_sync
        self._interval_s = interval_s
        self._clock = clock
        self.status = GroupsStatus()

    async def run(self) -> None:
        """Sync until cancelled."""
        while True:
            await self._sync()
            await asyncio.sleep(self._interval_s)

    async def _sync(self) -> None:
        before = self.status
        try:
            synced = await self._offset_sync.sync()
        except QbusError as error:
            if before.error is None:
                _log.warning("the offsets of groups cannot be synced: %s", error)
            self.status = GroupsStatus(
                offsets=before.offsets, carried_ms=before.carried_ms, error=str(error)
            )
            return
        skipped = [(group.group, group.skipped) for group in synced if group.skipped is not None]
        self.status = GroupsStatus(
            offsets=before.offsets + sum(len(group.offsets) for group in synced),
            carried_ms=self._clock.time_ms(),
            skipped=tuple(skipped[:_NAMED]),
        )
