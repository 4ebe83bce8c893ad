"""One attempt to run a link: the clients of both clusters, and what runs between them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from qbus.clock import SystemClock
from qbus.errors import ConfigError

from ..net.cluster import Cluster
from .checks import check_apart, takes_mirrors
from .config import LinkConfig
from .config.config import NEVER
from .fallback import Reproduction
from .groups import OffsetSync, OffsetSyncSchedule
from .link import MirrorLink
from .status import LinkStatus

_CLIENT_ID = "qbus-mirror"


class Work(Protocol):
    """What copies: a mirror link, or a reproduction if the target is no Qbus."""

    async def run(self) -> None:
        """Copy until cancelled."""

    def status(self) -> LinkStatus:
        """Return the status of the link."""


@asynccontextmanager
async def clusters(config: LinkConfig) -> AsyncIterator[tuple[Cluster, Cluster]]:
    """Clients of source and target, which are checked to be different clusters.

    Raises :class:`~qbus.errors.ConfigError` if they are the same one, and
    :class:`~qbus.errors.ApiError` if one of them cannot be reached.
    """
    timeout = config.transfer.request_timeout_ms / 1000
    there, here = config.source_security.security(), config.target_security.security()
    source = Cluster(config.source_bootstrap, _CLIENT_ID, timeout, security=there)
    target = Cluster(config.target_bootstrap, _CLIENT_ID, timeout, security=here)
    try:
        await check_apart(config, source, target)
        yield source, target
    finally:
        await source.close()
        await target.close()


@dataclass(frozen=True)
class Session:
    """A running link; ``schedule`` syncs the offsets of groups, if that is configured."""

    work: Work
    schedule: OffsetSyncSchedule | None

    async def run(self) -> None:
        """Mirror until cancelled. Raises :class:`~qbus.errors.QbusError`."""
        if self.schedule is None:
            await self.work.run()
            return
        syncing = asyncio.create_task(self.schedule.run())
        try:
            await self.work.run()
        finally:
            syncing.cancel()
            await asyncio.gather(syncing, return_exceptions=True)

    def status(self) -> LinkStatus:
        """Return the status of the link."""
        status = self.work.status()
        return status if self.schedule is None else replace(status, groups=self.schedule.status)


@asynccontextmanager
async def session(config: LinkConfig) -> AsyncIterator[Session]:
    """A session of a link, by the kind of its target.

    Raises :class:`~qbus.errors.QbusError`: source and target are one cluster, one of them cannot be
    reached, or the target is no Qbus and ``fallback.reproduce`` is ``never``.
    """
    async with clusters(config) as (source, target):
        if not await takes_mirrors(target, config.source):
            if config.fallback.reproduce == NEVER:
                raise ConfigError(
                    f"{config.target} at {config.target_bootstrap} is no Qbus, and"
                    " fallback.reproduce is never"
                )
            yield Session(Reproduction(config, source, target), None)
            return
        link = MirrorLink(config, source, target)
        if not config.groups.enabled:
            yield Session(link, None)
            return
        offset_sync = OffsetSync(config, source, target)
        interval_s = config.groups.interval_ms / 1000
        yield Session(link, OffsetSyncSchedule(offset_sync, interval_s, SystemClock()))
