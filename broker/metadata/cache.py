"""What this broker knows of the cluster: in memory, and kept current from the store's feed.

The position in the feed is taken before anything is read, and what a change names is read anew, so
nothing is missed between the two. Subscribers are told what became different, in order and one
after the other; only when they are done does a change count as applied.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from qbus.config import BrokerConfig, TopicConfig
from qbus.metadata import (
    ChangesLost,
    Check,
    MetadataStore,
    Node,
    SessionState,
    StoreError,
    StoreUnavailable,
)
from qbus.metadata.errors import MalformedNode
from qbus.metadata.feed import follow, newest
from qbus.metadata.paths import ROOT
from qbus.metadata.znodes import (
    BROKERS,
    TOPICS,
    ChangeNode,
    ConfigNode,
)
from qbus.names import collision_key

from .image import (
    BrokerConfigChanged,
    BrokerInfo,
    BrokersChanged,
    Event,
    Topic,
    differences,
    read_topic,
)
from .reader import (
    Cluster,
    read_broker_configs,
    read_changed,
    read_cluster,
    readable,
)

_log = logging.getLogger(__name__)

NO_CONTROLLER = -1

_RETRY_S = 1.0

Subscriber = Callable[[Sequence[Event]], Awaitable[None] | None]


class MetadataCache:
    """Topics, brokers and configuration as of the last change that was applied.

    ``doubted`` are the partitions, by topic and index, of which this broker does not know any more
    whether it still leads them (:mod:`qbus.broker.partition.leadership_lease`).

    Read ``topics`` (by name), ``topics_by_id``, ``brokers`` (by id), ``controller_id`` and
    ``cluster`` freely, from the event loop; ``config`` gets what is configured dynamically for this
    broker. Brokers and controllers go without a word when their sessions end, so those are watched.
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
        self.topics: Mapping[str, Topic] = MappingProxyType(self._topics)
        self.topics_by_id: Mapping[bytes, Topic] = MappingProxyType(self._by_id)
        self.cluster = Cluster()
        self.doubted: set[tuple[str, int]] = set()
        self._effective: dict[str, TopicConfig] = {}
        self._collisions: dict[str, str] = {}
        self._subscribers: list[Subscriber] = []
        self._applied = -1
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changing = asyncio.Lock()

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The brokers that live, by id."""
        return self.cluster.brokers

    @property
    def controller_id(self) -> int:
        """Which broker is the controller; NO_CONTROLLER: none."""
        controller = self.cluster.controller
        return NO_CONTROLLER if controller is None else controller.broker

    def fence(self) -> Check:
        """The check that goes with whatever is decided from what is known here.

        Raises:
            ApiError: NOT_CONTROLLER, there has been no controller yet.
        """
        return self.cluster.fence()

    def is_live(self, broker: int, epoch: int) -> bool:
        """Whether a broker is registered under ``epoch``, and not about to leave."""
        return self.cluster.is_live(broker, epoch)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell ``subscriber`` of every event from now on; what it returns is awaited."""
        self._subscribers.append(subscriber)

    async def start(self) -> None:
        """Read everything, tell the subscribers of it, and follow from there.

        Raises:
            StoreUnavailable: the store cannot be read.
        """
        await self._load()
        self._tasks = [
            asyncio.create_task(self._follow()),
            asyncio.create_task(self._watch_cluster()),
        ]

    async def close(self) -> None:
        """Stop following."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)  # closing goes on, however they ended
        self._stop_waiting(StoreUnavailable("the broker is shutting down"))

    async def applied(self, sequence: int) -> None:
        """Wait until the change ``sequence`` is known here, and the subscribers are done with it.

        Raises:
            StoreUnavailable: it will not be.
        """
        if sequence <= self._applied:
            return
        if not self._tasks or self._tasks[0].done():
            raise StoreUnavailable("the metadata is not followed any more")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((sequence, future))
        await future

    async def catch_up(self) -> None:
        """Wait until everything is known here that is in the feed now.

        Raises:
            StoreUnavailable: it will not be.
        """
        await self.applied(await newest(self._store))

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
        async with self._changing:
            position = await newest(self._store)
            names, self.cluster = await asyncio.gather(
                self._store.children(TOPICS), read_cluster(self._store)
            )
            await self._read_broker_configs()
            events: list[Event] = [BrokersChanged(), BrokerConfigChanged()]
            found = await read_changed(self._store, {*names, *self._topics}, {}, {})
            for name in found.whole:
                events += self._read_topic(name, found.nodes)
            await self._publish(position, events)

    async def _follow(self) -> None:
        """Follow as long as the session lasts, whatever fails meanwhile: as on a full disk."""
        loaded = True
        while True:
            try:
                if not loaded:
                    await self._load()
                    loaded = True
                async for changes in follow(self._store, self._applied):
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
        changes = [change for data in encoded if (change := readable(ChangeNode.decode, data))]
        states: dict[str, set[int]] = {}
        for change in changes:
            for name, some in change.states.items():
                states.setdefault(name, set()).update(some)
        names = list(dict.fromkeys(n for c in changes for n in (*c.topics, *c.configs)))
        async with self._changing:
            events: list[Event] = []
            if any(change.cluster for change in changes):
                events += await self._read_cluster()
            if any(change.brokers for change in changes):
                await self._read_broker_configs()
                events.append(BrokerConfigChanged())
            found = await read_changed(self._store, names, states, self._topics)
            for name in found.whole:
                events += self._read_topic(name, found.nodes)
            for name, topic in found.updated.items():
                before = self._topics[name]
                self._put(topic)
                events += differences(before, topic)
            await self._publish(sequence, events)

    async def _watch_cluster(self) -> None:
        """Notice at once whose session has ended."""
        while True:
            changed = asyncio.Event()
            try:
                for path in (BROKERS, ROOT):
                    await self._store.children(path, changed.set)
                async with self._changing:
                    if events := await self._read_cluster():
                        await self._publish(self._applied, events)
                await changed.wait()
            except Exception as error:  # noqa: BLE001 - as above
                if self._is_over:
                    return
                known = error if not isinstance(error, StoreError) else None
                _log.info("the brokers cannot be watched (%s); trying again", error, exc_info=known)
                await asyncio.sleep(self._retry_s)

    async def _read_cluster(self) -> list[Event]:
        before, self.cluster = self.cluster, await read_cluster(self._store)
        return [] if self.cluster == before else [BrokersChanged()]

    async def _read_broker_configs(self) -> None:
        default, own = await read_broker_configs(self._store, self._config.node_id)
        self._config.set_dynamic(default, own)
        self._effective.clear()

    def _read_topic(self, name: str, nodes: Mapping[str, Node]) -> list[Event]:
        before = self._topics.get(name)
        try:
            after = read_topic(name, nodes, nodes.get(ConfigNode.topic_path(name)))
        except MalformedNode:
            _log.exception("the topic %s cannot be read; it stays as it was known before", name)
            return []
        if before is not None:
            del self._topics[name], self._by_id[before.id]
            self._effective.pop(name, None)
            self._collisions.pop(collision_key(name), None)
        if after is not None:
            self._put(after)
            self._collisions[collision_key(name)] = name
        return list(differences(before, after))

    def _put(self, topic: Topic) -> None:
        self._topics[topic.name] = self._by_id[topic.id] = topic

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
