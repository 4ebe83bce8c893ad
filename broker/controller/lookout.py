"""Notices within a moment that another broker's process has died.

A session outlives its broker by seconds. But while the machine goes on, the system closes a dead
process's connections and refuses new ones, which it never does for a process that is merely slow,
stopped or cut off. So the controller keeps a connection to every broker, and every broker one to
the controller. When one breaks and the address then refuses several times, the registration is
taken away, and what follows is what follows the end of a session. A broker that lives all the same,
behind an address that refuses, finds itself unregistered, and starts anew: nothing is at stake.

A machine that is gone, or cut off, refuses nothing: there the session's end decides.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

from qbus.metadata import MetadataStore, StoreError

from ..metadata_cache import MetadataCache
from ..metadata_image import BrokerInfo, Event
from .registration import unregister_broker

_log = logging.getLogger(__name__)

_REFUSALS = 3
_BETWEEN_S = 0.05
_CALM_S = 1.0
_CONNECT_S = 5.0


class Lookout:
    """Watches those brokers whose end this one has to notice.

    ``noticed`` counts the brokers whose registrations were taken away from here.
    """

    def __init__(self, store: MetadataStore, metadata: MetadataCache, node_id: int) -> None:
        self.noticed = 0
        self._store = store
        self._metadata = metadata
        self._node_id = node_id
        self._watches: dict[BrokerInfo, asyncio.Task[None]] = {}
        self._is_stopped = False

    def start(self) -> None:
        """Watch from now on."""
        self._metadata.subscribe(self._follow)
        self._follow()

    async def stop(self) -> None:
        """Watch no longer."""
        self._is_stopped = True
        watches = list(self._watches.values())
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    def _follow(self, _: Sequence[Event] = ()) -> None:
        """Watch those who are to be watched as things are now, and nobody else."""
        if self._is_stopped:
            return
        cluster = self._metadata.cluster
        wanted = set(watched(self._node_id, self._metadata.controller_id, cluster.brokers))
        for broker in self._watches.keys() - wanted:
            self._watches.pop(broker).cancel()
        for broker in wanted - self._watches.keys():
            self._watches[broker] = asyncio.create_task(self._watch(broker))

    async def _watch(self, broker: BrokerInfo) -> None:
        while True:
            if await _was_lost(broker) and await _is_refusing(broker):
                await self._unregister(broker)
            await asyncio.sleep(_CALM_S)

    async def _unregister(self, broker: BrokerInfo) -> None:
        _log.warning(
            "broker %d is gone: %s:%d refuses connections", broker.id, broker.host, broker.port
        )
        try:
            self.noticed += await unregister_broker(self._store, broker.id, broker.epoch)
        except StoreError as error:
            _log.info("broker %d goes when its session ends: %s", broker.id, error)


def watched(
    node_id: int, controller_id: int, brokers: Mapping[int, BrokerInfo]
) -> list[BrokerInfo]:
    """Whom broker ``node_id`` watches: all others if it is the controller, else the controller."""
    return [
        broker
        for broker in brokers.values()
        if broker.id != node_id and controller_id in {node_id, broker.id} and not broker.is_stopping
    ]


async def _was_lost(broker: BrokerInfo) -> bool:
    """Keep a connection until it breaks; false when none can be had."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(broker.host, broker.port)
    except OSError:
        return False
    try:
        with suppress(OSError):
            while await reader.read(1):
                pass  # nobody was asked anything
        return True
    finally:
        writer.close()


async def _is_refusing(broker: BrokerInfo) -> bool:
    """Whether nobody listens at the broker's address, as far as several attempts tell."""
    for _ in range(_REFUSALS):
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, writer = await asyncio.open_connection(broker.host, broker.port)
        except ConnectionRefusedError:
            await asyncio.sleep(_BETWEEN_S)
        except OSError:
            return False
        else:
            writer.close()
            return False
    return True
