"""One try of a link: the clusters that it needs, and all that runs between them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from qbus.clock import SystemClock
from qbus.errors import ConfigError

from ..net.cluster import Cluster
from .config import LinkConfig
from .config.config import NEVER
from .fallback import Reproduction
from .groups import GroupSchedule, OffsetSync
from .link import Link
from .status import LinkStatus
from .target import check_apart, takes_mirrors

_CLIENT_ID = "qbus-mirror"


class Work(Protocol):
    """What copies: a link, or what produces records anew where the target is no Qbus."""

    async def run(self) -> None:
        """Copy until cancelled."""

    def status(self) -> LinkStatus:
        """How it is going."""


@asynccontextmanager
async def clusters(config: LinkConfig) -> AsyncIterator[tuple[Cluster, Cluster]]:
    """Source and target, once it is known that they are not one and the same.

    Raises :class:`~qbus.errors.ConfigError`, or :class:`~qbus.errors.ApiError` where one of them
    cannot be reached.
    """
    timeout = config.transfer.request_timeout_ms / 1000
    source = Cluster(config.source_bootstrap, _CLIENT_ID, timeout)
    target = Cluster(config.target_bootstrap, _CLIENT_ID, timeout)
    try:
        await check_apart(config, source, target)
        yield source, target
    finally:
        await source.close()
        await target.close()


@dataclass(frozen=True)
class Session:
    """A link at work; ``schedule`` carries groups, where that is done."""

    work: Work
    schedule: GroupSchedule | None

    async def run(self) -> None:
        """Mirror until cancelled. Raises :class:`~qbus.errors.QbusError`."""
        if self.schedule is None:
            await self.work.run()
            return
        carrying = asyncio.create_task(self.schedule.run())
        try:
            await self.work.run()
        finally:
            carrying.cancel()
            await asyncio.gather(carrying, return_exceptions=True)

    def status(self) -> LinkStatus:
        """How it is going."""
        status = self.work.status()
        return status if self.schedule is None else replace(status, groups=self.schedule.status)


@asynccontextmanager
async def session(config: LinkConfig) -> AsyncIterator[Session]:
    """What runs a link, by the kind of its target.

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
        link = Link(config, source, target)
        if not config.groups.enabled:
            yield Session(link, None)
            return
        carrier = OffsetSync(config, source, target)
        interval_s = config.groups.interval_ms / 1000
        yield Session(link, GroupSchedule(carrier, interval_s, SystemClock()))
