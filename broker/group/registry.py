"""Groups in memory: loaded when first asked for, woken when something is due, let go when in doubt.

Memory is a cache of the store. Whenever a write fails, nobody can know what is stored: the group is
given up, everyone who waits for it is told to try again, and the next one who asks for it has it
loaded anew. Only groups that belong to this broker are loaded; :mod:`.takeover` lets go of those
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

from .core import GroupLimits
from .group import Group
from .hosted import HostedGroup
from .loader import Loader, Topics
from .offsets import Offset, TopicPartition
from .ownership import Ownership
from .patience import PATIENCE, Patience
from .requests import Effect, Heartbeat, Moved, Reply, Request, Result, Save
from .state import GroupState
from .timers import Timers
from .writer import Writer

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
        self._patience = Patience(clock, timers)
        self._limits = GroupLimits(
            max_size=config.group_max_size,
            initial_rebalance_delay=config.group_initial_rebalance_delay_ms / 1000,
        )
        self._loader = Loader(store, topics)
        self._writer = Writer(store, timers, clock.monotonic, PATIENCE, self.give_up)
        self._groups: dict[str, HostedGroup] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._answers: dict[Request, asyncio.Future[Any]] = {}
        self._is_closed = False
        self.rebalances = 0

    def __iter__(self) -> Iterator[HostedGroup]:
        """Those in memory, which after :meth:`load_all` are all; not those on their way out."""
        groups = list(self._groups.values())
        return (hosted for hosted in groups if hosted.group.state is not GroupState.DEAD)

    async def get(self, group_id: str) -> HostedGroup:
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
            if hosted := self._groups.get(group_id):
                if hosted.group.state is GroupState.DEAD:
                    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is being deleted")
                return hosted
            self._check_owner(group_id)
            task = self._loading.get(group_id)
            if task is None:
                task = asyncio.create_task(self._load(group_id), name=f"load group {group_id!r}")
                self._loading[group_id] = task
            await self._patience.wait_for(task)

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
            for name in await self._patience.wait_for(reading)
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
        hosted = self._groups.get(group_id) if isinstance(request, Heartbeat) else None
        if hosted is None or self._is_closed:
            hosted = await self.get(group_id)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[request] = answer
        self._perform(hosted, hosted.group.handle(request, self._clock.monotonic()))
        return await answer

    async def save_offsets(
        self, hosted: HostedGroup, offsets: Mapping[TopicPartition, Offset | None]
    ) -> ErrorCode:
        """Store offsets, or delete them (None); why that failed, as far as anyone can know."""
        stored: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        hosted.save_offsets(offsets, partial(_resolve, stored))
        self._writer.write(hosted)
        return await stored

    async def confirm(self, hosted: HostedGroup) -> ErrorCode:
        """Wait until the store has said that what it holds is what memory has; why not, if so.

        Nobody else can have taken the group over unnoticed, then.
        """
        return ErrorCode.NONE if hosted.is_disposable else await self.save_offsets(hosted, {})

    async def remove(self, hosted: HostedGroup) -> ErrorCode:
        """Delete a group that nobody is in; who asks for it meanwhile is told to try again."""
        removed: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode) -> None:
            self.forget(hosted, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            _resolve(removed, error)

        hosted.group.dissolve(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        hosted.remove(done)
        self._writer.write(hosted)
        return await removed

    def give_up(self, hosted: HostedGroup, error: ErrorCode) -> None:
        """Forget a group of which nobody knows what is stored; all who wait are told ``error``."""
        if hosted.is_abandoned:
            return
        _log.info("gave up group %r in memory: %s", hosted.group_id, error.name)
        hosted.abandon(error)
        self.forget(hosted, error)

    def forget(self, hosted: HostedGroup, error: ErrorCode) -> None:
        """Have a group no longer in memory; those whom it kept waiting are told ``error``."""
        self._refuse(hosted.group.dissolve(error))
        if hosted.timer is not None:
            hosted.timer.cancel()
        if self._groups.get(hosted.group_id) is hosted:
            del self._groups[hosted.group_id]

    def forget_if_disposable(self, hosted: HostedGroup) -> None:
        """Keep no memory of a group that only a question made."""
        if hosted.is_disposable:
            self.forget(hosted, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def drain(self) -> None:
        """Take nothing on any more, and turn away whoever waits for others to join or sync."""
        self._is_closed = True
        for hosted in self._groups.values():
            if hosted.timer is not None:
                hosted.timer.cancel()
            self._refuse(hosted.group.turn_away(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    async def close(self) -> None:
        """Store what was accepted, and forget everything."""
        self.drain()
        await self._writer.drain()
        for hosted in list(self._groups.values()):
            self.give_up(hosted, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for task in list(self._loading.values()):
            task.cancel()

    async def _load(self, group_id: str) -> None:
        try:
            now_ms = self._clock.time_ms()
            stored, image, since_ms = await self._loader.load(group_id, now_ms)
            self._check_owner(group_id)  # it may have changed hands meanwhile
            group = Group.restore(group_id, image, self._clock.monotonic(), self._limits)
            hosted = self._groups[group_id] = HostedGroup(group, stored, since_ms)
            self._set_timer(hosted)
        finally:
            del self._loading[group_id]

    def _perform(self, hosted: HostedGroup, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Moved):
                self._note(hosted, effect)
        if Save() in effects:
            hosted.save_group()
            self._writer.write(hosted)
        for effect in effects:
            if isinstance(effect, Reply):
                hosted.when_stored(partial(self._answer, effect.request, effect.result))
        self._set_timer(hosted)
        self.forget_if_disposable(hosted)

    def _note(self, hosted: HostedGroup, move: Moved) -> None:
        hosted.since_ms = self._clock.time_ms()
        self.rebalances += move.new == GroupState.STABLE.value
        reason = _printable(move.reason[:_MAX_REASON])
        _log.info("group %r: %s -> %s: %s", hosted.group_id, move.old, move.new, reason)

    def _refuse(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._answer(effect.request, effect.result, ErrorCode.NONE)

    def _answer(self, request: Request, result: Result, error: ErrorCode) -> None:
        answer = self._answers.pop(request)
        if not answer.done():
            answer.set_result(request.refuse(error) if error else result)

    def _set_timer(self, hosted: HostedGroup) -> None:
        at = hosted.group.wake_at
        if hosted.timer is not None:
            if hosted.timer_at <= at:
                return  # it will be set anew when it finds that it came too early
            hosted.timer.cancel()
        hosted.timer_at = at
        hosted.timer = (
            None if at == math.inf else self._timers.call_at(at, partial(self._wake, hosted))
        )

    def _wake(self, hosted: HostedGroup) -> None:
        hosted.timer = None
        self._perform(hosted, hosted.group.tick(self._clock.monotonic()))


def _printable(text: str) -> str:
    """Without what clients could forge lines of the log with."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)
