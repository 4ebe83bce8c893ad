"""Detects within a moment that another broker's process has died.

A session outlives its broker by seconds. While the machine runs, however, the operating system
closes the connections of a dead process and refuses new ones; it never does so for a process that
is slow, stopped or cut off. So the controller keeps a connection to every broker, and every broker
keeps one to the controller. When a connection breaks and the address then refuses several times,
the broker is unregistered, with the same consequences as the end of its session. A broker that is
alive behind a refusing address finds itself unregistered and registers again, without data loss.

A machine that is down or cut off refuses nothing; there the end of the session decides.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto

from qbus.config import Address
from qbus.metadata import MetadataStore, StoreError

from ..metadata.cache import MetadataCache
from ..metadata.image import BrokerInfo, Event
from .registration import unregister_broker

_log = logging.getLogger(__name__)

_REFUSALS = 3
_BETWEEN_S = 0.05
_CALM_S = 1.0
_CONNECT_S = 5.0
_LENGTH = 1024


class _ProbeResult(Enum):
    ENDED = auto()
    REFUSED = auto()
    FAILED = auto()


class FailureDetector:
    """Probes other brokers and unregisters those that died.

    ``noticed`` counts the brokers that this detector unregistered.
    """

    def __init__(
        self,
        store: MetadataStore,
        metadata: MetadataCache,
        node_id: int,
        listener: str = "PLAINTEXT",
    ) -> None:
        """``listener``: the one that brokers reach one another by."""
        self.noticed = 0
        self._listener = listener
        self._store = store
        self._metadata = metadata
        self._node_id = node_id
        self._probes: dict[BrokerInfo, asyncio.Task[None]] = {}
        self._is_stopped = False

    def start(self) -> None:
        """Begin to probe."""
        self._metadata.subscribe(self._update_probes)
        self._update_probes()

    async def stop(self) -> None:
        """Stop probing."""
        self._is_stopped = True
        tasks = list(self._probes.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _update_probes(self, _: Sequence[Event] = ()) -> None:
        """Start and stop probes so that they match the cluster."""
        if self._is_stopped:
            return
        cluster = self._metadata.cluster
        wanted = set(probed_brokers(self._node_id, self._metadata.controller_id, cluster.brokers))
        for broker in self._probes.keys() - wanted:
            self._probes.pop(broker).cancel()
        for broker in wanted - self._probes.keys():
            self._probes[broker] = asyncio.create_task(self._keep_probing(broker))

    async def _keep_probing(self, broker: BrokerInfo) -> None:
        was_reached, refusals, pause = False, 0, _BETWEEN_S
        while True:
            probe, seconds = await _probe(self._address(broker))
            was_reached = was_reached or probe is _ProbeResult.ENDED
            refusals = refusals + 1 if probe is _ProbeResult.REFUSED else 0
            if was_reached and refusals == _REFUSALS:
                await self._unregister(broker)
                was_reached, refusals = False, 0
            is_urgent = was_reached and (probe is _ProbeResult.REFUSED or seconds > _CALM_S)
            pause = _BETWEEN_S if is_urgent else min(2 * pause, _CALM_S)
            await asyncio.sleep(pause)

    def _address(self, broker: BrokerInfo) -> Address:
        """Any address of it will do: all refuse when the process is gone."""
        return broker.address_of(self._listener) or Address(broker.host, broker.port)

    async def _unregister(self, broker: BrokerInfo) -> None:
        _log.warning("broker %d has died: %s refuses connections", broker.id, self._address(broker))
        try:
            self.noticed += await unregister_broker(self._store, broker.id, broker.epoch)
        except StoreError as error:
            _log.info("broker %d stays registered until its session ends: %s", broker.id, error)


def probed_brokers(
    node_id: int, controller_id: int, brokers: Mapping[int, BrokerInfo]
) -> list[BrokerInfo]:
    """Return the brokers to probe: all others from the controller, else only the controller."""
    return [
        broker
        for broker in brokers.values()
        if broker.id != node_id and controller_id in {node_id, broker.id} and not broker.is_stopping
    ]


async def _probe(address: Address) -> tuple[_ProbeResult, float]:
    """Connect and stay connected; return the result and the seconds that it lasted.

    A dying process may still accept a connection while the system closes its sockets.
    """
    began = time.monotonic()
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(*address)
    except ConnectionRefusedError:
        return _ProbeResult.REFUSED, 0.0
    except OSError:
        return _ProbeResult.FAILED, 0.0
    try:
        with suppress(OSError):
            while await reader.read(_LENGTH):
                pass  # nothing was asked; discard what comes
        return _ProbeResult.ENDED, time.monotonic() - began
    finally:
        writer.close()
