"""The group coordinator: what handlers ask of groups and their offsets."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.consumer_protocol import CONSUMER
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore

from ..metadata.cache import Subscriber
from ..metadata.image import BrokerInfo, Topic
from .failover import CoordinatorFailover
from .group import Group
from .group_metadata import GroupMetadata
from .offset_cleaner import OffsetCleaner
from .offsets import Offset, Offsets, Retention, TopicPartition, is_subscribed
from .ownership import LiveBrokers, Ownership
from .registry import GroupRegistry
from .requests import Heartbeat, Join, JoinResult, Leave, LeaveResult, Request, Sync, SyncResult
from .state import GroupState
from .timers import LoopTimers, Timers

MAX_MEMBER_BYTES: Final = 512 * 1024  # of metadata or assignment, so that a znode can hold it


class ClusterMetadata(LiveBrokers, Protocol):
    """What groups need of the cluster's metadata."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Those that exist now, by name."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell ``subscriber`` what becomes different."""


class GroupCoordinator:
    """The consumer groups that belong to this broker, of all that the cluster has.

    Whatever is answered is stored. When the store does not do its part, the answer or the
    :class:`ApiError` raised is COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS or
    NOT_COORDINATOR, and a client tries again.
    """

    def __init__(
        self,
        store: MetadataStore,
        metadata: ClusterMetadata,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers | None = None,
    ) -> None:
        """``timers``: by default the event loop's."""
        timers = timers or LoopTimers(clock)
        self._clock = clock
        self._config = config
        self._ownership = owners = Ownership(config.node_id, metadata)
        self._registry = GroupRegistry(store, metadata.topics, owners, config, clock, timers)
        self._failover = CoordinatorFailover(self._registry, owners, store, clock, timers)
        self._retention = Retention(config.offsets_retention_minutes * 60_000)
        interval = config.offsets_retention_check_interval_ms / 1000
        self._cleaner = OffsetCleaner(self._registry, self._retention, interval, clock, timers)
        self.commits = 0  # partitions committed
        metadata.subscribe(self._failover.follow)
        metadata.subscribe(self._cleaner.follow)

    def coordinator(self, group_id: str) -> BrokerInfo | None:
        """The broker that coordinates a group; None while there is none that could."""
        return self._ownership.coordinator(group_id)

    async def start(self) -> None:
        """Begin to load this broker's groups; those that are asked for meanwhile come first."""
        self._failover.start()
        self._cleaner.start()

    def drain(self) -> None:
        """Take nothing on any more; members whose requests are parked are turned away."""
        self._registry.drain()

    async def close(self) -> None:
        """Drain, and store what was accepted."""
        self._failover.stop()
        self._cleaner.stop()
        await self._registry.close()

    # Membership: never raises, every request has a way to be refused

    async def join(self, group_id: str, request: Join) -> JoinResult:
        """A member's way into the next generation."""
        shortest = self._config.group_min_session_timeout_ms
        longest = self._config.group_max_session_timeout_ms
        if group_id and not shortest <= request.session_timeout_ms <= longest:
            return request.refuse(ErrorCode.INVALID_SESSION_TIMEOUT)
        if sum(len(metadata) for _, metadata in request.protocols) > MAX_MEMBER_BYTES:
            return request.refuse(ErrorCode.INVALID_REQUEST)
        result: JoinResult = await self._ask(group_id, request)
        return result

    async def sync(self, group_id: str, request: Sync) -> SyncResult:
        """A member's assignment; from the leader, everyone's."""
        if any(len(part) > MAX_MEMBER_BYTES for part in request.assignments.values()):
            return request.refuse(ErrorCode.INVALID_REQUEST)
        result: SyncResult = await self._ask(group_id, request)
        return result

    async def heartbeat(self, group_id: str, request: Heartbeat) -> ErrorCode:
        """A member's sign of life."""
        result: ErrorCode = await self._ask(group_id, request)
        return result

    async def leave(self, group_id: str, request: Leave) -> LeaveResult:
        """Members that go."""
        result: LeaveResult = await self._ask(group_id, request)
        return result

    async def _ask(self, group_id: str, request: Request) -> Any:
        if not group_id:
            return request.refuse(ErrorCode.INVALID_GROUP_ID)
        try:
            return await self._registry.ask(group_id, request)
        except ApiError as error:
            return request.refuse(error.code)

    # Offsets

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Offset],
        *,
        member_id: str = "",
        instance_id: str | None = None,
        generation: int = -1,
        retention_ms: int = -1,
    ) -> None:
        """Store offsets, by a member of the generation or (-1) by anyone while the group is empty.

        Their times are filled in here; ``retention_ms`` -1 is the broker's own.

        Raises:
            ApiError: not stored, as far as anyone can know. GROUP_ID_NOT_FOUND if a generation is
                given of a group that does not exist.
        """
        metadata = await self._registry.get(group_id)
        if generation >= 0 and metadata.is_disposable:
            self._registry.forget_if_disposable(metadata)
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        now = self._clock.monotonic()
        if error := metadata.group.admit_commit(member_id, instance_id, generation, now):
            self._registry.forget_if_disposable(metadata)
            raise ApiError(error)
        _check(await self._registry.save_offsets(metadata, self._stamp(offsets, retention_ms)))
        self.commits += len(offsets)

    def _stamp(
        self, offsets: Mapping[TopicPartition, Offset], retention_ms: int
    ) -> dict[TopicPartition, Offset | None]:
        now_ms = self._clock.time_ms()
        committed_at = self._retention.round(now_ms)
        expires_at = self._retention.round(now_ms + retention_ms) if retention_ms >= 0 else None
        return {
            key: Offset(position, leader_epoch, metadata, committed_at, expires_at, topic_id)
            for key, (position, leader_epoch, metadata, _, _, topic_id) in offsets.items()
        }

    async def offsets(self, group_id: str) -> Offsets:
        """What is stored for a group, to be read before the next ``await``; nothing if unknown.

        Raises:
            ApiError: try again, here or elsewhere.
        """
        metadata = await self._registry.get(group_id)
        _check(await self._registry.confirm(metadata))
        offsets = metadata.znodes.offsets
        self._registry.forget_if_disposable(metadata)
        return offsets

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Delete offsets, except (GROUP_SUBSCRIBED_TO_TOPIC) of topics that the group consumes.

        Raises:
            ApiError: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP where it cannot be
                told what the members consume.
        """
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        metadata = await self._existing(group_id)
        group = metadata.group
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        wanted = list(partitions)
        consumed = {topic for topic, _ in wanted if is_subscribed(group, topic)}
        doomed = [key for key in wanted if key[0] not in consumed]
        known = {key for key in doomed if key[1] in metadata.offsets_of(key[0])}
        if known:
            _check(await self._registry.save_offsets(metadata, dict.fromkeys(known)))
        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return {key: subscribed if key[0] in consumed else ErrorCode.NONE for key in wanted}

    # Administration

    async def groups(self) -> list[Group]:
        """All groups of this broker, to be read only.

        Raises:
            ApiError: try again.
        """
        await self._registry.load_all()
        return [metadata.group for metadata in self._registry if not metadata.is_disposable]

    async def describe(self, group_id: str) -> Group | None:
        """A group, to be read only.

        Raises:
            ApiError: try again.
        """
        try:
            return (await self._existing(group_id)).group
        except ApiError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return None
            raise

    async def delete(self, group_id: str) -> None:
        """Delete a group and its offsets.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP; or try again.
        """
        metadata = await self._existing(group_id)
        if metadata.group.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        _check(await self._registry.remove(metadata))

    async def _existing(self, group_id: str) -> GroupMetadata:
        metadata = await self._registry.get(group_id)
        if metadata.is_disposable:
            self._registry.forget_if_disposable(metadata)
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return metadata

    # For metrics

    def states(self) -> Counter[GroupState]:
        """How many groups in memory are in which state."""
        return Counter(metadata.group.state for metadata in self._registry)

    @property
    def rebalances(self) -> int:
        """Rebalances completed since the start."""
        return self._registry.rebalances

    @property
    def expired_offsets(self) -> int:
        """Offsets deleted for their age since the start."""
        return self._cleaner.expired


def _check(error: ErrorCode) -> None:
    if error:
        raise ApiError(error)
