"""Deletes committed offsets that have expired or whose topic was deleted, and empty groups."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from qbus.clock import Clock
from qbus.errors import ApiError

from ..metadata.image import Event, Topic, TopicDeleted
from .committed import CommittedOffsets
from .group_metadata import GroupMetadata
from .offsets import Offset, Offsets, Retention, committed_for
from .registry import GroupRegistry
from .state import GroupState
from .timers import Timer, Timers

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 10.0
_PATIENCE_S: Final = 0.1
"""How long what comes next in the metadata waits at most until offsets are deleted."""


class OffsetCleaner:
    """Cleans up this broker's groups at intervals and when topics are deleted."""

    def __init__(
        self,
        registry: GroupRegistry,
        committed: CommittedOffsets,
        retention: Retention,
        interval: float,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """``interval``: seconds between two clean-ups."""
        self._registry = registry
        self._committed = committed
        self._retention = retention
        self._interval = interval
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._forgotten: dict[str, list[Topic]] = {}  # whose offsets are not deleted yet, by name
        self.expired = 0

    def start(self) -> None:
        """Begin to clean up at intervals."""
        self._clean_up_after(self._interval)

    def stop(self) -> None:
        """Stop cleaning up."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    async def follow(self, events: Sequence[Event]) -> None:
        """Delete the offsets of deleted topics, but not those of new topics of the same name.

        This may go on in the background: elections cannot wait for replicas that are slow.
        """
        topics = [event.topic for event in events if isinstance(event, TopicDeleted)]
        if topics:
            tried = asyncio.Event()
            for topic in topics:
                self._forgotten.setdefault(topic.name, []).append(topic)
            self._spawn(self._forget_at_last(topics, tried))
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    await tried.wait()

    def without_forgotten(self, offsets: Offsets) -> Offsets:
        """Leave out the offsets of deleted topics that are still to be deleted.

        A topic of the same name would begin where the former one had been read.
        """
        names = self._forgotten.keys() & offsets.keys() if self._forgotten else ()
        if not names:
            return offsets
        topics = [topic for name in names for topic in self._forgotten[name]]
        gone = set(committed_for(topics, offsets.__getitem__))
        left: dict[str, Mapping[int, Offset]] = dict(offsets)
        for name in names:
            left[name] = {at: one for at, one in offsets[name].items() if (name, at) not in gone}
            if not left[name]:
                del left[name]
        return left

    async def clean_up(self) -> None:
        """Delete expired and stale offsets, and groups that have neither members nor offsets.

        Raises:
            ApiError: the groups cannot be read.
        """
        await self._registry.load_all()
        idle = [metadata for metadata in self._registry if metadata.is_idle]
        await asyncio.gather(*(self._clean_up_group(metadata) for metadata in idle))

    async def _clean_up_group(self, metadata: GroupMetadata) -> None:
        group, offsets = metadata.group, self._committed.known(metadata)
        unstable = self._committed.unstable(metadata)
        now_ms = self._clock.time_ms()
        expired = {
            place
            for place in self._retention.expired(group, offsets, metadata.since_ms, now_ms)
            if place not in unstable
        }
        gone = expired.union(self._committed.present(metadata).stale())
        if gone:
            found = {(topic, at): offsets[topic][at] for topic, at in gone}
            if await self._committed.discard(metadata, found):
                return
            self.expired += len(expired)
        if self._is_left(metadata):
            await self._committed.remove(metadata)

    def _is_left(self, metadata: GroupMetadata) -> bool:
        """Whether a group has neither members nor offsets, nor gets any now."""
        group = metadata.group
        return (
            group.state is GroupState.EMPTY
            and group.is_vacant
            and metadata.is_idle
            and not self._committed.known(metadata)
            and not self._committed.unstable(metadata)
        )

    async def _forget_at_last(self, topics: list[Topic], tried: asyncio.Event) -> None:
        """Delete the offsets of topics; ``tried`` is set when that was done, or tried once."""
        while True:
            try:
                is_done = await self._try(self._forget(topics))
            finally:
                tried.set()
            if is_done:
                break
            await self._sleep(_RETRY_SECONDS)
        for topic in topics:
            self._forgotten[topic.name].remove(topic)
            if not self._forgotten[topic.name]:
                del self._forgotten[topic.name]

    async def _forget(self, topics: list[Topic]) -> bool:
        """Delete the offsets of topics; return whether that was all of them.

        Where an open transaction brings another one, they wait for its end.
        """
        known_for = self._committed.known_for
        await self._registry.load_all()
        found = [metadata for metadata in self._registry if known_for(metadata, topics)]
        work = (self._committed.forget(metadata, topics) for metadata in found)
        for error in await asyncio.gather(*work):
            if error:
                raise ApiError(error)
        return not any(known_for(metadata, topics) for metadata in found)

    def _clean_up_after(self, seconds: float) -> None:
        when = self._clock.monotonic() + seconds
        self._timer = self._timers.call_at(when, self._clean_up_now)

    def _clean_up_now(self) -> None:
        self._spawn(self._try(self.clean_up()))
        self._clean_up_after(self._interval)

    async def _try(self, work: Coroutine[Any, Any, bool | None]) -> bool:
        """Do some work; return whether it is done, and need not be tried again."""
        try:
            return await work is not False
        except ApiError as error:
            _log.warning("groups cannot be cleaned up, trying again: %s", error)
            return False
        except Exception:  # noqa: BLE001 - whatever failed, the next try may not
            _log.exception("groups cannot be cleaned up, trying again")
            return False

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
