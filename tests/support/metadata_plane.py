"""A broker's metadata without its network and its disks: a real store, cache and controller."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, cast

from qbus.broker.authorization import AccessControl
from qbus.broker.broker import Broker
from qbus.broker.controller import (
    Controller,
    ensure_cluster_id,
    raise_broker_epoch,
    register_broker,
    resign,
)
from qbus.broker.kafka.context import RequestContext
from qbus.broker.metadata.cache import MetadataCache
from qbus.broker.metadata.image import BrokerInfo
from qbus.broker.net.peer import Peer
from qbus.clock import Clock, ManualClock
from qbus.config import BrokerConfig, ListenerInfo
from qbus.metadata import EmbeddedStore, MetadataStore
from qbus.metadata.feed import newest
from qbus.metadata.znodes import BrokerNode, EndpointNode
from qbus.wire import API, ApiKey, decode, encode

HERE = BrokerInfo(1, "bus.example", 9092, "rack-1")


@dataclass
class MetadataPlane:
    """The part of a broker that handlers of metadata need."""

    config: BrokerConfig
    clock: ManualClock
    store: MetadataStore
    metadata: MetadataCache
    controller: Controller
    cluster_id: str = ""
    node_id: int = 1
    control: AccessControl | None = None
    """What requests are authorized and recorded by, if they are."""

    async def join(self, *others: BrokerInfo) -> None:
        """Register other brokers; they stay until the store is closed."""
        for other in others:
            await register(self.store, other, self.clock)

    async def ask(
        self, key: ApiKey, version: int, request: Any, listener: str = "PLAINTEXT"
    ) -> Any:
        """Send ``request`` over the wire to its handler, and read the response from the wire."""
        api = API[key]
        sent = memoryview(b"".join(bytes(part) for part in encode(request, version)))
        info = ListenerInfo.plaintext("127.0.0.1", 9092)._replace(name=listener)
        peer = Peer(1, "127.0.0.1", info)
        module = import_module(f"qbus.broker.kafka.handlers.{key.name.lower()}")
        response = module.handle(
            cast("Broker", self),
            RequestContext(key, version, "test", peer, self.control),
            decode(api.request, version, sent),
        )
        if hasattr(response, "__await__"):
            response = await response
        answered = memoryview(b"".join(bytes(part) for part in encode(response, version)))
        return decode(api.response, version, answered)


async def register(store: MetadataStore, broker: BrokerInfo, clock: Clock) -> int:
    """Register a broker as if it had just been started; the epoch of its registration."""
    epoch = await raise_broker_epoch(store, broker.id, clock)
    node = BrokerNode(broker.host, broker.port, epoch, broker.rack, clock.time_ms())
    endpoints = [EndpointNode(one.name, one.protocol, *one.address) for one in broker.listeners]
    node = node._replace(listeners=BrokerNode.listed(endpoints), offline=broker.offline)
    await register_broker(store, broker.id, node)
    return epoch


@asynccontextmanager
async def metadata_plane(
    directory: Path,
    static: Mapping[str, object] | None = None,
    *,
    others: tuple[BrokerInfo, ...] = (),
) -> AsyncIterator[MetadataPlane]:
    """Start over the store in ``directory`` as a broker does, with broker 1 registered."""
    config, clock = BrokerConfig(static), ManualClock()
    store = EmbeddedStore(directory / "metadata.db")
    await store.start()
    metadata = MetadataCache(store, config)
    controller = Controller(store, metadata, config, clock, Random(1))
    plane = MetadataPlane(config, clock, store, metadata, controller)
    try:
        plane.cluster_id = await ensure_cluster_id(store)
        await plane.join(*others)
        await metadata.start()
        await resign(store, metadata, HERE.id, lambda _, __: False, is_alone=not others)
        epoch = await register(store, HERE, clock)
        await metadata.applied(await newest(store))
        await controller.start(epoch)
        yield plane
    finally:
        await controller.stop()
        await metadata.close()
        await store.close()
