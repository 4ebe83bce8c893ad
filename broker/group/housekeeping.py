"""What happens to offsets without anyone asking: they expire, or their topic is deleted."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from qbus.clock import Clock
from qbus.errors import ApiError

from ..metadata.image import Event, Topic, TopicDeleted
from .hosted import HostedGroup
from .offsets import NO_TOPIC_ID, Offset, Retention
from .registry import GroupRegistry
from .state import GroupState
from .timers import Timer, Timers

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 10.0
_DELETED: Final[Offset | None] = None


class Housekeeping:
    """Looks through this broker's groups now and then, and follows topics' deletion."""

    def __init__(
        self,
        hosting: GroupRegistry,
        retention: Retention,
        interval: float,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """``interval``: seconds from one look through the groups to the next."""
        self._hosting = hosting
        self._retention = retention
        self._interval = interval
        self._clock = clock
        self._timers = timers
        self._sweep_timer: Timer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.expired = 0

    def start(self) -> None:
        """Begin to look through the groups once in a while."""
        self._sweep_after(self._interval)

    def stop(self) -> None:
        """Leave everything as it is."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for task in self._tasks:
            task.cancel()

    async def follow(self, events: Sequence[Event]) -> None:
        """Delete what is committed for topics that were deleted; not what is for namesakes."""
        topics = [event.topic for event in events if isinstance(event, TopicDeleted)]
        if topics and not await self._try(self._forget(topics)):
            self._spawn(self._keep_trying_to_forget(topics))

    async def sweep(self) -> None:
        """Delete expired offsets, and groups that have neither members nor offsets any more.

        Raises:
            ApiError: the groups cannot be read.
        """
        await self._hosting.load_all()
        settled = [hosted for hosted in self._hosting if hosted.is_settled]  # the rest is in use
        await asyncio.gather(*(self._sweep_group(hosted) for hosted in settled))

    async def _sweep_group(self, hosted: HostedGroup) -> None:
        group, offsets = hosted.group, hosted.stored.offsets
        now_ms = self._clock.time_ms()
        expired = dict.fromkeys(
            self._retention.expired(group, offsets, hosted.since_ms, now_ms), _DELETED
        )
        is_left = group.state is GroupState.EMPTY and group.is_vacant
        if is_left and len(expired) == sum(map(len, offsets.values())):
            error = await self._hosting.remove(hosted)
        elif expired:
            error = await self._hosting.save_offsets(hosted, expired)
        else:
            return
        if not error:
            self.expired += len(expired)

    async def _keep_trying_to_forget(self, topics: list[Topic]) -> None:
        await self._sleep(_RETRY_SECONDS)
        while not await self._try(self._forget(topics)):
            await self._sleep(_RETRY_SECONDS)

    async def _forget(self, topics: list[Topic]) -> None:
        await self._hosting.load_all()
        work = []
        for hosted in self._hosting:
            doomed = {
                (topic.name, partition): _DELETED
                for topic in topics
                for partition, offset in hosted.offsets_of(topic.name).items()
                if offset.topic_id in {topic.id, NO_TOPIC_ID}
            }
            if doomed:
                work.append(self._hosting.save_offsets(hosted, doomed))
        for error in await asyncio.gather(*work):
            if error:
                raise ApiError(error)

    def _sweep_after(self, seconds: float) -> None:
        when = self._clock.monotonic() + seconds
        self._sweep_timer = self._timers.call_at(when, self._sweep_now)

    def _sweep_now(self) -> None:
        self._spawn(self._try(self.sweep()))
        self._sweep_after(self._interval)

    async def _try(self, work: Coroutine[Any, Any, None]) -> bool:
        try:
            await work
        except ApiError as error:
            _log.warning("cannot look through the groups: %s", error)
            return False
        return True

    async def _sleep(self, seconds: float) -> None:
        over = asyncio.get_running_loop().create_future()
        timer = self._timers.call_at(
            self._clock.monotonic() + seconds, partial(over.set_result, None)
        )
        try:
            await over
        finally:
            timer.cancel()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
