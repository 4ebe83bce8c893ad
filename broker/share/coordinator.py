"""The coordinator of share groups: which exist, and who is in those that belong to this broker.

    /share_groups/<group>    JSON: the group's epoch

A group exists while its node does, and only its coordinator (:mod:`qbus.broker.group.ownership`)
writes that. Members are in memory alone: after a failover the new coordinator does not know them,
and they join again. The epoch is stored from time to time, so that a new coordinator goes on about
where the former one was; nothing depends on it.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from qbus.clock import Clock
from qbus.config import BrokerConfig, ShareGroupConfig
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import (
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    SessionState,
    Set,
    StoreError,
)
from qbus.names import escape, unescape

from ..group.ownership import LiveBrokers, Ownership
from ..metadata.cache import Subscriber
from ..metadata.image import BrokersChanged, Event, Topic, changed_topics
from ..partition.background_tasks import BackgroundTasks
from .assignor import Partitions
from .group import HeartbeatResult, MemberHeartbeat, ShareGroup, ShareGroupState

_log = logging.getLogger(__name__)

ROOT: Final = "/share_groups"
_VERSION: Final = 1
_SWEEP_S: Final = 1.0
_FEW: Final = 8  # groups that are looked for one by one


class ShareMetadata(LiveBrokers, Protocol):
    """The part of the cluster's metadata that share groups need."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that exist now, by name."""

    def group_config(self, group: str) -> ShareGroupConfig:
        """The configuration in force of a group."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call ``subscriber`` with every change from now on."""


class ShareMemberDescription(NamedTuple):
    """A member of a share group."""

    member_id: str
    epoch: int
    rack: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: Partitions


class ShareGroupDescription(NamedTuple):
    """A share group and its members."""

    group_id: str
    state: ShareGroupState
    epoch: int
    assignment_epoch: int
    members: tuple[ShareMemberDescription, ...]


class _Topics(Mapping[str, tuple[bytes, int]]):
    """Ids and numbers of partitions of the topics, by name."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics

    def __getitem__(self, name: str) -> tuple[bytes, int]:
        topic = self._topics[name]
        return topic.id, len(topic.partitions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)


class ShareCoordinator:
    """The share groups of this broker.

    Every method raises :class:`ApiError`: NOT_COORDINATOR, the group belongs to another broker;
    COORDINATOR_NOT_AVAILABLE, the store cannot be used; INVALID_GROUP_ID, the name is empty.
    """

    def __init__(
        self,
        store: MetadataStore,
        metadata: ShareMetadata,
        config: BrokerConfig,
        clock: Clock,
        is_consumer_group: Callable[[str], Awaitable[bool]],
    ) -> None:
        """``is_consumer_group`` tells of a name whether a group of the other type has it."""
        self._store = store
        self._metadata = metadata
        self._config = config
        self._clock = clock
        self._is_consumer_group = is_consumer_group
        self._ownership = Ownership(config.node_id, metadata)
        self._topics = _Topics(metadata.topics)
        self._groups: dict[str, ShareGroup] = {}
        self._stored: dict[str, int] = {}  # the epochs in the store
        self._loading: dict[str, asyncio.Task[ShareGroup | None]] = {}
        metadata.subscribe(self.follow)
        store.on_state(self._on_state)

    def register(self, tasks: BackgroundTasks) -> None:
        """Add the tasks of the coordinator."""
        tasks.add("watch over share groups", _SWEEP_S, self.sweep)

    async def heartbeat(
        self, group_id: str, beat: MemberHeartbeat
    ) -> tuple[HeartbeatResult, ShareGroupConfig]:
        """Take in a member's heartbeat; returns what it is told, and the group's configuration.

        A group begins to exist when its first member joins.

        Raises:
            ApiError: as :meth:`ShareGroup.heartbeat` does; GROUP_ID_NOT_FOUND, a consumer group has
                this name.
        """
        group = self._groups.get(group_id)
        if group is None or not self._ownership.is_ours(group_id):
            group = await self._get(group_id, create=beat.epoch == 0)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no share group {group_id!r}")
        config = self._metadata.group_config(group_id)
        result = group.heartbeat(
            beat,
            self._topics,
            now=self._clock.monotonic(),
            session_s=config.share_session_timeout_ms / 1000,
            max_size=self._config.group_share_max_size,
        )
        return result, config

    async def groups(self) -> list[tuple[str, ShareGroupState]]:
        """The names and the states of all share groups of this broker."""
        self._check_store()
        try:
            names = await self._store.children(ROOT)
        except StoreError as error:
            raise _unavailable(error) from error
        found = []
        for name in names:
            try:
                group_id = unescape(name)
            except ValueError:
                continue
            if self._ownership.is_ours(group_id):
                group = self._groups.get(group_id)
                found.append((group_id, ShareGroupState.EMPTY if group is None else group.state))
        return found

    def is_known(self, group_id: str) -> bool:
        """Whether there is a share group of this name in memory: one that has members, say."""
        return group_id in self._groups

    async def exists(self, group_id: str) -> bool:
        """Whether there is a share group of this name."""
        return await self._get(group_id, create=False) is not None

    async def describe(self, group_id: str) -> ShareGroupDescription | None:
        """A group with its members; None: it does not exist."""
        group = await self._get(group_id, create=False)
        if group is None:
            return None
        members = tuple(
            ShareMemberDescription(
                member.member_id,
                member.epoch,
                member.rack,
                member.client_id,
                member.client_host,
                member.topics,
                member.assignment,
            )
            for member in group.members
        )
        return ShareGroupDescription(
            group_id, group.state, group.epoch, group.assignment_epoch, members
        )

    async def unknown(self, group_ids: Iterable[str]) -> frozenset[str]:
        """Return groups of this broker that do not exist, by one look at the store.

        None where few are not in memory, or the look fails: the others are looked for one by one.
        """
        missing = [one for one in dict.fromkeys(group_ids) if self._is_missing(one)]
        if len(missing) < _FEW or self._store.state is not SessionState.CONNECTED:
            return frozenset()
        try:
            stored = frozenset(await self._store.children(ROOT))
        except StoreError:
            return frozenset()
        return frozenset(
            one for one in missing if escape(one) not in stored and self._is_missing(one)
        )

    def _is_missing(self, group_id: str) -> bool:
        is_here = group_id in self._groups or group_id in self._loading
        return bool(group_id) and not is_here and self._ownership.is_ours(group_id)

    async def ensure(self, group_id: str) -> None:
        """Have the group exist, whichever broker coordinates it: for groups without members."""
        try:
            await self._store.transaction([Create(_path(group_id), _encode(0))])
        except NodeExists:
            return
        except StoreError as error:
            raise _unavailable(error) from error

    async def check_empty(self, group_id: str, *, create: bool = False) -> None:
        """Check that the group exists and has no members; ``create``: create it if it is missing.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND (with ``create``: the name is a consumer group's),
                NON_EMPTY_GROUP.
        """
        group = await self._get(group_id, create=create)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if group.state is not ShareGroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"the group {group_id} has members")

    async def delete(self, group_id: str) -> None:
        """Delete a group without members, when all that it did is forgotten.

        Raises:
            ApiError: as :meth:`check_empty` does.
        """
        await self.check_empty(group_id)
        try:
            await self._store.transaction([Delete(_path(group_id))])
        except NoNode as error:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.") from error
        except StoreError as error:
            raise _unavailable(error) from error
        finally:
            self._forget(group_id)

    def states(self) -> Counter[ShareGroupState]:
        """Number of groups in memory, by state. For any thread."""
        return Counter(group.state for group in list(self._groups.values()))

    @property
    def members(self) -> int:
        """Number of members of all groups of this broker. For any thread."""
        return sum(len(group.members) for group in list(self._groups.values()))

    def follow(self, events: Sequence[Event]) -> None:
        """Take in what changed in the cluster."""
        topics = changed_topics(events)
        if any(isinstance(event, BrokersChanged) for event in events):
            for group_id in list(self._groups):
                if not self._ownership.is_ours(group_id):
                    self._forget(group_id)
        if topics:
            for group in self._groups.values():
                group.topics_changed(topics, self._topics)

    async def sweep(self) -> None:
        """Remove members that are silent, and store the epochs that changed."""
        now = self._clock.monotonic()
        for group in list(self._groups.values()):
            for member_id in group.expire(now, self._topics):
                _log.info("the share group %r lost its member %r", group.group_id, member_id)
        for group_id, group in list(self._groups.items()):
            epoch = group.epoch
            if self._stored.get(group_id) != epoch:
                await self._store_epoch(group_id, epoch)

    async def _store_epoch(self, group_id: str, epoch: int) -> None:
        try:
            await self._store.transaction([Set(_path(group_id), _encode(epoch))])
        except NoNode:
            self._forget(group_id)
        except StoreError as error:
            _log.debug("the epoch of the share group %r is not stored yet: %s", group_id, error)
        else:
            if group_id in self._groups:
                self._stored[group_id] = epoch

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._groups.clear()
            self._stored.clear()

    def _forget(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self._stored.pop(group_id, None)

    async def _get(self, group_id: str, *, create: bool) -> ShareGroup | None:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        if not self._ownership.is_ours(group_id):
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        while (group := self._groups.get(group_id)) is None:
            self._check_store()
            task = self._loading.get(group_id)
            if task is None:
                task = asyncio.create_task(self._load(group_id, create=create))
                self._loading[group_id] = task
                task.add_done_callback(lambda _: self._loading.pop(group_id, None))
            group = await asyncio.shield(task)
            if group is not None or not create:
                break
        return group

    async def _load(self, group_id: str, *, create: bool) -> ShareGroup | None:
        path = _path(group_id)
        try:
            node = await self._store.get(path)
            if node is None and create:
                if await self._is_consumer_group(group_id):
                    raise ApiError(
                        ErrorCode.GROUP_ID_NOT_FOUND,
                        f"{group_id} is a consumer group, no share group",
                    )
                try:
                    await self._store.transaction([Create(path, _encode(0))])
                except NodeExists:  # a server of the ensemble lags behind
                    node = await self._store.get(path)
        except StoreError as error:
            raise _unavailable(error) from error
        if node is None and not create:
            return None
        if not self._ownership.is_ours(group_id):
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        epoch = 0 if node is None else _decode(node.data)
        self._stored[group_id] = epoch
        group = self._groups[group_id] = ShareGroup(group_id, epoch)
        return group

    def _check_store(self) -> None:
        if self._store.state is not SessionState.CONNECTED:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "the metadata store is not connected"
            )


def _path(group_id: str) -> str:
    return f"{ROOT}/{escape(group_id)}"


def _encode(epoch: int) -> bytes:
    return json.dumps({"version": _VERSION, "epoch": epoch}, separators=(",", ":")).encode()


def _decode(data: bytes) -> int:
    """The epoch in a group's node; 0 where that cannot be read: nothing depends on it."""
    try:
        return int(json.loads(data)["epoch"])
    except (ValueError, KeyError, TypeError):
        return 0


def _unavailable(error: StoreError) -> ApiError:
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the metadata store failed: {error}")
