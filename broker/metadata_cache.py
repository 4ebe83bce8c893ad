"""What this broker knows of the cluster: in memory, and kept current from the store's feed.

The position in the feed is taken before anything is read, and what a change names is read anew, so
nothing is missed between the two. Subscribers are told what became different, in order and one
after the other; only when they are done does a change count as applied.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from qbus.config import BrokerConfig, TopicConfig
from qbus.metadata import ChangesLost, MetadataStore, Node, SessionState, StoreUnavailable
from qbus.metadata.errors import MalformedNode
from qbus.metadata.feed import newest
from qbus.metadata.znodes import (
    ALL_BROKERS,
    BROKERS,
    CONTROLLER,
    TOPIC_CONFIGS,
    TOPICS,
    BrokerNode,
    ChangeNode,
    ConfigNode,
    ControllerNode,
    TopicNode,
)
from qbus.names import collision_key

from .metadata_image import (
    BrokerConfigChanged,
    BrokerInfo,
    BrokersChanged,
    Event,
    Topic,
    by_topic,
    differences,
    read_topic,
)

_log = logging.getLogger(__name__)

NO_CONTROLLER = -1

_RETRY_S = 1.0

T = TypeVar("T")

Subscriber = Callable[[Sequence[Event]], Awaitable[None] | None]


class MetadataCache:
    """Topics, brokers and configuration as of the last change that was applied.

    Read ``topics`` (by name), ``topics_by_id``, ``brokers`` (by id) and ``controller_id`` freely,
    from the event loop; ``config`` gets what is configured dynamically for this broker.
    """

    def __init__(
        self, store: MetadataStore, config: BrokerConfig, *, retry_s: float = _RETRY_S
    ) -> None:
        """``retry_s``: how long to wait, in seconds, before a store that failed is read again."""
        self._store = store
        self._retry_s = retry_s
        self._config = config
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._brokers: dict[int, BrokerInfo] = {}
        self.topics: Mapping[str, Topic] = MappingProxyType(self._topics)
        self.topics_by_id: Mapping[bytes, Topic] = MappingProxyType(self._by_id)
        self.brokers: Mapping[int, BrokerInfo] = MappingProxyType(self._brokers)
        self.controller_id = NO_CONTROLLER
        self._effective: dict[str, TopicConfig] = {}
        self._collisions: dict[str, str] = {}
        self._subscribers: list[Subscriber] = []
        self._applied = -1
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._following: asyncio.Task[None] | None = None

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell ``subscriber`` of every event from now on; what it returns is awaited."""
        self._subscribers.append(subscriber)

    async def start(self) -> None:
        """Read everything, tell the subscribers of it, and follow from there.

        Raises:
            StoreUnavailable: the store cannot be read.
        """
        await self._load()
        self._following = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop following."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])  # closing goes on, however it ended
        self._stop_waiting(StoreUnavailable("the broker is shutting down"))

    async def applied(self, sequence: int) -> None:
        """Wait until the change ``sequence`` is known here, and the subscribers are done with it.

        Raises:
            StoreUnavailable: it will not be.
        """
        if sequence <= self._applied:
            return
        if self._following is None or self._following.done():
            raise StoreUnavailable("the metadata is not followed any more")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((sequence, future))
        await future

    def topic_config(self, topic: Topic) -> TopicConfig:
        """The configuration in force for a topic of the cache."""
        config = self._effective.get(topic.name)
        if config is None:
            config = self._effective[topic.name] = TopicConfig(self._config, topic.config)
        return config

    def colliding(self, name: str) -> str | None:
        """The topic whose name collides with ``name``, be it ``name`` itself."""
        return self._collisions.get(collision_key(name))

    # Reading the store

    async def _load(self) -> None:
        position = await newest(self._store)
        topics, configs, _ = await asyncio.gather(
            self._store.tree(TOPICS),
            self._store.tree(TOPIC_CONFIGS),
            self._read_cluster(),
        )
        events: list[Event] = [BrokersChanged()]
        await self._read_broker_configs()
        events.append(BrokerConfigChanged())
        trees = by_topic(topics)
        for name in trees.keys() | self._topics.keys():
            events += self._read_topic(name, trees.get(name, {}), configs)
        await self._publish(position, events)

    async def _follow(self) -> None:
        """Follow as long as the session lasts, whatever fails meanwhile: as on a full disk."""
        loaded = True
        while True:
            try:
                if not loaded:
                    await self._load()
                    loaded = True
                async for changes in self._store.changes(self._applied):
                    await self._apply(changes[-1].sequence, [c.data for c in changes])
            except ChangesLost:
                _log.warning("fell behind the changes of the metadata; reading everything anew")
            except Exception as error:  # noqa: BLE001 - without the metadata the broker is no use
                if not loaded or self._is_over:
                    self._stop_waiting(StoreUnavailable(f"the metadata is not followed: {error}"))
                if self._is_over:
                    _log.info("the metadata is not followed any more: %s", error)
                    return
                known = error if not isinstance(error, StoreUnavailable) else None
                _log.error(
                    "the metadata could not be followed (%s); trying again", error, exc_info=known
                )
                await asyncio.sleep(self._retry_s)
            loaded = False

    @property
    def _is_over(self) -> bool:
        return self._store.state is SessionState.LOST

    async def _apply(self, sequence: int, encoded: Iterable[bytes]) -> None:
        changes = [change for data in encoded if (change := _readable(ChangeNode.decode, data))]
        events: list[Event] = []
        if any(change.cluster for change in changes):
            await self._read_cluster()
            events.append(BrokersChanged())
        if any(change.brokers for change in changes):
            await self._read_broker_configs()
            events.append(BrokerConfigChanged())
        names = list(dict.fromkeys(n for c in changes for n in (*c.topics, *c.configs)))
        trees = await asyncio.gather(*(self._store.tree(TopicNode.path(n)) for n in names))
        paths = [ConfigNode.topic_path(name) for name in names]
        nodes = await asyncio.gather(*(self._store.get(path) for path in paths))
        configs = {path: node for path, node in zip(paths, nodes, strict=True) if node}
        for name, tree in zip(names, trees, strict=True):
            events += self._read_topic(name, tree, configs)
        await self._publish(sequence, events)

    async def _read_cluster(self) -> None:
        nodes, controller = await asyncio.gather(
            self._store.tree(BROKERS), self._store.get(CONTROLLER)
        )
        nodes.pop(BROKERS, None)
        self._brokers.clear()
        for path, node in nodes.items():
            if broker := _readable(partial(_read_broker, path), node):
                self._brokers[broker.id] = broker
        leading = _readable(ControllerNode.decode, controller)
        self.controller_id = leading.broker if leading else NO_CONTROLLER

    async def _read_broker_configs(self) -> None:
        broker = str(self._config.node_id)
        default, own = await asyncio.gather(
            self._store.get(ConfigNode.broker_path(ALL_BROKERS)),
            self._store.get(ConfigNode.broker_path(broker)),
        )
        nothing = ConfigNode({})
        self._config.set_dynamic(
            (_readable(ConfigNode.decode, default) or nothing).config,
            (_readable(ConfigNode.decode, own) or nothing).config,
        )
        self._effective.clear()

    def _read_topic(
        self, name: str, tree: Mapping[str, Node], configs: Mapping[str, Node]
    ) -> list[Event]:
        before = self._topics.get(name)
        try:
            after = read_topic(name, tree, configs.get(ConfigNode.topic_path(name)))
        except MalformedNode:
            _log.exception("the topic %s cannot be read; it stays as it was known before", name)
            return []
        if before is not None:
            del self._topics[name], self._by_id[before.id]
            self._effective.pop(name, None)
            self._collisions.pop(collision_key(name), None)
        if after is not None:
            self._topics[name] = self._by_id[after.id] = after
            self._collisions[collision_key(name)] = name
        return list(differences(before, after))

    # Telling

    async def _publish(self, sequence: int, events: Sequence[Event]) -> None:
        if events:
            for subscriber in self._subscribers:
                try:
                    outcome = subscriber(events)
                    if outcome is not None:
                        await outcome
                except Exception:  # noqa: BLE001 - whoever fails, the others go on
                    _log.exception("a change of the metadata was not followed everywhere")
        self._applied = sequence
        ready = [future for wanted, future in self._waiting if wanted <= sequence]
        self._waiting = [waiting for waiting in self._waiting if waiting[0] > sequence]
        for future in ready:
            if not future.done():
                future.set_result(None)

    def _stop_waiting(self, error: StoreUnavailable) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)


def _read_broker(path: str, data: bytes) -> BrokerInfo:
    node = BrokerNode.decode(data)
    return BrokerInfo(BrokerNode.id_of(path), node.host, node.port, node.rack, node.epoch)


def _readable(decode: Callable[[bytes], T], stored: Node | bytes | None) -> T | None:
    """What is stored; None where it is not there, or holds something else."""
    if stored is None:
        return None
    try:
        return decode(stored.data if isinstance(stored, Node) else stored)
    except MalformedNode:
        _log.exception("something in the metadata cannot be read and is left out")
        return None
