"""The groups in memory: loaded on the first request, woken by timers, unloaded when in doubt.

Memory is a cache of the store. When a write fails, what is stored is unknown: the group is
unloaded, all waiting requests get a retriable error, and the next request loads the group again.
Only groups that belong to this broker are loaded; :mod:`.failover` unloads those that no longer do.
"""

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore, Op, SessionState

from .group import Group, GroupImage, GroupLimits
from .group_metadata import Done, GroupMetadata
from .loader import GroupLoader, StoreWait, Topics
from .machine import GroupKinds, GroupMachine
from .moves import OffsetHomes, move_in
from .offset_log import OffsetLog
from .offsets import Offset, TopicPartition
from .ownership import Ownership
from .requests import (
    ConsumerHeartbeat,
    Effect,
    Heartbeat,
    Join,
    Moved,
    Request,
    Respond,
    Result,
    Save,
    Sync,
)
from .state import GroupState
from .timers import STORE_TIMEOUT_S, Timers
from .writer import GroupWriter
from .znodes import OffsetsLayout, ProducerEpoch

_log = logging.getLogger(__name__)

_LOADS_AT_ONCE: Final = 64
_FEW: Final = 8  # groups that are loaded at less cost than the names of all are read
_MAX_REASON: Final = 500  # characters in the log
_MEMORY: Final = "memory"  # the durability with which the system's cache is good enough
_NOT_LOADED: Final = {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_COORDINATOR}

T = TypeVar("T")


class GroupRegistry:
    """The groups that this broker coordinates.

    ``homes`` is set where offsets may be in the log.
    """

    def __init__(
        self,
        store: MetadataStore,
        topics: Topics,
        ownership: Ownership,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        kinds: GroupKinds | None = None,
    ) -> None:
        """``kinds``: how to make groups that are not classic ones; None: there are only those."""
        self._store = store
        self._kinds = kinds
        self._ownership = ownership
        self._clock = clock
        self._timers = timers
        self._store_wait = StoreWait(clock, timers)
        self._limits = GroupLimits(
            max_size=config.group_max_size,
            initial_rebalance_delay=config.group_initial_rebalance_delay_ms / 1000,
        )
        layout = OffsetsLayout(config.offsets_zookeeper_layout)
        self._loader = GroupLoader(store, topics, layout, lambda: self._guards)
        self._writer = GroupWriter(
            store,
            timers,
            clock.monotonic,
            STORE_TIMEOUT_S,
            self.unload,
            is_lazy=config.durability == _MEMORY,
        )
        self._groups: dict[str, GroupMetadata] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._answers: dict[Request, asyncio.Future[Any]] = {}
        self._is_closed = False
        self.homes: OffsetHomes | None = None
        self.rebalances = 0

    def __iter__(self) -> Iterator[GroupMetadata]:
        """The groups in memory, after :meth:`load_all` all of them; without dead ones."""
        groups = list(self._groups.values())
        return (metadata for metadata in groups if metadata.group.state is not GroupState.DEAD)

    async def get(self, group_id: str) -> GroupMetadata:
        """Return a group, loaded if needed; an empty one that is not stored if it does not exist.

        Use it before the next ``await``: it may be unloaded then.

        Raises:
            ApiError: NOT_COORDINATOR, it belongs to another broker; COORDINATOR_LOAD_IN_PROGRESS or
                COORDINATOR_NOT_AVAILABLE, retriable; UNKNOWN_SERVER_ERROR, its node is malformed.
        """
        while True:
            if self._is_closed:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")
            if self._store.state is not SessionState.CONNECTED:
                raise ApiError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, "the metadata store is not connected"
                )
            if metadata := self._groups.get(group_id):
                if metadata.group.state is GroupState.DEAD:
                    raise ApiError(
                        ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group is being deleted"
                    )
                return metadata
            self._check_owner(group_id)
            task = self._loading.get(group_id)
            if task is None:
                task = asyncio.create_task(self._load(group_id), name=f"load group {group_id!r}")
                self._loading[group_id] = task
            await self._store_wait.wait_for(task)

    def ready(self, group_id: str) -> GroupMetadata | None:
        """The group that :meth:`get` would return at once, if it is stored or has members."""
        if self._is_closed or self._store.state is not SessionState.CONNECTED:
            return None
        metadata = self._groups.get(group_id)
        if metadata is None or metadata.group.state is GroupState.DEAD:
            return None
        return None if self.is_disposable(metadata) else metadata

    def _check_owner(self, group_id: str) -> None:
        if error := self._ownership.refusal(group_id):
            raise ApiError(error)

    @property
    def _guards(self) -> list[Op]:
        return [] if self.homes is None else self.homes.storage.guards

    async def load_all(self) -> None:
        """Load every group that belongs to this broker and can be read.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE, retriable.
        """
        reading = asyncio.create_task(self._loader.group_ids(), name="list groups")
        stored = await self._store_wait.wait_for(reading)
        names = dict.fromkeys([*stored, *self._in_log()])
        missing = [
            name for name in names if name not in self._groups and self._ownership.is_ours(name)
        ]
        for start in range(0, len(missing), _LOADS_AT_ONCE):
            some = missing[start : start + _LOADS_AT_ONCE]
            await asyncio.gather(*(self._get_if_legible(group_id) for group_id in some))

    async def move_out_of_log(self, group_id: str) -> None:
        """Load a group that has offsets in the log, so that they are moved from there.

        Not while a transaction may bring more of them.
        """
        if self.homes is None or self.homes.log.unstable(group_id):
            return
        metadata = self._groups.get(group_id)
        if metadata is not None:
            self.unload(metadata, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        await self._get_if_legible(group_id)

    async def unknown(self, group_ids: Iterable[str]) -> frozenset[str]:
        """Return groups of this broker that are neither in memory nor stored, by one look.

        None where few are not in memory, or the look fails: :meth:`get` looks for each, then.
        """
        missing = [one for one in dict.fromkeys(group_ids) if self._is_missing(one)]
        if len(missing) < _FEW or self._is_closed:
            return frozenset()
        guards = self._guards
        looking = asyncio.create_task(self._loader.not_stored(missing), name="look for groups")
        try:
            found: frozenset[str] = await self._store_wait.wait_for(looking)
        except ApiError:
            return frozenset()
        if guards != self._guards:
            return frozenset()
        return frozenset(filter(self._is_missing, found))

    def _is_missing(self, group_id: str) -> bool:
        is_here = group_id in self._groups or group_id in self._loading or self._has_log(group_id)
        return bool(group_id) and not is_here and self._ownership.is_ours(group_id)

    async def confirm_log(self, group_id: str) -> None:
        """Confirm that what the log has of a group that is not in memory is all there is.

        Raises:
            ApiError: retriable, here or at another broker.
        """
        assert self.homes is not None, "offsets are in the log, and there is none"
        leadership = self.homes.leadership
        if not leadership.is_certain(group_id):
            name = f"confirm the offsets of group {group_id!r}"
            await self._store_wait.wait_for(
                asyncio.create_task(leadership.confirm(group_id), name=name)
            )
        await self.homes.log.read(group_id)

    def _in_log(self) -> list[str]:
        return [] if self.homes is None else self.homes.log.group_ids()

    async def _get_if_legible(self, group_id: str) -> None:
        try:
            await self.get(group_id)
        except ApiError as error:
            if error.code not in _NOT_LOADED:
                raise

    async def ask(self, group_id: str, request: Request) -> Any:
        """Return a group's response to a request, once everything it tells is stored.

        Heartbeats are answered from memory while the group is loaded.

        Raises:
            ApiError: the group cannot be loaded, or does not take such requests.
        """
        if isinstance(request, ConsumerHeartbeat) and request.pattern and self._kinds is not None:
            self._check_owner(group_id)
            _kept = await self._kinds.resolve(request)
        is_light = isinstance(request, Heartbeat | ConsumerHeartbeat)
        metadata = self._groups.get(group_id) if is_light else None
        if metadata is None or self._is_closed:
            metadata = await self.get(group_id)
        if not metadata.group.takes(request):
            self._convert(metadata, request)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[request] = answer
        self._perform(metadata, metadata.group.handle(request, self._clock.monotonic()))
        return await answer

    async def save_offsets(
        self, metadata: GroupMetadata, offsets: Mapping[TopicPartition, Offset | None]
    ) -> ErrorCode:
        """Store offsets, or delete them (None); return the error, if any."""
        stored: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.begin_save(metadata, offsets, partial(_resolve, stored))
        return await stored

    def begin_save(
        self, metadata: GroupMetadata, offsets: Mapping[TopicPartition, Offset | None], done: Done
    ) -> None:
        """The same, for who does not wait: ``done`` is called with the error, if any."""
        metadata.save_offsets(offsets, done)
        self._writer.write(metadata)

    async def confirm(self, metadata: GroupMetadata) -> ErrorCode:
        """Confirm with the store that memory is current; return the error, if any.

        The group's fence shows that no other broker has loaded it since. Where its offsets are in
        the log, that is not enough: the last broker to load it may be one that was deposed and has
        not heard of it, or such a broker may have made the node, and the leader knows the group
        without one. So the store confirms who leads as well, until it has done so once since the
        group has a node: who leads later has to load it from there, and takes the fence. It need
        not do so to end a transaction; so while there are some, who leads is asked each time.
        """
        if metadata.is_in_log and not (metadata.is_fenced and self._is_stable(metadata.group_id)):
            is_stored = metadata.znodes.version is not None
            error = await self._confirm_leadership(metadata)
            if error is not None:
                metadata.is_fenced = is_stored and not error
                return error
            if metadata.is_idle and metadata.znodes.version is None:
                return ErrorCode.NONE
        if metadata.is_disposable:
            return ErrorCode.NONE
        return await self.save_offsets(metadata, {})

    def _is_stable(self, group_id: str) -> bool:
        """Whether no transaction brings offsets to a group in the log, as far as is known here."""
        return self.homes is not None and not self.homes.log.unstable(group_id)

    async def _confirm_leadership(self, metadata: GroupMetadata) -> ErrorCode | None:
        """Confirm that this broker leads the partition of a group's offsets; the error, if any.

        None: nobody else can have been elected, and the store was not asked.
        """
        assert self.homes is not None, "offsets are in the log, and there is none"
        leadership, group_id = self.homes.leadership, metadata.group_id
        try:
            if leadership.is_certain(group_id):
                return None
            asking = asyncio.create_task(
                leadership.confirm(group_id), name=f"confirm the offsets of group {group_id!r}"
            )
            await self._store_wait.wait_for(asking)
        except ApiError as error:
            return error.code
        if metadata.is_abandoned:  # its offsets may have been moved out of the log meanwhile
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    async def save_pending(
        self,
        metadata: GroupMetadata,
        producer: ProducerEpoch,
        offsets: Mapping[TopicPartition, Offset],
    ) -> ErrorCode:
        """Store offsets that a producer's transaction brings; return the error, if any."""
        stored: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        metadata.save_pending(producer, offsets, partial(_resolve, stored))
        self._writer.write(metadata)
        return await stored

    async def supersede(
        self, metadata: GroupMetadata, places: Collection[TopicPartition]
    ) -> ErrorCode:
        """Have what transactions have brought for partitions count no more; the error, if any."""
        stored: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        metadata.supersede(places, partial(_resolve, stored))
        self._writer.write(metadata)
        return await stored

    async def end_pending(
        self,
        metadata: GroupMetadata,
        producers: Iterable[ProducerEpoch],
        offsets: Mapping[TopicPartition, Offset | None],
    ) -> ErrorCode:
        """End transactions, and store the offsets that count now; return the error, if any."""
        stored: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        metadata.end_pending(producers, offsets, partial(_resolve, stored))
        self._writer.write(metadata)
        return await stored

    async def remove(self, metadata: GroupMetadata) -> ErrorCode:
        """Delete a group without members; requests meanwhile get a retriable error."""
        removed: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode) -> None:
            self.forget(metadata, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            _resolve(removed, error)

        metadata.group.dissolve(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        metadata.remove(done)
        self._writer.write(metadata)
        return await removed

    def unload(self, metadata: GroupMetadata, error: ErrorCode) -> None:
        """Unload a group whose stored state is unknown; waiting requests get ``error``."""
        if metadata.is_abandoned:
            return
        _log.debug("unloaded group %r: %s", metadata.group_id, error.name)
        is_group_large = metadata.is_writing_group
        metadata.abandon(error)
        if error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE  # where somebody's offsets are too large
            if is_group_large:
                error = ErrorCode.GROUP_MAX_SIZE_REACHED
        self.forget(metadata, error)

    def forget(self, metadata: GroupMetadata, error: ErrorCode) -> None:
        """Remove a group from memory; waiting requests get ``error``."""
        self._refuse(metadata.group.dissolve(error))
        if metadata.timer is not None:
            metadata.timer.cancel()
        if self._groups.get(metadata.group_id) is metadata:
            del self._groups[metadata.group_id]

    def is_disposable(self, metadata: GroupMetadata) -> bool:
        """Whether a group may be forgotten: it has no members, and nothing of it is stored."""
        if not metadata.is_disposable:
            return False
        return not (metadata.is_in_log and self._has_log(metadata.group_id))

    def _has_log(self, group_id: str) -> bool:
        return self.homes is not None and self.homes.log.has(group_id)

    def forget_if_disposable(self, metadata: GroupMetadata) -> None:
        """Forget a group that exists only because a request named it."""
        if self.is_disposable(metadata):
            self.forget(metadata, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def drain(self) -> None:
        """Accept no more requests, and refuse parked ones."""
        self._is_closed = True
        for metadata in self._groups.values():
            if metadata.timer is not None:
                metadata.timer.cancel()
            self._refuse(metadata.group.turn_away(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    async def close(self) -> None:
        """Store what was accepted, and forget everything."""
        self.drain()
        await self._writer.drain()
        for metadata in list(self._groups.values()):
            self.unload(metadata, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for task in list(self._loading.values()):
            task.cancel()
        if self._kinds is not None:
            self._kinds.close()

    async def _load(self, group_id: str) -> None:
        try:
            now_ms = self._clock.time_ms()
            guards = self._guards
            znodes, image, since_ms = await self._loader.load(group_id, now_ms)
            is_in_log = False
            if self.homes is not None:
                is_in_log = await move_in(self._store, self.homes, group_id, znodes, now_ms)
                if is_in_log:
                    await self._drop_stale(self.homes.log, group_id)
            if self._kinds is not None and znodes.nodes:
                _kept = await self._kinds.prepare(group_id, znodes.nodes)
            self._check_owner(group_id)  # ownership may have changed meanwhile
            if guards != self._guards:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            group = self._restore(group_id, image, znodes.nodes)
            metadata = self._groups[group_id] = GroupMetadata(group, znodes, since_ms)
            metadata.is_in_log = is_in_log
            self._set_timer(metadata)
        finally:
            del self._loading[group_id]

    async def _drop_stale(self, log: OffsetLog, group_id: str) -> None:
        """Delete offsets in the log whose topics are others now than when they were committed."""
        if self._loader.stale(log.offsets(group_id)):
            await log.forget(group_id, self._loader.stale)

    def _restore(
        self, group_id: str, image: GroupImage, nodes: Mapping[str, bytes]
    ) -> GroupMachine:
        now = self._clock.monotonic()
        if nodes and self._kinds is not None:
            return self._kinds.restore(group_id, image, nodes, now)
        return Group.restore(group_id, image, now, self._limits)

    def topics_changed(self, names: Collection[str]) -> None:
        """Tell every group in memory that topics came, went or grew."""
        self._follow(names)
        if self._kinds is not None:
            self._kinds.follow_topics(partial(self._follow, ()))

    def _follow(self, names: Collection[str]) -> None:
        now = self._clock.monotonic()
        for metadata in self:
            self._perform(metadata, metadata.group.topics_changed(names, now))

    def _convert(self, metadata: GroupMetadata, request: Request) -> None:
        """Put a group of the other kind in the place of one that does not take a request.

        Raises:
            ApiError: the group keeps its kind.
        """
        if self._kinds is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "groups have one protocol here")
        try:
            successor = self._kinds.convert(metadata.group, request, self._clock.monotonic())
        except ApiError:
            self.forget_if_disposable(metadata)
            raise
        self._replace(metadata, successor)

    def _replace(self, metadata: GroupMetadata, successor: GroupMachine) -> None:
        """Give a group's place to its successor; what is parked has to come again."""
        _log.info("group %r is %s from now on", metadata.group_id, successor.kind)
        self._refuse(metadata.group.dissolve(ErrorCode.REBALANCE_IN_PROGRESS))
        metadata.group = successor
        metadata.since_ms = self._clock.time_ms()
        metadata.save_group()
        self._writer.write(metadata)
        self._set_timer(metadata)

    def _perform(self, metadata: GroupMetadata, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Moved):
                self._note(metadata, effect)
        if Save() in effects:
            metadata.save_group()
            self._writer.write(metadata)
        for effect in effects:
            if isinstance(effect, Respond):
                metadata.when_stored(partial(self._answer, effect.request, effect.result))
        if self._kinds is not None:
            successor = self._kinds.successor(metadata.group, self._clock.monotonic())
            if successor is not None:
                self._replace(metadata, successor)
        self._set_timer(metadata)
        self.forget_if_disposable(metadata)

    def _note(self, metadata: GroupMetadata, move: Moved) -> None:
        metadata.since_ms = self._clock.time_ms()
        self.rebalances += move.new == GroupState.STABLE.value
        reason = _printable(move.reason[:_MAX_REASON])
        _log.debug("group %r: %s -> %s: %s", metadata.group_id, move.old, move.new, reason)

    def _refuse(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Respond):
                self._answer(effect.request, effect.result, ErrorCode.NONE)

    def _answer(self, request: Request, result: Result, error: ErrorCode) -> None:
        answer = self._answers.pop(request)
        if not answer.done():
            answer.set_result(request.refuse(_of_member(request, error)) if error else result)

    def _set_timer(self, metadata: GroupMetadata) -> None:
        at = metadata.group.wake_at
        if metadata.timer is not None:
            if metadata.timer_at <= at:
                return  # an early wake-up sets it again
            metadata.timer.cancel()
        metadata.timer_at = at
        metadata.timer = (
            None if at == math.inf else self._timers.call_at(at, partial(self._wake, metadata))
        )

    def _wake(self, metadata: GroupMetadata) -> None:
        metadata.timer = None
        self._perform(metadata, metadata.group.tick(self._clock.monotonic()))


def _of_member(request: Request, error: ErrorCode) -> ErrorCode:
    """What a member is told: not that offsets are too large when its group is.

    Who only shows that it lives did not make the group too large, and finds it as it was.
    """
    if error is not ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
        return error
    if isinstance(request, ConsumerHeartbeat):
        brings = request.epoch == 0 or request.topics is not None or request.pattern is not None
    else:
        brings = isinstance(request, Join | Sync)
    return ErrorCode.GROUP_MAX_SIZE_REACHED if brings else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _printable(text: str) -> str:
    """Replace unprintable characters, with which clients could forge log lines."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)
