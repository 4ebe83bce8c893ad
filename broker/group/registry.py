"""Groups in memory: loaded when first asked for, woken when something is due, let go when in doubt.

Memory is a cache of the store. Whenever a write fails, nobody can know what is stored: the group is
given up, everyone who waits for it is told to try again, and the next one who asks for it has it
loaded anew. Only groups that belong to this broker are loaded; :mod:`.failover` lets go of those
that do not any more.
"""

import asyncio
import logging
import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from qbus.clock import Clock
from qbus.config.groups import GroupKeys
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore, SessionState

from .group import Group, GroupLimits
from .group_metadata import GroupMetadata
from .loader import GroupLoader, StoreWait, Topics
from .offsets import Offset, TopicPartition
from .ownership import Ownership
from .requests import Effect, Heartbeat, Moved, Request, Respond, Result, Save
from .state import GroupState
from .timers import STORE_TIMEOUT_S, Timers
from .writer import GroupWriter

_log = logging.getLogger(__name__)

_LOADS_AT_ONCE: Final = 64
_MAX_REASON: Final = 500  # characters in the log
_NOT_LOADED: Final = {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_COORDINATOR}

T = TypeVar("T")


class GroupRegistry:
    """The groups that this broker coordinates."""

    def __init__(
        self,
        store: MetadataStore,
        topics: Topics,
        ownership: Ownership,
        config: GroupKeys,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._store = store
        self._ownership = ownership
        self._clock = clock
        self._timers = timers
        self._timeout_s = StoreWait(clock, timers)
        self._limits = GroupLimits(
            max_size=config.group_max_size,
            initial_rebalance_delay=config.group_initial_rebalance_delay_ms / 1000,
        )
        self._loader = GroupLoader(store, topics)
        self._writer = GroupWriter(store, timers, clock.monotonic, STORE_TIMEOUT_S, self.unload)
        self._groups: dict[str, GroupMetadata] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._answers: dict[Request, asyncio.Future[Any]] = {}
        self._is_closed = False
        self.rebalances = 0

    def __iter__(self) -> Iterator[GroupMetadata]:
        """Those in memory, which after :meth:`load_all` are all; not those on their way out."""
        groups = list(self._groups.values())
        return (metadata for metadata in groups if metadata.group.state is not GroupState.DEAD)

    async def get(self, group_id: str) -> GroupMetadata:
        """A group, loaded if need be; an empty one that is not stored if it does not exist.

        What is done to it must be done before the next ``await``: it may be let go then.

        Raises:
            ApiError: NOT_COORDINATOR, it is another broker's; COORDINATOR_LOAD_IN_PROGRESS or
                COORDINATOR_NOT_AVAILABLE, try again; UNKNOWN_SERVER_ERROR, what is stored is no
                group.
        """
        while True:
            if self._is_closed:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")
            if self._store.state is not SessionState.CONNECTED:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the store is out of reach")
            if metadata := self._groups.get(group_id):
                if metadata.group.state is GroupState.DEAD:
                    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is being deleted")
                return metadata
            self._check_owner(group_id)
            task = self._loading.get(group_id)
            if task is None:
                task = asyncio.create_task(self._load(group_id), name=f"load group {group_id!r}")
                self._loading[group_id] = task
            await self._timeout_s.wait_for(task)

    def _check_owner(self, group_id: str) -> None:
        if not self._ownership.is_ours(group_id):
            raise ApiError(ErrorCode.NOT_COORDINATOR)

    async def load_all(self) -> None:
        """Have every group of the store in memory that belongs to this broker and can be read.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE, try again.
        """
        reading = asyncio.create_task(self._loader.group_ids(), name="list groups")
        missing = [
            name
            for name in await self._timeout_s.wait_for(reading)
            if name not in self._groups and self._ownership.is_ours(name)
        ]
        for start in range(0, len(missing), _LOADS_AT_ONCE):
            some = missing[start : start + _LOADS_AT_ONCE]
            await asyncio.gather(*(self._get_if_legible(group_id) for group_id in some))

    async def _get_if_legible(self, group_id: str) -> None:
        try:
            await self.get(group_id)
        except ApiError as error:
            if error.code not in _NOT_LOADED:
                raise

    async def ask(self, group_id: str, request: Request) -> Any:
        """A group's answer to a request, when it has one and all that it tells of is stored.

        Heartbeats are answered from memory, as long as there is any.

        Raises:
            ApiError: the group cannot be loaded.
        """
        metadata = self._groups.get(group_id) if isinstance(request, Heartbeat) else None
        if metadata is None or self._is_closed:
            metadata = await self.get(group_id)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[request] = answer
        self._perform(metadata, metadata.group.handle(request, self._clock.monotonic()))
        return await answer

    async def save_offsets(
        self, metadata: GroupMetadata, offsets: Mapping[TopicPartition, Offset | None]
    ) -> ErrorCode:
        """Store offsets, or delete them (None); why that failed, as far as anyone can know."""
        stored: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        metadata.save_offsets(offsets, partial(_resolve, stored))
        self._writer.write(metadata)
        return await stored

    async def confirm(self, metadata: GroupMetadata) -> ErrorCode:
        """Wait until the store has said that what it holds is what memory has; why not, if so.

        Nobody else can have taken the group over unnoticed, then.
        """
        return ErrorCode.NONE if metadata.is_disposable else await self.save_offsets(metadata, {})

    async def remove(self, metadata: GroupMetadata) -> ErrorCode:
        """Delete a group that nobody is in; who asks for it meanwhile is told to try again."""
        removed: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode) -> None:
            self.forget(metadata, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            _resolve(removed, error)

        metadata.group.dissolve(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        metadata.remove(done)
        self._writer.write(metadata)
        return await removed

    def unload(self, metadata: GroupMetadata, error: ErrorCode) -> None:
        """Forget a group of which nobody knows what is stored; all who wait are told ``error``."""
        if metadata.is_abandoned:
            return
        _log.info("gave up group %r in memory: %s", metadata.group_id, error.name)
        metadata.abandon(error)
        self.forget(metadata, error)

    def forget(self, metadata: GroupMetadata, error: ErrorCode) -> None:
        """Have a group no longer in memory; those whom it kept waiting are told ``error``."""
        self._refuse(metadata.group.dissolve(error))
        if metadata.timer is not None:
            metadata.timer.cancel()
        if self._groups.get(metadata.group_id) is metadata:
            del self._groups[metadata.group_id]

    def forget_if_disposable(self, metadata: GroupMetadata) -> None:
        """Keep no memory of a group that only a question made."""
        if metadata.is_disposable:
            self.forget(metadata, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def drain(self) -> None:
        """Take nothing on any more, and turn away whoever waits for others to join or sync."""
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

    async def _load(self, group_id: str) -> None:
        try:
            now_ms = self._clock.time_ms()
            znodes, image, since_ms = await self._loader.load(group_id, now_ms)
            self._check_owner(group_id)  # it may have changed hands meanwhile
            group = Group.restore(group_id, image, self._clock.monotonic(), self._limits)
            metadata = self._groups[group_id] = GroupMetadata(group, znodes, since_ms)
            self._set_timer(metadata)
        finally:
            del self._loading[group_id]

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
        self._set_timer(metadata)
        self.forget_if_disposable(metadata)

    def _note(self, metadata: GroupMetadata, move: Moved) -> None:
        metadata.since_ms = self._clock.time_ms()
        self.rebalances += move.new == GroupState.STABLE.value
        reason = _printable(move.reason[:_MAX_REASON])
        _log.info("group %r: %s -> %s: %s", metadata.group_id, move.old, move.new, reason)

    def _refuse(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Respond):
                self._answer(effect.request, effect.result, ErrorCode.NONE)

    def _answer(self, request: Request, result: Result, error: ErrorCode) -> None:
        answer = self._answers.pop(request)
        if not answer.done():
            answer.set_result(request.refuse(error) if error else result)

    def _set_timer(self, metadata: GroupMetadata) -> None:
        at = metadata.group.wake_at
        if metadata.timer is not None:
            if metadata.timer_at <= at:
                return  # it will be set anew when it finds that it came too early
            metadata.timer.cancel()
        metadata.timer_at = at
        metadata.timer = (
            None if at == math.inf else self._timers.call_at(at, partial(self._wake, metadata))
        )

    def _wake(self, metadata: GroupMetadata) -> None:
        metadata.timer = None
        self._perform(metadata, metadata.group.tick(self._clock.monotonic()))


def _printable(text: str) -> str:
    """Without what clients could forge lines of the log with."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)
