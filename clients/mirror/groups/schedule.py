"""Carrying offsets over again and again."""

import asyncio
import logging

from qbus.clock import Clock
from qbus.errors import QbusError

from ..status import GroupsStatus
from .offset_sync import OffsetSync

_log = logging.getLogger(__name__)

_NAMED = 50
"""Skipped groups that the status names."""


class GroupSchedule:
    """Carries at each interval, whatever happened the time before."""

    def __init__(self, carrier: OffsetSync, interval_s: float, clock: Clock) -> None:
        self._carrier = carrier
        self._interval_s = interval_s
        self._clock = clock
        self.status = GroupsStatus()

    async def run(self) -> None:
        """Carry until cancelled."""
        while True:
            await self._carry()
            await asyncio.sleep(self._interval_s)

    async def _carry(self) -> None:
        before = self.status
        try:
            carried = await self._carrier.carry()
        except QbusError as error:
            if before.error is None:
                _log.warning("offsets of groups cannot be carried over: %s", error)
            self.status = GroupsStatus(
                offsets=before.offsets, carried_ms=before.carried_ms, error=str(error)
            )
            return
        skipped = [(one.group, one.skipped) for one in carried if one.skipped is not None]
        self.status = GroupsStatus(
            offsets=before.offsets + sum(len(one.offsets) for one in carried),
            carried_ms=self._clock.time_ms(),
            skipped=tuple(skipped[:_NAMED]),
        )
