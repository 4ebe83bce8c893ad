"""The group coordinator: requests of handlers about groups and their offsets."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.consumer_protocol import CONSUMER
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore, SessionState, StoreError

from ..internal_logs import InternalLog, Shard
from ..metadata.cache import Subscriber
from ..metadata.image import BrokerInfo, Event, Topic, changed_topics
from .committed import CommittedOffsets
from .committing import PackedCommit, PackedTopic
from .failover import CoordinatorFailover
from .group_metadata import GroupMetadata
from .leadership import Leadership
from .machine import GroupKinds, GroupMachine
from .moves import OffsetHomes
from .offset_cleaner import OffsetCleaner
from .offset_log import OffsetLog, Verify
from .offset_machine import Committed, OffsetsMachine
from .offsets import Offset, Offsets, Retention, TopicPartition, is_of_other
from .ownership import LiveBrokers, Ownership
from .registry import GroupRegistry
from .requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    LeaveResult,
    Request,
    Sync,
    SyncResult,
)
from .state import GroupState
from .storage import OffsetsStorage, Storage
from .timers import LoopTimers, Timers

_log = logging.getLogger(__name__)

_LEFT_S: Final = 60.0
MAX_MEMBER_BYTES: Final = 512 * 1024  # of metadata or assignment; a znode must hold it
MAX_PACKED_BYTES: Final = 256 * 1024  # of records that are not divided between batches


class ClusterMetadata(LiveBrokers, Protocol):
    """The part of the cluster's metadata that groups need."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that exist now, by name."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call ``subscriber`` with every change from now on."""


class GroupCoordinator:
    """The consumer groups that this broker coordinates.

    A request is answered when its effects are stored. When the store fails, the answer or the
    :class:`ApiError` raised is COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS or
    NOT_COORDINATOR, and clients try again.
    """

    def __init__(
        self,
        store: MetadataStore,
        metadata: ClusterMetadata,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers | None = None,
        kinds: GroupKinds | None = None,
    ) -> None:
        """Coordinate groups.

        timers: by default the event loop's.
        kinds: how to make groups that are not classic ones; None: there are only those.
        """
        timers = timers or LoopTimers(clock)
        self._clock = clock
        self._config = config
        self._ownership = owners = Ownership(config.node_id, metadata)
        self._store = store
        self._topics = metadata.topics
        self._registry = GroupRegistry(store, metadata.topics, owners, config, clock, timers, kinds)
        self._committed = CommittedOffsets(self._registry, metadata.topics)
        self._homes: OffsetHomes | None = None
        self._failover = CoordinatorFailover(self._registry, owners, store, clock, timers)
        self._retention = Retention(config.offsets_retention_minutes * 60_000)
        interval = config.offsets_retention_check_interval_ms / 1000
        self._cleaner = OffsetCleaner(
            self._registry, self._committed, self._retention, interval, clock, timers
        )
        self._tells_of_left_at = 0.0
        self.commits = 0  # partitions committed
        metadata.subscribe(self._failover.follow)
        metadata.subscribe(self._cleaner.follow)
        metadata.subscribe(self._follow_topics)

    def coordinator(self, group_id: str) -> BrokerInfo | None:
        """Return the broker that coordinates a group, or None while there is none."""
        return self._ownership.coordinator(group_id)

    async def find_coordinator(self, group_id: str) -> BrokerInfo | None:
        """The same; the log of offsets is made when it is to coordinate and does not exist.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE, it cannot be made.
        """
        return await self._ownership.find(group_id)

    # Where offsets are

    def use_log(self, log: OffsetLog) -> None:
        """Have offsets in the log, or move them from one place to the other, as is configured."""
        storage = OffsetsStorage(self._store, self._storage_changed)
        leadership = Leadership(self._store, log.internal_log, self._config.node_id)
        homes = OffsetHomes(log, storage, leadership)
        self._homes = self._registry.homes = self._ownership.homes = homes

    @property
    def storage(self) -> Storage:
        """Where the cluster keeps offsets now."""
        return Storage.STORE if self._homes is None else self._homes.storage.current

    def offsets_partition(self, group_id: str) -> int | None:
        """The partition of ``__consumer_offsets`` that takes a transaction's offsets of a group.

        None: the group's nodes in the metadata store do.
        """
        if self._homes is None or self.storage is not Storage.LOG:
            return None
        return self._homes.log.partition_for(group_id)

    def shard_loaded(self, _: Shard[OffsetsMachine]) -> None:
        """Some groups belong here from now on."""
        self._failover.load()

    def shard_unloaded(self, shard: Shard[OffsetsMachine]) -> None:
        """Some groups do not belong here any more."""
        homes = self._homes
        if homes is not None and homes.storage.is_by_log:
            self._failover.unload_where(
                lambda name: homes.log.partition_for(name) == shard.partition.index
            )

    def _storage_changed(self) -> None:
        self._failover.unload_where(lambda _: True)
        self._failover.load()

    async def look_after_storage(self, *, is_controller: bool) -> None:
        """Follow a change of the storage; the controller brings it about.

        To be called often: what does not work now is tried again the next time.
        """
        if self._homes is None or self._store.state is not SessionState.CONNECTED:
            return
        storage = self._homes.storage
        try:
            await storage.look()
            if is_controller:
                await storage.switch(Storage(self._config.offsets_storage))
            if storage.current is Storage.RETURNING:
                await self._return_offsets(self._homes, is_controller=is_controller)
        except (ApiError, StoreError) as error:
            _log.info("where offsets are kept cannot be seen to now: %s", error)

    async def _return_offsets(self, homes: OffsetHomes, *, is_controller: bool) -> None:
        """Load the groups that have offsets in the log, which moves these, until none is left."""
        log, storage, leadership = homes
        if is_controller and not log.count:
            await storage.end_return()
            return
        left: list[str] = []
        for index, machine in log.machines().items():
            for group_id in machine.group_ids():
                await self._registry.move_out_of_log(group_id)
            left += machine.group_ids()
            if not machine.group_ids() and (leads := await leadership.checks(index)):
                await storage.has_returned(index, log.count, leads)
        self._tell_of_left(left)

    def _tell_of_left(self, groups: Sequence[str]) -> None:
        """Say which groups hold up the return of offsets to the store, once a minute."""
        now = self._clock.monotonic()
        if not groups:
            self._tells_of_left_at = now + _LEFT_S
        elif now >= self._tells_of_left_at:
            self._tells_of_left_at = now + _LEFT_S
            _log.warning(
                "offsets of %d groups, as %s, are still in the log: each waits for the end of its"
                " transactions, or its node in the metadata store cannot be read"
                " (an earlier line says why)",
                *(len(groups), groups[0]),
            )

    async def start(self) -> None:
        """Begin to load this broker's groups; requested groups come first.

        Raises:
            StoreError: it cannot be read where offsets are kept.
        """
        if self._homes is not None:
            await self._homes.storage.start(Storage(self._config.offsets_storage))
        self._failover.start()
        self._cleaner.start()

    def drain(self) -> None:
        """Accept no more requests, and refuse parked ones."""
        self._registry.drain()

    async def close(self) -> None:
        """Drain, and store what was accepted."""
        self._failover.stop()
        self._cleaner.stop()
        await self._registry.close()

    # Membership: these methods never raise; every request has an answer that refuses it

    async def join(self, group_id: str, request: Join) -> JoinResult:
        """Let a member join the next generation."""
        shortest = self._config.group_min_session_timeout_ms
        longest = self._config.group_max_session_timeout_ms
        if group_id and not shortest <= request.session_timeout_ms <= longest:
            return request.refuse(ErrorCode.INVALID_SESSION_TIMEOUT)
        if sum(len(metadata) for _, metadata in request.protocols) > MAX_MEMBER_BYTES:
            return request.refuse(ErrorCode.INVALID_REQUEST)
        result: JoinResult = await self._ask(group_id, request)
        return result

    async def sync(self, group_id: str, request: Sync) -> SyncResult:
        """Return a member's assignment; the leader's request brings all assignments."""
        if any(len(part) > MAX_MEMBER_BYTES for part in request.assignments.values()):
            return request.refuse(ErrorCode.INVALID_REQUEST)
        result: SyncResult = await self._ask(group_id, request)
        return result

    async def heartbeat(self, group_id: str, request: Heartbeat) -> ErrorCode:
        """Extend a member's session."""
        result: ErrorCode = await self._ask(group_id, request)
        return result

    async def leave(self, group_id: str, request: Leave) -> LeaveResult:
        """Remove members."""
        result: LeaveResult = await self._ask(group_id, request)
        return result

    async def consumer_heartbeat(
        self, group_id: str, request: ConsumerHeartbeat
    ) -> ConsumerHeartbeatResult:
        """Take in a heartbeat of KIP-848, which may join and leave as well."""
        if not group_id:
            return request.refuse(ErrorCode.INVALID_GROUP_ID)
        if (size := _size(request)) > MAX_MEMBER_BYTES:
            return request.refuse(
                ErrorCode.INVALID_REQUEST,
                f"what the member says takes {size} bytes, {MAX_MEMBER_BYTES} are allowed:"
                " subscribe to fewer topics, or by a regular expression",
            )
        try:
            answer: ConsumerHeartbeatResult = await self._registry.ask(group_id, request)
        except ApiError as error:
            return request.refuse(error.code, error.message)
        return answer

    def _follow_topics(self, events: Sequence[Event]) -> None:
        if names := changed_topics(events):
            self._registry.topics_changed(names)

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
        """Store offsets of a member of the generation or, with -1, of any client of an empty group.

        Commit times are set here. ``retention_ms`` -1 takes the broker's retention.

        Raises:
            ApiError: the offsets may not be stored. GROUP_ID_NOT_FOUND: a generation was given, and
                the group does not exist.
        """
        metadata = await self._admitting(group_id, generation)
        now = self._clock.monotonic()
        if error := metadata.group.admit_commit(member_id, instance_id, generation, now):
            self._registry.forget_if_disposable(metadata)
            raise ApiError(error)
        stamped = self._stamp(metadata, offsets, retention_ms)
        _check(await self._committed.save(metadata, stamped))
        self.commits += len(offsets)

    def begin_commit(
        self,
        group_id: str,
        topics: Sequence[PackedTopic],
        done: Callable[[ErrorCode], None],
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> bool:
        """Commit as :meth:`commit` does, if that is to be waited for by nobody but ``done``.

        done: called later with the error, if any.

        False: nothing is stored. The group is not in memory, or the offsets may not be stored, or
        are too many for one batch, or transactions have brought others: :meth:`commit` says which.
        """
        metadata = self._registry.ready(group_id)
        if metadata is None or metadata.pending:
            return False
        now = self._clock.monotonic()
        if metadata.group.admit_commit(member_id, instance_id, generation, now):
            return False
        committed_at = self._clock.time_ms()
        if not metadata.is_in_log:
            committed_at = self._retention.round(committed_at)
        packed = PackedCommit(group_id, topics, committed_at)
        if packed.size > MAX_PACKED_BYTES:
            return False

        def saved(error: ErrorCode) -> None:
            if not error:
                self.commits += packed.count
            done(error)

        return self._committed.begin_save(metadata, packed, saved)

    async def _admitting(self, group_id: str, generation: int) -> GroupMetadata:
        """Return a group for a commit to it."""
        metadata = await self._registry.get(group_id)
        if generation >= 0 and self._registry.is_disposable(metadata):
            self._registry.forget_if_disposable(metadata)
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        return metadata

    async def commit_in_transaction(  # noqa: PLR0913 - what the request says
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Offset],
        *,
        producer_id: int,
        epoch: int,
        verify: Verify,
        has_new_epoch: bool = False,
        member_id: str = "",
        instance_id: str | None = None,
        generation: int = -1,
    ) -> None:
        """Store offsets that count when a producer's transaction is committed (KIP-98, KIP-447).

        ``verify`` asks the transaction's coordinator before the first of them is stored.
        ``has_new_epoch``: the producer gets a new epoch for each transaction (KIP-890). A member is
        checked only where the request names one.

        Raises:
            ApiError: as :meth:`commit`, or what ``verify`` answers; INVALID_TXN_STATE, the
                transaction has ended meanwhile; INVALID_PRODUCER_EPOCH.
        """
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        metadata = await self._admitting(group_id, generation)
        if generation >= 0 or member_id or instance_id is not None:
            now = self._clock.monotonic()
            error = metadata.group.admit_commit(member_id, instance_id, generation, now)
            if error and error is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._registry.forget_if_disposable(metadata)
                raise ApiError(error)
        stamped = self._stamp(metadata, offsets, -1)
        try:
            await self._committed.save_in_transaction(
                metadata, stamped, producer_id, epoch, verify, has_new_epoch=has_new_epoch
            )
        finally:
            self._registry.forget_if_disposable(metadata)
        self.commits += len(offsets)

    async def end_transaction(
        self, group_id: str, producer_id: int, epoch: int, *, committed: bool
    ) -> None:
        """Have the offsets count that a transaction brought to a group's nodes, or drop them.

        ``epoch``: the one that the transaction had. Repeated, it changes nothing.

        Raises:
            ApiError: retriable, here or at another broker.
        """
        metadata = await self._registry.get(group_id)
        await self._committed.end_transaction(metadata, producer_id, epoch, committed=committed)
        self._registry.forget_if_disposable(metadata)

    def _stamp(
        self,
        metadata: GroupMetadata,
        offsets: Mapping[TopicPartition, Offset],
        retention_ms: int,
    ) -> dict[TopicPartition, Offset]:
        """Add the times: exact ones in the log, rounded ones in the store."""
        now_ms = self._clock.time_ms()
        step = (lambda time_ms: time_ms) if metadata.is_in_log else self._retention.round
        committed_at = step(now_ms)
        expires_at = step(now_ms + retention_ms) if retention_ms >= 0 else None
        return {
            key: Offset(position, leader_epoch, metadata, committed_at, expires_at, topic_id)
            for key, (position, leader_epoch, metadata, _, _, topic_id) in offsets.items()
        }

    async def offsets(
        self, group_id: str, member_id: str | None = None, member_epoch: int = -1
    ) -> Offsets:
        """Return the stored offsets of a group; read them before the next ``await``.

        See :meth:`committed_offsets`.
        """
        return (await self.committed_offsets(group_id, member_id, member_epoch)).offsets

    async def committed_offsets(
        self, group_id: str, member_id: str | None = None, member_epoch: int = -1
    ) -> Committed:
        """Return a group's stored offsets, and for which partitions transactions bring others.

        Read them before the next ``await``.

        ``member_id`` and ``member_epoch``: who asks, if it says that it is a member.

        Raises:
            ApiError: retriable, here or at another broker; UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH,
                whoever asks is no such member.
        """
        metadata = await self._registry.get(group_id)
        if error := metadata.group.admit_fetch(member_id, member_epoch):
            self._registry.forget_if_disposable(metadata)
            raise ApiError(error)
        offsets, unstable = await self._committed.read(metadata)
        self._registry.forget_if_disposable(metadata)
        return Committed(self._cleaner.without_forgotten(offsets), unstable)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Delete offsets; those of topics that the group consumes get GROUP_SUBSCRIBED_TO_TOPIC.

        Raises:
            ApiError: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP for members whose
                subscriptions are not those of consumers.
        """
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        metadata = await self._existing(group_id)
        group = metadata.group
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        wanted = list(partitions)
        consumed = {topic for topic, _ in wanted if group.is_subscribed(topic)}
        doomed = [key for key in wanted if key[0] not in consumed]
        known = {key for key in doomed if key[1] in self._committed.known_of(metadata, key[0])}
        if known:
            _check(await self._committed.save(metadata, dict.fromkeys(known)))
        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return {key: subscribed if key[0] in consumed else ErrorCode.NONE for key in wanted}

    # Administration

    async def groups(self) -> list[GroupMachine]:
        """Return all groups of this broker, for reading.

        Raises:
            ApiError: retriable.
        """
        await self._registry.load_all()
        return [
            metadata.group
            for metadata in self._registry
            if not self._registry.is_disposable(metadata)
        ]

    async def describe(self, group_id: str) -> GroupMachine | None:
        """Return a group for reading, or None.

        Raises:
            ApiError: retriable.
        """
        try:
            return (await self._existing(group_id)).group
        except ApiError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return None
            raise

    async def unknown(self, group_ids: Iterable[str]) -> frozenset[str]:
        """Return groups that do not exist, found together; :meth:`describe` tells of the others."""
        return await self._registry.unknown(group_ids)

    async def uncommitted(self, group_ids: Iterable[str]) -> frozenset[str]:
        """Return groups that do not exist and have no offsets, found together.

        :meth:`committed_offsets` tells of the others.
        """
        found = await self._registry.unknown(group_ids)
        homes = self._homes
        if homes is None or homes.storage.current is not Storage.LOG:
            return found
        by_partition: dict[int, list[str]] = {}
        for group_id in found:
            by_partition.setdefault(homes.log.partition_for(group_id), []).append(group_id)
        confirmed = await asyncio.gather(*map(self._without_offsets, by_partition.values()))
        return frozenset(one for some in confirmed for one in some)

    async def _without_offsets(self, group_ids: Sequence[str]) -> list[str]:
        """Return which of some groups of one partition have no offsets; none if it cannot say."""
        assert self._homes is not None
        log = self._homes.log
        try:
            await self._registry.confirm_log(group_ids[0])
        except ApiError:
            return []
        return [one for one in group_ids if log.is_ours(one) and not log.has(one)]

    async def delete(self, group_id: str) -> None:
        """Delete a group and its offsets.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP; or a retriable one.
        """
        metadata = await self._existing(group_id)
        if metadata.group.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        _check(await self._committed.remove(metadata))

    async def _existing(self, group_id: str) -> GroupMetadata:
        metadata = await self._registry.get(group_id)
        if self._registry.is_disposable(metadata):
            self._registry.forget_if_disposable(metadata)
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return metadata

    # For metrics

    def states(self) -> Counter[GroupState]:
        """Number of groups in memory, by state."""
        return Counter(metadata.group.state for metadata in self._registry)

    def committed(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        """Group, topic, and the stored offset of each partition, of the groups in memory."""
        for metadata in self._registry:
            for topic, offsets in list(self._committed.known(metadata).items()):
                of = self._topics.get(topic)
                found = list(offsets.items())
                yield (
                    metadata.group_id,
                    topic,
                    {p: at.offset for p, at in found if of is None or not is_of_other(of.id, at)},
                )

    @property
    def transactions(self) -> int:
        """Number of open transactions that have brought offsets to groups here."""
        pending = sum(len(metadata.znodes.pending) for metadata in self._registry)
        in_log = 0 if self._homes is None else self._homes.log.transactions
        return pending + in_log

    @property
    def logs(self) -> list[InternalLog[OffsetsMachine]]:
        """The log that offsets may be in, if there is one."""
        return [] if self._homes is None else [self._homes.log.internal_log]

    @property
    def rebalances(self) -> int:
        """Number of rebalances completed since the start."""
        return self._registry.rebalances

    @property
    def expired_offsets(self) -> int:
        """Number of offsets expired since the start."""
        return self._cleaner.expired


def _size(request: ConsumerHeartbeat) -> int:
    """About how many bytes of a heartbeat are stored; its names have no bounds of their own."""
    names = (
        request.member_id,
        request.instance_id or "",
        request.rack or "",
        request.pattern or "",
        request.client_id,
        *(request.topics or ()),
    )
    return sum(map(len, names))


def _check(error: ErrorCode) -> None:
    if error:
        raise ApiError(error)
