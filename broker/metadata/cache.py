"""The metadata cache: the cluster's metadata in memory, kept current by the store's feed.

The cache takes its position in the feed before it reads anything, and reads again what a change
names, so it misses nothing in between. What a change tells whole is taken as told. Subscribers are
called with the differences, in order and one after the other; a change counts as applied when all
of them have returned.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from qbus.config import BrokerConfig, ShareGroupConfig, TopicConfig
from qbus.metadata import (
    ChangesLost,
    Check,
    MetadataStore,
    Node,
    SessionState,
    StoreError,
    StoreUnavailable,
)
from qbus.metadata.client_quotas import QuotaEntity
from qbus.metadata.errors import MalformedNode
from qbus.metadata.feed import follow, kept, newest
from qbus.metadata.paths import ROOT
from qbus.metadata.znodes import (
    BROKERS,
    DELETED,
    TOPICS,
    ChangeNode,
    ConfigNode,
)
from qbus.names import collision_key
from qbus.security.acls import AclIndex, Pattern

from .client_quotas import Quotas, changed, read_changed_quotas, read_client_quotas
from .image import (
    BrokerConfigChanged,
    BrokerInfo,
    BrokersChanged,
    ClientQuotasChanged,
    Event,
    GroupConfigChanged,
    NodeAddress,
    Topic,
    UserConfigChanged,
    changed_topic,
    differences,
    follows,
    read_topic,
)
from .reader import (
    AclNodes,
    Cluster,
    read_acls,
    read_broker_configs,
    read_changed,
    read_cluster,
    read_group_configs,
    read_user_configs,
    readable,
)

_log = logging.getLogger(__name__)

NO_CONTROLLER = -1

JOBS_GROUP = "disque"
"""The share group of jobs."""

_JOBS = {
    "share.auto.offset.reset": "earliest",  # no job may be passed over
    "share.delivery.count.limit": "0",
    "share.partition.max.record.locks": "100000",
    "share.record.lock.duration.ms": "300000",
    "qbus.retry.nack.backoff.ms": "100",
}
"""Its defaults: Disque gives up no job for having been given out often, and bounds no workers."""

_RETRY_S = 1.0

Subscriber = Callable[[Sequence[Event]], Awaitable[None] | None]


class _Clients(NamedTuple):
    """Users, access rules and quotas as they were read.

    Users among ``names`` and rules of ``patterns`` that were not found are gone.
    """

    users: Mapping[str, Mapping[str, str]]
    names: Collection[str]
    acls: AclNodes
    patterns: Collection[Pattern]
    quotas: Mapping[QuotaEntity, Quotas]


class MetadataCache:
    """Topics, brokers and configuration as of the last applied change.

    ``suspected`` are partitions, by topic and index, that this broker leads and others may lead by
    now (:mod:`qbus.broker.partition.leadership_lease`).

    Read ``topics`` (by name), ``topics_by_id``, ``brokers`` (by id), ``controller_id`` and
    ``cluster`` from the event loop; ``group_configs`` is what share groups set themselves, by the
    names of those that set anything; ``users`` is the same of users: their credentials and quotas,
    never to be shown; ``client_quotas`` are all quotas. ``config`` receives this broker's dynamic
    configuration. The end of a session writes nothing to the feed, so brokers and the controller
    are watched as well.
    """

    def __init__(
        self, store: MetadataStore, config: BrokerConfig, *, retry_s: float = _RETRY_S
    ) -> None:
        """``retry_s``: seconds before a failed store is read again."""
        self._store = store
        self._retry_s = retry_s
        self._config = config
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self.topics: Mapping[str, Topic] = MappingProxyType(self._topics)
        self.topics_by_id: Mapping[bytes, Topic] = MappingProxyType(self._by_id)
        self.cluster = Cluster()
        self.suspected: set[tuple[str, int]] = set()
        self._effective: dict[str, TopicConfig] = {}
        self._groups: dict[str, Mapping[str, str]] = {}
        self.group_configs: Mapping[str, Mapping[str, str]] = MappingProxyType(self._groups)
        self._users: dict[str, Mapping[str, str]] = {}
        self.users: Mapping[str, Mapping[str, str]] = MappingProxyType(self._users)
        self.client_quotas: Mapping[QuotaEntity, Quotas] = {}
        self.acls = AclIndex(
            config.super_user_principals,
            allows_without_rules=config.allow_everyone_if_no_acl_found,
        )
        self._effective_groups: dict[str, ShareGroupConfig] = {}
        self._collisions: dict[str, str] = {}
        self._first: list[Subscriber] = []
        self._subscribers: list[Subscriber] = []
        self._applied = -1
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changing = asyncio.Lock()

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The live brokers, by id."""
        return self.cluster.brokers

    def nodes(self, listener: str) -> list[NodeAddress]:
        """Return the live brokers as clients of the listener of that name reach them."""
        known = (broker.node(listener) for broker in self.cluster.brokers.values())
        return [node for node in known if node is not None]

    @property
    def controller_id(self) -> int:
        """The id of the controller, or NO_CONTROLLER."""
        controller = self.cluster.controller
        return NO_CONTROLLER if controller is None else controller.broker

    def fence(self) -> Check:
        """Return the check of the controller epoch, for every decision made from this cache.

        Raises:
            ApiError: NOT_CONTROLLER, there has been no controller yet.
        """
        return self.cluster.fence()

    def is_live(self, broker: int, epoch: int) -> bool:
        """Whether a broker is registered under ``epoch`` and not about to stop."""
        return self.cluster.is_live(broker, epoch)

    def subscribe(self, subscriber: Subscriber, *, is_first: bool = False) -> None:
        """Call ``subscriber`` with all events from now on, and await what it returns.

        In the order in which they came, but those that are ``is_first`` before all others, which
        may wait for a disk or for other brokers.
        """
        (self._first if is_first else self._subscribers).append(subscriber)

    async def start(self) -> None:
        """Read everything, call the subscribers with it, and follow the feed from there.

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
        """Wait until the change ``sequence`` is applied, subscribers included.

        Raises:
            StoreUnavailable: it will not be applied.
        """
        if sequence <= self._applied:
            return
        if not self._tasks or self._tasks[0].done():
            raise StoreUnavailable("the metadata cache is closed")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((sequence, future))
        await future

    async def catch_up(self) -> None:
        """Wait until every change that is in the feed now is applied.

        Raises:
            StoreUnavailable: it will not be applied.
        """
        await self.applied(await newest(self._store))

    async def deleted_topics(self) -> set[bytes]:
        """Return the ids of topics that were deleted not long ago: the feed still tells of it.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        deleted = set()
        async for data in kept(self._store):
            change = readable(ChangeNode.decode, data)
            details = change.details.values() if change else ()
            deleted |= {one.topic_id for one in details if one.version == DELETED}
        return deleted

    def topic_config(self, topic: Topic) -> TopicConfig:
        """Return the effective configuration of a topic."""
        config = self._effective.get(topic.name)
        if config is None:
            config = self._effective[topic.name] = TopicConfig(self._config, topic.config)
        return config

    def group_config(self, group: str) -> ShareGroupConfig:
        """Return the effective configuration of a share group, which need not exist."""
        own = self._groups.get(group, {})
        if group == JOBS_GROUP:
            own = {**_JOBS, **own}
        elif not own:
            group = ""  # one for all of them: clients name any number of groups
        config = self._effective_groups.get(group)
        if config is None:
            config = self._effective_groups[group] = ShareGroupConfig(self._config, own)
        return config

    def colliding(self, name: str) -> str | None:
        """Return the topic whose name collides with ``name``, possibly ``name`` itself."""
        return self._collisions.get(collision_key(name))

    # Reading the store

    async def _load(self) -> None:
        async with self._changing:
            position = await newest(self._store)
            names, self.cluster = await asyncio.gather(
                self._store.children(TOPICS), read_cluster(self._store)
            )
            await self._read_broker_configs()
            groups = await read_group_configs(self._store)
            clients = await self._read_all_clients()
            found = await read_changed(self._store, {*names, *self._topics}, {}, {})
            # From here on nothing is awaited: what subscribers are not told must not count.
            self._put_groups(groups, {*self._groups})
            events: list[Event] = [BrokersChanged(), BrokerConfigChanged()]
            events += self._put_clients(clients)
            for name in found.whole:
                events += self._read_topic(name, found.nodes)
            await self._publish(position, events)

    async def _follow(self) -> None:
        """Follow the feed as long as the session lasts, across failures such as a full disk."""
        loaded = True
        while True:
            try:
                if not loaded:
                    await self._load()
                    loaded = True
                async for changes in follow(self._store, self._applied):
                    await self._apply(changes[-1].sequence, [c.data for c in changes])
            except ChangesLost:
                _log.warning(
                    "missed changes of the metadata that were pruned; reading everything again"
                )
            except Exception as error:  # noqa: BLE001 - a broker needs its metadata
                if not loaded or self._is_over:
                    self._stop_waiting(StoreUnavailable(f"the metadata cannot be read: {error}"))
                if self._is_over:
                    _log.info("the session ended, the metadata cache stops: %s", error)
                    return
                known = error if not isinstance(error, StoreUnavailable) else None
                _log.error("following the metadata failed (%s), retrying", error, exc_info=known)
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
        names = dict.fromkeys(n for c in changes for n in (*c.topics, *c.configs))
        async with self._changing:
            events: list[Event] = []
            if any(change.cluster for change in changes):
                events += await self._read_cluster()
            if any(change.brokers for change in changes):
                await self._read_broker_configs()
                events.append(BrokerConfigChanged())
            groups = {name for change in changes for name in change.groups}
            if groups:
                self._put_groups(await read_group_configs(self._store, groups), groups)
                events += [GroupConfigChanged(name) for name in sorted(groups)]
            clients = await self._read_clients(changes)
            told = self._told(changes)
            rest = [name for name in names if name not in told]
            found = await read_changed(self._store, rest, states, self._topics)
            # From here on nothing is awaited: what subscribers are not told must not count.
            events += self._put_clients(clients)
            for name, after in told.items():
                events += self._replace(name, after)
            for name in found.whole:
                events += self._read_topic(name, found.nodes)
            for name, topic in found.updated.items():
                before = self._topics[name]
                self._put(topic)
                events += differences(before, topic)
            await self._publish(sequence, events)

    def _told(self, changes: Sequence[ChangeNode]) -> dict[str, Topic | None]:
        """Topics of which a change tells all, and no other one tells anything: they are not read.

        What happened since comes with a later change.
        """
        times = Counter(n for c in changes for n in (*c.topics, *c.configs, *c.states))
        told = {}
        for change in changes:
            for name, detail in change.details.items():
                known = self._topics.get(name)
                if times[name] == 1 and follows(detail, known):
                    told[name] = changed_topic(name, detail, known)
        return told

    async def _read_all_clients(self) -> "_Clients":
        return _Clients(
            await read_user_configs(self._store),
            {*self._users},
            await read_acls(self._store),
            self.acls.patterns(),
            await read_client_quotas(self._store, self.client_quotas),
        )

    async def _read_clients(self, changes: Sequence[ChangeNode]) -> "_Clients":
        """Read again what changed of users, access rules and quotas."""
        users = {name for change in changes for name in change.users}
        acls = {path for change in changes for path in change.acls}
        places = {place for change in changes for place in change.quotas}
        known = self.client_quotas
        return _Clients(
            await read_user_configs(self._store, users) if users else {},
            users,
            await read_acls(self._store, acls) if acls else {},
            (),
            await read_changed_quotas(self._store, places, known) if places else known,
        )

    async def _watch_cluster(self) -> None:
        """Watch the registrations, to notice at once when a session ends."""
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
                _log.info("watching the brokers failed (%s), retrying", error, exc_info=known)
                await asyncio.sleep(self._retry_s)

    async def _read_cluster(self) -> list[Event]:
        before, self.cluster = self.cluster, await read_cluster(self._store)
        return [] if self.cluster == before else [BrokersChanged()]

    async def _read_broker_configs(self) -> None:
        default, own = await read_broker_configs(self._store, self._config.node_id)
        self._config.set_dynamic(default, own)
        self._effective.clear()
        self._effective_groups.clear()

    def _put_groups(self, found: Mapping[str, Mapping[str, str]], names: Iterable[str]) -> None:
        """Replace the configurations of share groups; those of ``names`` not found are gone."""
        for name in names:
            self._groups.pop(name, None)
            self._effective_groups.pop(name, None)
        self._groups.update(found)

    def _put_clients(self, read: "_Clients") -> list[Event]:
        events = self._put_users(read.users, read.names)
        self._put_acls(read.acls, read.patterns)
        return events + self._put_quotas(read.quotas)

    def _put_users(
        self, found: Mapping[str, Mapping[str, str]], names: Iterable[str]
    ) -> list[Event]:
        """Replace the configurations of users; those of ``names`` not found are gone."""
        names = {*names, *found}
        for name in names:
            self._users.pop(name, None)
        self._users.update(found)
        return [UserConfigChanged(name) for name in sorted(names)]

    def _put_quotas(self, now: Mapping[QuotaEntity, Quotas]) -> list[Event]:
        before, self.client_quotas = self.client_quotas, now
        entities = frozenset(changed(before, now))
        return [ClientQuotasChanged(entities)] if entities else []

    def _put_acls(self, found: AclNodes, known: Iterable[Pattern] = ()) -> None:
        """Replace the rules of patterns; those of ``known`` that are not found are gone."""
        for pattern in known:
            if pattern not in found:
                self.acls.put(pattern, ())
        for pattern, entries in found.items():
            if entries is None:
                self.acls.put_unreadable(pattern)
            else:
                self.acls.put(pattern, entries)

    def _read_topic(self, name: str, nodes: Mapping[str, Node]) -> list[Event]:
        try:
            after = read_topic(name, nodes, nodes.get(ConfigNode.topic_path(name)))
        except MalformedNode:
            _log.exception("the topic %s cannot be read; its last known state stays in use", name)
            return []
        return self._replace(name, after)

    def _replace(self, name: str, after: Topic | None) -> list[Event]:
        before = self._topics.get(name)
        if before is not None:
            del self._topics[name], self._by_id[before.id]
            if after is None or after.config != before.config:
                self._effective.pop(name, None)
            if self.colliding(name) == name:  # not one that came in its place
                del self._collisions[collision_key(name)]
        if after is not None:
            self._put(after)
            self._collisions[collision_key(name)] = name
        return list(differences(before, after))

    def _put(self, topic: Topic) -> None:
        self._topics[topic.name] = self._by_id[topic.id] = topic

    # Subscribers

    async def _publish(self, sequence: int, events: Sequence[Event]) -> None:
        if events:
            for subscriber in chain(self._first, self._subscribers):  # some come meanwhile
                try:
                    outcome = subscriber(events)
                    if outcome is not None:
                        await outcome
                except Exception:  # noqa: BLE001 - one failure must not stop the others
                    _log.exception("a subscriber failed to handle a change of the metadata")
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
